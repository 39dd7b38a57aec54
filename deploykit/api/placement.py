"""Where each node of a model really runs."""

from dataclasses import replace
from typing import Any

from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.settings import CPU_DEVICES, Settings
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import open_model
from deploykit.input.samples import read_feeding
from deploykit.inspection.placement import Placement, find_placement
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.errors import CrashError, LimitError


def placement(
    model: Any,
    *,
    feeding: Feeding = MADE_UP,
    batch: int | None = None,
    device: str = Settings.device,
    cpu_devices: int = CPU_DEVICES,
    soft_placement: bool = True,
    **options: Any,
) -> Placement:
    """Run a model, and say where its nodes ran and what was copied between devices.

    Args:
        model: whatever `open_model` takes.
        feeding: data or made-up values.
        batch: samples at once; default: as many as an input demands, or one.
        device: `cpu`, `gpu`, `gpu:N` or `all`: what TensorFlow may see.
        cpu_devices: as how many devices the CPU is shown, to try a placement without a GPU.
        soft_placement: whether a node gets another device where it cannot have the one that it
            asks for.
        options: fields of `Feeding`, such as `data` and `shapes`, or of `Source`, such as
            `outputs`.

    Sizes of copies are in bytes a run.

    FileError, GraphError: the model or the data cannot be read, an input has no known shape,
    TensorFlow cannot run the model, or, without `soft_placement`, a node cannot have its device.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.

    Example:
        >>> found = deploykit.placement("fashion.keras")
        >>> found.fallbacks, found.copied_bytes
        ((), 0)
    """
    source, feeding = with_options("placement", options, source_of(model), feeding)
    with working("placement"):
        opened = open_model(source)
        opened.refuse_effects(feeding.allowed_ops)
        feeding, fed = read_feeding(feeding, opened.graph)
        try:
            found = find_placement(
                opened,
                feeding,
                batch=batch,
                device=device,
                cpu_devices=cpu_devices,
                soft_placement=soft_placement,
            )
            return replace(found, fed=fed)
        except CrashError as error:
            raise LimitError(f"{opened.source}: {error}") from None
