"""Where each node of a model really runs."""

from dataclasses import replace
from typing import Any

from deploykit.benchmarking.engines.own_engine import say_emulated
from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.settings import CPU_DEVICES, Settings
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.input.samples import read_feeding
from deploykit.inspection.engine_placement import EnginePlacement, find_engine_placement
from deploykit.inspection.placement import Placement, find_placement
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.engines.engines import TENSORFLOW, TITLES, check_engine, lacking
from deploykit.transforms.core.errors import CrashError, GraphError, LimitError

_DEVICES = Settings.device, CPU_DEVICES, True
_ONE = "one device, the CPU; devices are of --engine tensorflow"


def placement(
    model: Any,
    *,
    feeding: Feeding = MADE_UP,
    batch: int | None = None,
    device: str = Settings.device,
    cpu_devices: int = CPU_DEVICES,
    soft_placement: bool = True,
    engine: str | None = None,
    **options: Any,
) -> Placement | EnginePlacement:
    """Run a model, and say where its nodes ran and what was copied between devices.

    Args:
        model: whatever `open_model` takes.
        feeding: data or made-up values.
        batch: samples at once; default: as many as an input demands, or one.
        device: `cpu`, `gpu`, `gpu:N` or `all`: what TensorFlow may see.
        cpu_devices: as how many devices the CPU is shown, to try a placement without a GPU.
        soft_placement: whether a node gets another device where it cannot have the one that it
            asks for.
        engine: `tensorflow`, or `openvino`, of which it is said what it made of the graph. Default:
            the engine that the model was written for.
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
    if engine is not None:
        check_engine(engine)
    with working("placement"):
        opened = open_model(source)
        opened.refuse_effects(feeding.allowed_ops)
        used = engine or _own_engine(opened)
        if used != TENSORFLOW and (device, cpu_devices, soft_placement) != _DEVICES:
            raise GraphError("engine-computes-all", engine=TITLES[used], runtime=_ONE)
        feeding, fed = read_feeding(feeding, opened.graph)
        try:
            if used != TENSORFLOW:
                return replace(find_engine_placement(opened, used, feeding, batch=batch), fed=fed)
            more: dict[str, Any] = {"cpu_devices": cpu_devices, "soft_placement": soft_placement}
            found = find_placement(opened, feeding, batch=batch, device=device, **more)
            return replace(found, fed=fed)
        except CrashError as error:
            raise error.within(opened.source, LimitError) from None


def _own_engine(model: OpenedModel) -> str:
    """Return the engine that a model was written for, or TensorFlow, and say so if it is not it."""
    own = TENSORFLOW if model.about.engine is None else model.about.engine.engine
    if why := lacking(own):
        say_emulated(model, why)
        return TENSORFLOW
    return own
