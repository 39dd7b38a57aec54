"""What quantizing a model with calibration data came to: layer by layer, and in all."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploykit.benchmarking.comparison.speed_verdict import SpeedVerdict
from deploykit.freezing.open_model import OpenedModel
from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.layer_search import LayerChoice
from deploykit.quantization.target import IN_TENSORFLOW, EngineTarget
from deploykit.quantization.timing.speed import Gain
from deploykit.transforms.core.engines.engines import TENSORFLOW, EngineUse
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import Plan
from deploykit.transforms.core.int8.ranges import Ranges
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.verification.verify import Verification

KERNELS = ("eigen", "onednn", "float", "int8")


@dataclass(frozen=True)
class LayerOutcome:
    """A layer, what became of it, and what was measured of it."""

    layer: str
    op: str
    why_float: str = ""
    """Empty: it computes in 8 bits."""
    range: tuple[float, float] | None = None
    """Of what it gives, with bias, sum and activation."""
    sqnr_db: float | None = None
    """Of the outputs, if this layer alone is in 8 bits."""
    times_us: Mapping[str, float] | None = None
    """By kernel: `eigen` and `onednn` in TensorFlow, `float` in another engine, and `int8`."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data; times in microseconds."""
        times = self.times_us or {}
        return {
            "layer": self.layer,
            "op": self.op,
            "computes_in": "float" if self.why_float else "int8",
            "why_float": self.why_float or None,
            "min": self.range and self.range[0],
            "max": self.range and self.range[1],
            "sqnr_db": _finite(self.sqnr_db),
            **{f"{kernel}_us": times.get(kernel) for kernel in KERNELS},
        }


@dataclass(frozen=True)
class Quantized:
    """The graph to be written, and how it was chosen."""

    graph: Graph
    is_float: bool
    """Whether the graph is the optimized float32 one: int8 is slower, too inaccurate or impossible.
    """
    reason: str
    """Why this graph, in one sentence."""
    layers: tuple[LayerOutcome, ...]
    judgement: Judgement | None = None
    """Of the 8-bit graph on held-out calibration samples, also where it was not kept."""
    evaluation: Judgement | None = None
    """Of the 8-bit graph on the user's evaluation data."""
    gain: Gain | None = None
    """Of the 8-bit graph over the float one, also where it was not kept."""
    use: EngineUse | None = None
    """The engine that is to compute the graph; None: TensorFlow."""
    engine_reason: str = ""
    """Why that one, where it was to be found out."""
    engine_verdict: SpeedVerdict | None = None
    """Of TensorFlow with its best graph beside the other engine with its own."""
    isa: str = ""
    samples: int = 0
    """That calibrated it."""
    seconds: Mapping[str, float] | None = None
    """By what was done."""
    notes: tuple[str, ...] = ()
    model: OpenedModel | None = None
    """What was quantized."""
    nodes: int | None = None
    """Of its graph before."""
    bytes: int | None = None
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    """Of the file that was written."""
    verification: Verification | None = None
    """Of that file, on a few held-out samples; None: none was written."""

    @property
    def int8_layers(self) -> int:
        """How many layers compute in 8 bits in the 8-bit graph, also where it was not kept."""
        return sum(not each.why_float for each in self.layers)

    @property
    def precision(self) -> str:
        """`int8` or `float32`: that of the graph."""
        return "float32" if self.is_float else "int8"

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        found: dict[str, Any] = {
            "result": "float" if self.is_float else "int8",
            "precision": self.precision,
            "reason": self.reason,
            "engine": TENSORFLOW if self.use is None else self.use.engine,
            "engine_reason": self.engine_reason or None,
            "engine_speed": self.engine_verdict and self.engine_verdict.document(),
            "isa": self.isa,
            "calibration_samples": self.samples,
            "int8_layers": self.int8_layers,
            "all_layers": len(self.layers),
            "layers": [
                each.document() | ({"computes_in": "float"} if self.is_float else {})
                for each in self.layers
            ],
            "judgement": self.judgement and self.judgement.document(),
            "evaluation": self.evaluation and self.evaluation.document(),
            "speed": None,
            "seconds_by_step": {k: round(v, 2) for k, v in (self.seconds or {}).items()},
            "notes": list(self.notes),
        }
        if self.gain is not None:
            found["speed"] = self.gain.document()
        return found


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
    noise = {} if choice is None else {each.layer: each.sqnr_db for each in choice.ranking}
    parts = {} if choice is None or choice.times is None else choice.times.usual.parts
    noisy, departing = (choice.noisy, choice.departing) if choice is not None else ((), ())
    outcomes = []
    for node in map(graph.__getitem__, graph.order()):
        if node.op not in LAYER_OPS:
            continue
        name, why = node.name, plan.reasons.get(node.name, "")
        if name in departing:
            why = f"{target.title} computes it otherwise than TensorFlow"
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
