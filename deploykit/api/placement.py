"""placement: the device on which each node runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from deploykit.api.public import Command, public
from deploykit.benchmarking.engines.engine_choice import warn_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.run_config import CPU_DEVICES, RunConfig
from deploykit.data.samples import read_feeding
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import ModelLike, OpenedModel, open_model
from deploykit.inspection.placement import (
    EnginePlacement,
    Placement,
    find_engine_placement,
    find_placement,
)
from deploykit.rendering.progress import working
from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError
from deploykit.transforms.common.flag import COLUMNS, HEADER, Flag
from deploykit.transforms.engines.engines import (
    MAX_BATCH,
    TENSORFLOW,
    TITLES,
    check_engine,
    lacking,
)

_DEVICES = RunConfig.device, CPU_DEVICES, True


_ONE = "one device, the CPU; device options need --engine tensorflow"


@public(Command(heading="Running"))
def placement(
    model: ModelLike,
    *,
    feeding: BenchmarkInputs = SYNTHETIC,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None,
    device: Annotated[str, Flag(format="device")] = RunConfig.device,
    cpu_devices: Annotated[int, Flag(at_most=64)] = CPU_DEVICES,
    soft_placement: Annotated[bool, Flag("--no-soft-placement")] = True,
    engine: Literal["tensorflow", "openvino"] | None = None,
) -> Placement | EnginePlacement:
    """Show on which device each node of a model really runs.

    Runs the model and shows the graph that TensorFlow executed after folding and fusing nodes, with
    the requested and the actual device of each node. It also lists copies of tensors between
    devices with their bytes per run, and nodes that silently ran on another device.

    In OpenVINO, everything runs on the CPU. The result shows OpenVINO's ops with their precisions
    (u8 and i8 are 8-bit integers). It counts the int8 layers, and the ops that only convert types.

    To try other devices, use the transform set_device of deploykit transform.

    Args:
        model: any model that `open_model` accepts.
        feeding: the model inputs: data or synthetic values.
        batch: Samples in a batch [default: the model's fixed batch, or 1].
        device: Devices that TensorFlow may use: cpu, gpu (the first), gpu:N, or all (every GPU).
        cpu_devices: Present the CPU as this many devices, up to 64, to try a placement without a
            GPU.
        soft_placement: Fail if a node cannot run on its requested device.
        engine: Execution engine. openvino runs everything on the CPU and shows its own graph
            [default: the engine that the model was written for, else tensorflow].

    Copy sizes are in bytes per run.

    FileError, GraphError: the model or the data cannot be read, an input has no known shape,
    TensorFlow cannot run the model, or, without `soft_placement`, a requested device is not
    available. RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or
    hung.

    Commands:
        deploykit placement models/fashion/fashion.keras
        deploykit placement model.pb --device gpu --no-soft-placement

    Example:
        >>> found = deploykit.placement("fashion.keras")
        >>> found.fallbacks, found.copied_bytes
        ((), 0)
    """
    source = source_of(model)
    if engine is not None:
        check_engine(engine)
    with working("placement"):
        opened = open_model(source)
        opened.refuse_effects(feeding.allow_ops)
        used = engine or _own_engine(opened)
        if used != TENSORFLOW and (device, cpu_devices, soft_placement) != _DEVICES:
            raise GraphError("engine-computes-all", engine=TITLES[used], runtime=_ONE)
        feeding, fed = read_feeding(feeding, opened.graph, rule=header, columns=columns)
        try:
            if used != TENSORFLOW:
                return replace(find_engine_placement(opened, used, feeding, batch=batch), fed=fed)
            more: dict[str, Any] = {"cpu_devices": cpu_devices, "soft_placement": soft_placement}
            with feeding.explained(opened.graph):
                result = find_placement(opened, feeding, batch=batch, device=device, **more)
            return replace(result, fed=fed)
        except CrashError as error:
            raise error.within(opened.source, LimitError) from None


def _own_engine(model: OpenedModel) -> str:
    """Return the engine of a model; log it and return TensorFlow if that is not available."""
    own = TENSORFLOW if model.about.engine is None else model.about.engine.engine
    if why := lacking(own):
        warn_emulated(model, why)
        return TENSORFLOW
    return own
