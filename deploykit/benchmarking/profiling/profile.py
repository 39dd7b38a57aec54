"""A profile as a value: what each node and each op of a call costs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from deploykit.benchmarking.profiling.execution import Event
from deploykit.benchmarking.profiling.roofline import Peak


@dataclass(frozen=True)
class Cost:
    """What a node, or all nodes of an op, cost in a call."""

    calls: int
    ms: float
    allocated: int
    """Bytes, for results and for the time of a run; none where a result takes an input's."""
    moved: int
    """Bytes read and written."""
    flops: int

    @property
    def gflops_per_second(self) -> float:
        """The rate of its arithmetic."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0


@dataclass(frozen=True)
class NodeCost(Cost):
    """A node of the executed graph."""

    name: str
    op: str
    device: str
    launch_ms: float
    """Of a node on a GPU: how long the host took to give it to the GPU; 0 on the CPU."""
    share_of_peak: float | None
    """The time that the measured peak needs, of its time; above 1 where caches or 8 bits help."""
    bound: str
    """What the peak is limited by at its arithmetic intensity: compute, memory or nothing."""


@dataclass(frozen=True)
class OpCost(Cost):
    """All nodes of an op."""

    op: str


@dataclass(frozen=True)
class StreamCost:
    """What the streams of all GPUs did in a call, of one kind: kernels, or copies of a direction.

    TensorFlow tells when it began and ended in whole microseconds.
    """

    kind: str
    """`kernel`, or NVIDIA's name of a copy: MemcpyH2D is into the GPU, MemcpyD2H out of it."""
    calls: int
    ms: float
    moved: int
    """Bytes that were copied; 0 for kernels."""


@dataclass(frozen=True)
class Profile:
    """What a call's time goes to. Nodes and ops are in the order of their time.

    A node on a GPU takes the time of its kernels, not that of its launch.
    """

    runs: int
    samples: int
    """In each call."""
    nodes: tuple[NodeCost, ...]
    ops: tuple[OpCost, ...]
    peak: Peak
    untraced_ms: float
    """The median call without a trace, in turn with the traced ones."""
    traced_ms: float
    span_ms: float
    """From the start of the first node to the end of the last one, in a traced call."""
    busy_ms: float
    """Of this, while any node ran."""
    overlap: float
    """How many nodes ran at once, on average, while any did."""
    model_flops: int
    """Of the layers of the graph that was given; those of unknown shape not counted."""
    uncounted: tuple[str, ...]
    """Layers that ran, but whose shapes are not known."""
    events: tuple[Event, ...]
    """The traced call that took the median time."""
    streams: tuple[StreamCost, ...] = ()
    """Of GPUs; empty: none computed, or CUPTI, by which TensorFlow traces them, gave nothing."""

    @cached_property
    def total(self) -> Cost:
        """The sum of all nodes."""
        return sum_of(self.nodes)

    @property
    def on_gpu(self) -> bool:
        """Whether nodes were given to a GPU."""
        return any(event.kind == "launch" for event in self.events)

    @property
    def launch_ms(self) -> float:
        """How long the host took to give all nodes to GPUs."""
        return sum(node.launch_ms for node in self.nodes)

    @property
    def idle_share(self) -> float:
        """The share of the span in which no node ran."""
        return 1 - self.busy_ms / self.span_ms if self.span_ms else 0.0

    @property
    def unattributed_share(self) -> float:
        """The share of the model's operations that no executed node accounts for.

        They were computed when the session began, or run inside a compiled cluster.
        """
        missing = max(self.model_flops - self.total.flops, 0)
        return missing / self.model_flops if self.model_flops else 0.0

    @property
    def gflops_per_second(self) -> float:
        """The rate of the whole untraced call."""
        return self.total.flops / self.untraced_ms / 1e6

    def share(self, cost: Cost) -> float:
        """Return the share of a cost's time in the sum of all nodes' times."""
        return cost.ms / self.total.ms if self.total.ms else 0.0


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return what costs come to together."""
    each = list(costs)
    return Cost(
        calls=sum(cost.calls for cost in each),
        ms=sum(cost.ms for cost in each),
        allocated=sum(cost.allocated for cost in each),
        moved=sum(cost.moved for cost in each),
        flops=sum(cost.flops for cost in each),
    )


def document(found: Profile) -> dict[str, Any]:
    """Return a profile as plain data; the events are in the trace."""
    total = found.total
    return {
        "runs": found.runs,
        "samples": found.samples,
        "untraced_ms": found.untraced_ms,
        "traced_ms": found.traced_ms,
        "span_ms": found.span_ms,
        "busy_ms": found.busy_ms,
        "idle_share": found.idle_share,
        "overlap": found.overlap,
        "peak": asdict(found.peak),
        "model_flops": found.model_flops,
        "unattributed_share": found.unattributed_share,
        "uncounted": list(found.uncounted),
        "gflops_per_second": found.gflops_per_second,
        "share_of_peak": found.gflops_per_second / found.peak.gflops,
        "launch_ms": found.launch_ms,
        "streams": [asdict(each) for each in found.streams],
        "total": _cost_document(found, total),
        "ops": [_cost_document(found, cost) for cost in found.ops],
        "nodes": [_cost_document(found, cost) for cost in found.nodes],
    }


def _cost_document(found: Profile, cost: Cost) -> dict[str, Any]:
    rates = {"share": found.share(cost), "gflops_per_second": cost.gflops_per_second}
    return asdict(cost) | rates
