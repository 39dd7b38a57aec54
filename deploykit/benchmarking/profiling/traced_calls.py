"""Profiling by traced calls in a separate pass, and their trace file for Perfetto."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling.execution import Event, ExecutedGraph, flops
from deploykit.benchmarking.profiling.profile import (
    NodeCost,
    OpCost,
    Profile,
    StreamCost,
    sum_of,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.transforms.shapes.static_shapes import Shapes


def trace(calls: Mapping[str, Iterable[Event]]) -> dict[str, Any]:
    """Return a trace as a JSON document, with one call of each model by its name.

    Times are in microseconds from the start of each call's first node.
    """
    named: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    processes: dict[tuple[str, str], int] = {}
    for model, events in calls.items():
        ordered = sorted(events, key=lambda event: (event.start, event.end))
        lanes: dict[str, list[int]] = {}  # when each lane of a device is free again
        for event in ordered:
            process = processes.setdefault((model, event.device), len(processes))
            if event.device not in lanes:
                device = event.device.rpartition("/device:")[2]
                named.append(_name("process", f"{model} {device}", process, 0))
            ends = lanes.setdefault(event.device, [])
            lane = next((n for n, end in enumerate(ends) if end <= event.start), len(ends))
            if lane == len(ends):
                ends.append(0)
                named.append(_name("thread", f"lane {lane}", process, lane))
            ends[lane] = event.end
            results.append(
                {
                    "name": event.label or event.op,
                    "cat": event.kind,
                    "ph": "X",
                    "ts": (event.start - ordered[0].start) / 1e3,
                    "dur": (event.end - event.start) / 1e3,
                    "pid": process,
                    "tid": lane,
                    "args": _arguments(event),
                }
            )
    return {"displayTimeUnit": "ms", "traceEvents": named + results}


def _arguments(event: Event) -> dict[str, Any]:
    counts = {
        "allocated_bytes": event.allocated, "moved_bytes": event.moved, "flops": event.flops
    }  # fmt: skip
    return {"node": event.node} | {name: count for name, count in counts.items() if count}


def _name(kind: str, name: str, process: int, lane: int) -> dict[str, Any]:
    return {
        "name": f"{kind}_name",
        "ph": "M",
        "pid": process,
        "tid": lane,
        "args": {"name": name},
    }


RUNS = 10
_TIMED = ("node", "kernel")
_BUSY = (*_TIMED, "copy")
_WARM_UP_RUNS = 3


def profile(run_once: Callable[..., tuple[int, Any]], job: Job, runs: int = RUNS) -> Profile:
    """Profile a job with `runs` traced calls.

    `run_once` runs the job's first batch with RunOptions; it returns the nanoseconds of the call
    and its RunMetadata.

    GraphError: TensorFlow cannot run the graph.
    """
    run_options = start_tensorflow().config.RunOptions
    options = run_options(trace_level=run_options.FULL_TRACE)
    with_graph = run_options(trace_level=run_options.FULL_TRACE, output_partition_graphs=True)
    executed = ExecutedGraph(run_once(with_graph)[1].partition_graphs)
    for _ in range(_WARM_UP_RUNS):
        run_once()
        run_once(options)
    untraced, traced = [], []
    for _ in range(runs):
        untraced.append(run_once()[0] / 1e6)
        time, metadata = run_once(options)
        traced.append((time / 1e6, executed.events(metadata.step_stats)))
    graph = fed_graph(job)
    per_run = [events for _, events in traced]
    nodes = node_costs(per_run)
    times = [_times([e for e in events if e.kind in _BUSY]) for events in per_run]
    median_run = sorted(traced, key=lambda run: run[0])[len(traced) // 2]
    return Profile(
        runs=runs,
        samples=samples_in(job.batches[0]),
        nodes=nodes,
        ops=op_costs(nodes),
        untraced_ms=statistics.median(untraced),
        traced_ms=statistics.median(time for time, _ in traced),
        span_ms=statistics.median(span for span, _, _ in times),
        busy_ms=statistics.median(busy for _, busy, _ in times),
        overlap=statistics.median(all_ / busy if busy else 0.0 for _, busy, all_ in times),
        model_flops=flops(graph, Shapes(graph))["total"],
        uncounted=tuple(sorted({e.node for e in per_run[-1] if e.flops is None})),
        events=tuple(median_run[1]),
        streams=_streams(per_run),
    )


def node_costs(runs: Sequence[Sequence[Event]]) -> tuple[NodeCost, ...]:
    """Return the median cost of each node over the runs, slowest first."""
    times, launches = _medians(runs, _TIMED), _medians(runs, ("launch",))
    events: dict[str, list[Event]] = defaultdict(list)
    for event in runs[-1]:  # everything except times is the same in all runs
        if event.kind in (*_TIMED, "launch"):
            events[event.node or event.op].append(event)
    results = []
    for node, every in events.items():
        # For a kernel without a node in the graph, the kernel itself is all that is known.
        item = [event for event in every if event.kind != "kernel"] or every
        ms = times.get(node, 0.0)
        results.append(
            NodeCost(
                calls=len(item),
                ms=ms,
                launch_ms=launches.get(node, 0.0),
                allocated=sum(e.allocated for e in item),
                moved=sum(e.moved for e in item),
                flops=sum(e.flops or 0 for e in item),
                name=node,
                op=item[0].op,
                device=item[0].device,
            )
        )
    return tuple(sorted(results, key=lambda cost: (-cost.ms, cost.name)))


def _medians(runs: Sequence[Sequence[Event]], kinds: Collection[str]) -> dict[str, float]:
    """Return each node's time in events of these kinds, the median of the runs in milliseconds."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        in_run: dict[str, float] = defaultdict(float)
        for event in run:
            if event.kind in kinds:
                in_run[event.node or event.op] += event.ms
        for node, time in in_run.items():
            times[node].append(time)
    return {node: statistics.median(item) for node, item in times.items()}


