"""The result of quantizing a model with calibration data, per layer and in total."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from deploykit.benchmarking.speed_verdict import SpeedVerdict
from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.rewrite import Rewriting
from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.layer_search import LayerChoice
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
    """The precision of a layer, and its measurements."""

    layer: str
    op: str
    why_float: OrNull[str] = ""
    """Why the layer is kept in float32; empty: it runs in int8."""
    range: Hidden[tuple[float, float] | None] = None
    """Output range of the layer, after bias, sum and activation."""
    sqnr_db: float | None = None
    """SQNR of the model's outputs if only this layer is int8."""
    times_us: Hidden[Mapping[str, float] | None] = None
    """Microseconds by kernel: `eigen`, `onednn` (TensorFlow), `float` (other engines), `int8`."""

    @property
    @written()
    def computes_in(self) -> str:
        """The precision of the layer: `float` or `int8`."""
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
    """The graph to write, and how it was chosen."""

    graph: Hidden[Graph]
    is_float: Hidden[bool]
    """Whether the graph is the optimized float32 one: int8 is slower, too inaccurate or impossible.
    """
    reason: str
    """Why this graph, in one sentence."""
    layers: Hidden[tuple[LayerOutcome, ...]]
    judgement: Judgement | None = None
    """Quality of the int8 graph on held-out calibration samples, even if it was not kept."""
    evaluation: Judgement | None = None
    """Quality of the int8 graph on the user's evaluation data."""
    gain: Annotated[Gain | None, Written("speed")] = None
    """Speed of the int8 graph against the float32 graph, even if it was not kept."""
    use: Hidden[EngineUse | None] = None
    """The engine to run the graph; None: TensorFlow."""
    engine_reason: OrNull[str] = ""
    """Why this engine was chosen, if there was a choice."""
    engine_verdict: Annotated[SpeedVerdict | None, Written("engine_speed")] = None
    """Speed of the other engine against TensorFlow, each with its best graph."""
    isa: str = ""
    samples: Annotated[int, Written("calibration_samples")] = 0
    """Number of calibration samples."""
    seconds: Annotated[Mapping[str, float], Written("seconds_by_step", digits=2)] = field(
        default_factory=dict
    )
    """Duration of each step in seconds."""
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """The model that was quantized."""
    nodes: Hidden[int | None] = None
    """Number of nodes of the graph before."""
    bytes: Hidden[int | None] = None
    """Size of the written file in bytes."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""
    verification: Hidden[Verification | None] = None
    """Verification of the written file on a few held-out samples; None: no file was written."""

    @property
    def rewriting(self) -> Rewriting:
        """How the graph was made, without the layers."""
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
        """The precision of the kept graph: `int8` or `float`."""
        return "float" if self.is_float else "int8"

    @property
    @written()
    def engine(self) -> str:
        """The engine to run the graph."""
        return TENSORFLOW if self.use is None else self.use.engine

    @property
    @written()
    def all_layers(self) -> int:
        """Number of layers: convolutions and matrix products."""
        return len(self.layers)

    @property
    @written("layers")
    def _layers(self) -> list[LayerOutcome | dict[str, Any]]:
        is_float = {"computes_in": "float"} if self.is_float else {}
        return [document(layer) | is_float for layer in self.layers]

    @property
    @written()
    def int8_layers(self) -> int:
        """Number of int8 layers in the int8 graph, even if it was not kept."""
        return sum(not layer.why_float for layer in self.layers)

    @property
    @written()
    def precision(self) -> str:
        """The precision of the graph: `int8` or `float32`."""
        return "float32" if self.is_float else "int8"


def layer_outcomes(
    graph: Graph,
    plan: Plan,
    ranges: Ranges,
    choice: LayerChoice | None = None,
    target: EngineTarget = IN_TENSORFLOW,
    stay_float: Collection[str] = (),
) -> tuple[LayerOutcome, ...]:
    """Return the outcome of each layer, in execution order.

    Args:
        graph: the calibrated graph.
        plan: which layers can be int8, and why others cannot.
        ranges: the ranges of the graph.
        choice: the choice of layers, with their noise and times, if it was made.
        target: the engine.
        stay_float: layers that are kept in float32 for their time or noise.
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
            why = "quantization noise too high"
        elif name in stay_float:
            why = "int8 is not faster"
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
