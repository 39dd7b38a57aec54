"""What the time of a call goes to: traced calls in a pass of their own, beside the measured ones.

A trace slows the call that it watches, so nothing here is a latency of the model. A node's time is
the median of its time in the traced calls, from the start of its kernel to the end of it, all
threads inside it together. Nodes that run at once each have their whole time: shares are shares of
the sum of all nodes' times.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.profiling.costs import flops
from deploykit.benchmarking.profiling.execution import Event, ExecutedGraph
from deploykit.benchmarking.profiling.roofline import Peak, peak
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef
from deploykit.transforms.core.shapes.known_shapes import Shapes

if TYPE_CHECKING:
    from deploykit.benchmarking.runner import Job, Runner

RUNS = 10
_WARM_UP_RUNS = 3


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
    share_of_peak: float | None
    """The time that the measured peak needs, of its time; above 1 where caches or 8 bits help."""
    bound: str
    """What the peak is limited by at its arithmetic intensity: compute, memory or nothing."""


@dataclass(frozen=True)
class OpCost(Cost):
    """All nodes of an op."""

    op: str


@dataclass(frozen=True)
class Profile:
    """What a call's time goes to. Nodes and ops are in the order of their time."""

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

    @cached_property
    def total(self) -> Cost:
        """The sum of all nodes."""
        return _sum(self.nodes)

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


def profile(runner: "Runner", runs: int = RUNS) -> Profile:
    """Trace so many calls of a runner, and measure what its process could do at most.

    GraphError: TensorFlow cannot run the graph. LimitError: there is no memory for the peak.
    """
    import tensorflow as tf

    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    with_graph = tf.compat.v1.RunOptions(
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True
    )
    executed = ExecutedGraph(runner.run_once(with_graph)[1].partition_graphs)
    for _ in range(_WARM_UP_RUNS):
        runner.run_once()
        runner.run_once(options)
    untraced, traced = [], []
    for _ in range(runs):
        untraced.append(runner.run_once()[0] / 1e6)
        time, metadata = runner.run_once(options)
        traced.append((time / 1e6, executed.events(metadata.step_stats)))
    limit = peak(runner.job.settings)
    per_run = [[event for event in events if not event.on_stream] for _, events in traced]
    nodes = _nodes(per_run, limit)
    times = [_times(events) for events in per_run]
    median_run = sorted(traced, key=lambda run: run[0])[len(traced) // 2]
    return Profile(
        runs=runs,
        samples=samples_in(runner.job.batches[0]),
        nodes=nodes,
        ops=_ops(nodes),
        peak=limit,
        untraced_ms=statistics.median(untraced),
        traced_ms=statistics.median(time for time, _ in traced),
        span_ms=statistics.median(span for span, _, _ in times),
        busy_ms=statistics.median(busy for _, busy, _ in times),
        overlap=statistics.median(all_ / busy if busy else 0.0 for _, busy, all_ in times),
        model_flops=_model_flops(runner.job),
        uncounted=tuple(sorted({e.node for e in per_run[-1] if e.flops is None})),
        events=tuple(median_run[1]),
    )


def _nodes(runs: Sequence[Sequence[Event]], limit: Peak) -> tuple[NodeCost, ...]:
    """Return what each node costs, the median of the runs; the costliest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        in_run: Counter[str] = Counter()
        for event in run:
            in_run[event.node] += event.end - event.start
        for node, time in in_run.items():
            times[node].append(time / 1e6)
    events: dict[str, list[Event]] = defaultdict(list)
    for event in runs[-1]:  # what is no time is the same in all runs
        events[event.node].append(event)
    found = []
    for node, each in events.items():
        ms = statistics.median(times[node])
        moved, operations = sum(e.moved for e in each), sum(e.flops or 0 for e in each)
        least, bound = limit.milliseconds(operations, moved)
        found.append(
            NodeCost(
                calls=len(each),
                ms=ms,
                allocated=sum(e.allocated for e in each),
                moved=moved,
                flops=operations,
                name=node,
                op=each[0].op,
                device=each[0].device,
                share_of_peak=least / ms if least and ms else None,
                bound=bound if least else "",
            )
        )
    return tuple(sorted(found, key=lambda cost: (-cost.ms, cost.name)))


def _ops(nodes: Iterable[NodeCost]) -> tuple[OpCost, ...]:
    by_op: dict[str, list[NodeCost]] = defaultdict(list)
    for node in nodes:
        by_op[node.op].append(node)
    found = [OpCost(**asdict(_sum(each)), op=op) for op, each in by_op.items()]
    return tuple(sorted(found, key=lambda cost: (-cost.ms, cost.op)))


def _sum(costs: Iterable[Cost]) -> Cost:
    each = list(costs)
    return Cost(
        calls=sum(cost.calls for cost in each),
        ms=sum(cost.ms for cost in each),
        allocated=sum(cost.allocated for cost in each),
        moved=sum(cost.moved for cost in each),
        flops=sum(cost.flops for cost in each),
    )


def _times(events: Sequence[Event]) -> tuple[float, float, float]:
    """Return the ms from the first start to the last end, those in which one ran, and of all."""
    busy, until = 0, events[0].start if events else 0
    for event in events:  # in the order of their starts
        busy += max(event.end - max(event.start, until), 0)
        until = max(until, event.end)
    span = until - events[0].start if events else 0
    return span / 1e6, busy / 1e6, sum(event.end - event.start for event in events) / 1e6


def _model_flops(job: "Job") -> int:
    """Return the operations of the graph as it was given, with the shapes that are fed."""
    graph_def = GraphDef.FromString(Path(job.model).read_bytes())
    graph = Graph.from_graph_def(graph_def, job.inputs, job.outputs)
    graph.prune()
    for tensor, array in zip(graph.inputs, job.batches[0], strict=True):
        node = graph.producer(tensor)
        if node.op in ("Placeholder", "PlaceholderWithDefault"):
            graph.replace(node, node.with_attrs(shape=array.shape))
    total: int = flops(graph, Shapes(graph))["total"]
    return total


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
        "total": _cost_document(found, total),
        "ops": [_cost_document(found, cost) for cost in found.ops],
        "nodes": [_cost_document(found, cost) for cost in found.nodes],
    }


def _cost_document(found: Profile, cost: Cost) -> dict[str, Any]:
    rates = {"share": found.share(cost), "gflops_per_second": cost.gflops_per_second}
    return asdict(cost) | rates