def _streams(runs: Sequence[Sequence[Event]]) -> tuple[StreamCost, ...]:
    """Return the work of GPU streams: kernels first, then copies, longest first."""
    every = [[e for e in run if e.kind in ("kernel", "copy")] for run in runs]
    kinds = dict.fromkeys(e.kind if e.kind == "kernel" else e.op for run in every for e in run)
    results = []
    for kind in kinds:
        of_kind = [[e for e in run if kind in (e.kind, e.op)] for run in every]
        results.append(
            StreamCost(
                kind=kind,
                calls=int(statistics.median(map(len, of_kind))),
                ms=statistics.median(sum(e.ms for e in run) for run in of_kind),
                moved=int(statistics.median(sum(e.moved for e in run) for run in of_kind)),
            )
        )
    return tuple(sorted(results, key=lambda item: (item.kind != "kernel", -item.ms)))


def op_costs(nodes: Iterable[NodeCost]) -> tuple[OpCost, ...]:
    """Return the cost of each op, slowest first."""
    by_op: dict[str, list[NodeCost]] = defaultdict(list)
    for node in nodes:
        by_op[node.op].append(node)
    costs = [OpCost(**asdict(sum_of(item)), op=op) for op, item in by_op.items()]
    return tuple(sorted(costs, key=lambda cost: (-cost.ms, cost.op)))


def _times(events: Sequence[Event]) -> tuple[float, float, float]:
    """Return milliseconds of the span, of its active part, and of all events in sum."""
    busy, until = 0, events[0].start if events else 0
    for event in events:  # in the order of their starts
        busy += max(event.end - max(event.start, until), 0)
        until = max(until, event.end)
    span = until - events[0].start if events else 0
    return span / 1e6, busy / 1e6, sum(event.end - event.start for event in events) / 1e6


def fed_graph(job: Job) -> Graph:
    """Return the original graph, with the shapes that are fed."""
    graph_def = GraphDef.FromString(Path(job.model).read_bytes())
    graph = Graph.from_graph_def(graph_def, job.inputs, job.outputs)
    graph.prune()
    for tensor, array in zip(graph.inputs, job.batches[0], strict=True):
        node = graph.producer(tensor)
        if node.op in ("Placeholder", "PlaceholderWithDefault"):
            graph.replace(node, node.with_attrs(shape=array.shape))
    return graph
