"""inspect, diff, placement, list_transforms and doctor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from deploykit.api.public import Command, public
from deploykit.benchmarking.engines.engine_choice import say_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.run_config import CPU_DEVICES, RunConfig
from deploykit.data.samples import read_feeding
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.importers.signature import source_of
from deploykit.inspection.diff import GraphDifferences, differences
from deploykit.inspection.engine_placement import EnginePlacement, find_engine_placement
from deploykit.inspection.placement import Placement, find_placement
from deploykit.inspection.summary import InspectionFacts, inspect_graph
from deploykit.pipelines.catalogue import describe
from deploykit.rendering.progress import working
from deploykit.system.doctor import MachineFacts, examine
from deploykit.transforms.common.documents import AsHtml, Flat, Hidden
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import (
    MOST_BATCH,
    TENSORFLOW,
    TITLES,
    check_engine,
    lacking,
)
from deploykit.transforms.ir import pipeline
from deploykit.verification.samples import ModelLike


@dataclass(frozen=True)
class Inspection(AsHtml):
    """What is in a model."""

    model: Hidden[OpenedModel]
    facts: Flat[InspectionFacts]


@public(Command(heading="What is shown", requires=()))
def inspect(
    model: ModelLike,
    *,
    top: Annotated[int, Flag(at_least=0)] = 10,
    structure: bool = False,
) -> Inspection:
    """Show what a model contains, and its FLOPs and memory.

    Shows inputs, outputs, variables, parameters, ops, devices and functions, and the batch norms
    that can be folded. FLOPs (a multiply-add counts as 2) and memory are estimated at batch 1, for
    nodes whose shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: whatever `open_model` takes.
        top: Number of the largest nodes to list.
        structure: Also print every node, one per line.

    FileError, GraphError: the model cannot be read.

    Commands:
        deploykit inspect models/fashion/fashion.keras
        deploykit inspect model.pb --structure

    Example:
        >>> deploykit.inspect("fashion.keras").facts["layers"]
        12
    """
    with working("inspect"):
        opened = open_model(model)
        facts = inspect_graph(opened.graph, top)
        if structure:
            facts["structure"] = str(opened.graph).splitlines()
    return Inspection(opened, facts)


@dataclass(frozen=True)
class Differences(AsHtml):
    """The nodes and functions that two models do not share."""

    first: Hidden[OpenedModel]
    second: Hidden[OpenedModel]
    facts: Flat[GraphDifferences]

    @property
    def equal(self) -> bool:
        """Whether there are none."""
        return self.facts["equal"]


@public(Command(requires=()))
def diff(
    first: ModelLike,
    second: ModelLike,
) -> Differences:
    """Show the nodes that two models do not share.

    Exits with 0 if the graphs are equal, and with 5 if they differ. Prints a summary of nodes, ops,
    weights, inputs and outputs, then each difference. Lines with - are nodes only in FIRST, + only
    in SECOND, and ~ nodes whose op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares the outputs of the models.

    Args:
        first: whatever `open_model` takes.
        second: likewise.

    FileError, GraphError: a model cannot be read.

    Commands:
        deploykit diff model.pb optimized.pb
        deploykit diff models/fashion/fashion.keras model.pb --json

    Example:
        >>> deploykit.diff("fashion.keras", "fashion.keras").equal
        True
    """
    with working("diff"):
        a, b = (open_model(item, needs_output=False) for item in (first, second))
        return Differences(a, b, differences(a.graph, b.graph))


_DEVICES = RunConfig.device, CPU_DEVICES, True
_ONE = "one device, the CPU; devices are of --engine tensorflow"


@public(Command(heading="Running"))
def placement(
    model: ModelLike,
    *,
    feeding: BenchmarkInputs = SYNTHETIC,
    batch: Annotated[int | None, Flag(at_most=MOST_BATCH)] = None,
    device: Annotated[str, Flag(format="device")] = RunConfig.device,
    cpu_devices: Annotated[int, Flag(at_most=64)] = CPU_DEVICES,
    soft_placement: Annotated[bool, Flag("--no-soft-placement")] = True,
    engine: Literal["tensorflow", "openvino"] | None = None,
) -> Placement | EnginePlacement:
    """Show on which device each node of a model really runs.

    Runs the model and shows the graph that TensorFlow executed after folding and fusing nodes. Each
    node has its requested and its actual device. Copies of tensors between devices are listed with
    their bytes per run, and so are nodes that silently ran on another device.

    In OpenVINO, everything runs on the CPU. The result shows OpenVINO's ops with their precisions
    (u8 and i8 are 8 bits), the number of int8 layers, and the number of pure type conversions.

    To try other devices, use set_device of deploykit transform.

    Args:
        model: whatever `open_model` takes.
        feeding: data or made-up values.
        batch: Samples in a batch [default: the model's fixed batch, or 1].
        device: Devices that TensorFlow may see; all: every GPU.
        cpu_devices: Present the CPU as this many devices, up to 64, to try a placement without a
            GPU.
        soft_placement: Fail if a node cannot run on its requested device.
        engine: Execution engine; openvino runs everything on the CPU and shows its own graph
            [default: the one that the model was written for, else tensorflow].

    Sizes of copies are in bytes a run.

    FileError, GraphError: the model or the data cannot be read, an input has no known shape,
    TensorFlow cannot run the model, or, without `soft_placement`, a node cannot have its device.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.

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
        feeding, fed = read_feeding(feeding, opened.graph)
        try:
            if used != TENSORFLOW:
                return replace(find_engine_placement(opened, used, feeding, batch=batch), fed=fed)
            more: dict[str, Any] = {"cpu_devices": cpu_devices, "soft_placement": soft_placement}
            result = find_placement(opened, feeding, batch=batch, device=device, **more)
            return replace(result, fed=fed)
        except CrashError as error:
            raise error.within(opened.source, LimitError) from None


def _own_engine(model: OpenedModel) -> str:
    """Return the engine that a model was written for, or TensorFlow, and say so if it is not it."""
    own = TENSORFLOW if model.about.engine is None else model.about.engine.engine
    if why := lacking(own):
        say_emulated(model, why)
        return TENSORFLOW
    return own


@dataclass(frozen=True)
class TransformList(AsHtml):
    """Transforms: name, summary, text and parameters of each."""

    transforms: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called in a transform string."""
        return tuple(transform["name"] for transform in self.transforms)


@public(Command(name="transforms", requires=(), has_limits=False))
def list_transforms(
    name: str | None = None,
) -> TransformList:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too. NAME may be your own transform,
    package.module:function.

    Args:
        name: a transform, or `package.module:function`, which is one of your own; default: all,
            their other names included.

    PipelineError: there is no such transform.

    Commands:
        deploykit transforms
        deploykit transforms fold_batch_norms

    Example:
        >>> found = deploykit.list_transforms("round_weights")
        >>> [each["name"] for each in found.transforms[0]["parameters"]]
        ['num_steps']
        >>> "fold_batch_norms" in deploykit.list_transforms().names
        True
    """
    names = [name] if name else sorted((*pipeline.names(), *pipeline.ALIASES))
    return TransformList([describe(name) for name in names])


@dataclass(frozen=True)
class Diagnosis(AsHtml):
    """The machine, TensorFlow, the settings in force and the GPU."""

    facts: Flat[MachineFacts]

    @property
    def refusal(self) -> str | None:
        """Why TensorFlow sees no GPU, and what to do; None: it sees one."""
        reason: str | None = self.facts["gpu"]["refusal"]
        return reason


@public(Command(requires=()))
def doctor() -> Diagnosis:
    """Show the machine and the TensorFlow installation that run models here.

    Shows the machine and its limits, versions, TensorFlow's build and configuration, the
    environment variables that affect it, and the GPU with its driver and libraries. If TensorFlow
    sees no GPU, the last line gives the reason and the fix.

    Commands:
        deploykit doctor
        deploykit doctor --json

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """
    with working("doctor"):
        return Diagnosis(examine())
