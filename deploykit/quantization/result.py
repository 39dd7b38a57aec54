"""What quantizing a model with calibration data came to: layer by layer, and in all."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from deploykit.benchmarking.speed_verdict import SpeedVerdict
from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.rewrite import Rewriting
from deploykit.quantization.layer_search import LayerChoice
from deploykit.quantization.scoring import Judgement
from deploykit.quantization.target import IN_TENSORFLOW, EngineTarget
from deploykit.quantization.timing.speed import Gain
from deploykit.transforms.common.documents import (
    Documented,
    Hidden,
    OrNull,
    Written,
    document,
    written,
)
from deploykit.transforms.engines.engines import TENSORFLOW, EngineUse
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.int8.ranges import Ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.verification.verify import Verification

KERNELS = ("eigen", "onednn", "float", "int8")


@dataclass(frozen=True)
class LayerOutcome:
    """A layer, what became of it, and what was measured of it."""

    layer: str
    op: str
    why_float: OrNull[str] = ""
    """Empty: it computes in 8 bits."""
    range: Hidden[tuple[float, float] | None] = None
    """Of what it gives, with bias, sum and activation."""
    sqnr_db: float | None = None
    """Of the outputs, if this layer alone is in 8 bits."""
    times_us: Hidden[Mapping[str, float] | None] = None
    """By kernel: `eigen` and `onednn` in TensorFlow, `float` in another engine, and `int8`."""

    @property
    @written()
    def computes_in(self) -> str:
        """`float` or `int8`."""
        return "float" if self.why_float else "int8"

    @property
    @written(flat=True)
    def _numbers(self) -> dict[str, float | None]:
        low, high = self.range or (None, None)
        times = self.times_us or {}
        return {
            "min": low,
            "max": high,
            **{f"{kernel}_us": times.get(kernel) for kernel in KERNELS},
        }


@dataclass(frozen=True)
class Quantized(Documented):
    """The graph to be written, and how it was chosen."""

    graph: Hidden[Graph]
    is_float: Hidden[bool]
    """Whether the graph is the optimized float32 one: int8 is slower, too inaccurate or impossible.
    """
    reason: str
    """Why this graph, in one sentence."""
    layers: Hidden[tuple[LayerOutcome, ...]]
    judgement: Judgement | None = None
    """Of the 8-bit graph on held-out calibration samples, also where it was not kept."""
    evaluation: Judgement | None = None
    """Of the 8-bit graph on the user's evaluation data."""
    gain: Annotated[Gain | None, Written("speed")] = None
    """Of the 8-bit graph over the float one, also where it was not kept."""
    use: Hidden[EngineUse | None] = None
    """The engine that is to compute the graph; None: TensorFlow."""
    engine_reason: OrNull[str] = ""
    """Why that one, where it was to be found out."""
    engine_verdict: Annotated[SpeedVerdict | None, Written("engine_speed")] = None
    """Of TensorFlow with its best graph beside the other engine with its own."""
    isa: str = ""
    samples: Annotated[int, Written("calibration_samples")] = 0
    """That calibrated it."""
    seconds: Annotated[Mapping[str, float], Written("seconds_by_step", digits=2)] = field(
        default_factory=dict
    )
    """By what was done."""
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """What was quantized."""
    nodes: Hidden[int | None] = None
    """Of its graph before."""
    bytes: Hidden[int | None] = None
    """Of the file that was written."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    verification: Hidden[Verification | None] = None
    """Of that file, on a few held-out samples; None: none was written."""

    @property
    def rewriting(self) -> Rewriting:
        """How the graph was made; the layers are not among it."""
        assert self.model is not None
        return Rewriting(
            self.model,
            self.nodes,
            verification=self.verification,
            bytes=self.bytes,
            nodes_out=len(self.graph),
        )

    @property
    @written()
    def result(self) -> str:
        """`int8` or `float`: what computes the layers."""
        return "float" if self.is_float else "int8"

    @property
    @written()
    def engine(self) -> str:
        """The engine that is to compute the graph."""
        return TENSORFLOW if self.use is None else self.use.engine

    @property
    @written()
    def all_layers(self) -> int:
        """How many layers could compute in 8 bits."""
        return len(self.layers)

    @property
    @written("layers")
    def _layers(self) -> list[LayerOutcome | dict[str, Any]]:
        is_float = {"computes_in": "float"} if self.is_float else {}
        return [document(layer) | is_float for layer in self.layers]

    @property
    @written()
    def int8_layers(self) -> int:
        """How many layers compute in 8 bits in the 8-bit graph, also where it was not kept."""
        return sum(not layer.why_float for layer in self.layers)

    @property
    @written()
    def precision(self) -> str:
        """`int8` or `float32`: that of the graph."""
        return "float32" if self.is_float else "int8"


def layer_outcomes(
    graph: Graph,
    plan: Plan,
    ranges: Ranges,
    choice: LayerChoice | None = None,
    target: EngineTarget = IN_TENSORFLOW,
    stay_float: Collection[str] = (),
) -> tuple[LayerOutcome, ...]:
    """Return what became of each layer, in execution order.

    Args:
        graph: what was calibrated.
        plan: which layers could be in 8 bits, and why others cannot.
        ranges: of the graph.
        choice: what was found of layers, as far as it was.
        target: in which engine.
        stay_float: layers that stay float, for their time or their noise.
    """
    noise = {} if choice is None else {item.layer: item.sqnr_db for item in choice.ranking}
    parts = {} if choice is None or choice.times is None else choice.times.usual.parts
    noisy, departing = (choice.noisy, choice.departing) if choice is not None else ((), ())
    outcomes = []
    for node in map(graph.__getitem__, graph.order()):
        if node.op not in LAYER_OPS:
            continue
        name, why = node.name, plan.reasons.get(node.name, "")
        if name in departing:
            why = f"{target.title} differs from TensorFlow here"
        elif name in noisy:
            why = "in 8 bits it brings too much noise"
        elif name in stay_float:
            why = "it is no faster in 8 bits"
        chain, part = plan.chains.get(name), parts.get(name)
        span = ranges.tensors.get(chain.nodes[-1].name if chain else name)
        outcomes.append(
            LayerOutcome(
                name,
                node.op,
                why,
                None if span is None else (span.min, span.max),
                noise.get(name),
                None if part is None else target.times_us(part),
            )
        )
    return tuple(outcomes)
