"""Profiling a graph that OpenVINO has compiled, by its own times of the ops that it runs."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling.execution import FLOPS_OPS, Event, operands
from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.profiling.traced_calls import fed_graph, node_costs, op_costs
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.shapes.static_shapes import Shapes

if TYPE_CHECKING:
    from deploykit.transforms.engines.executed_ops import Executed
    from deploykit.transforms.engines.openvino_model import OpenVinoModel

_ROUNDS = 5
_BYTES = {"bf16": 2, "f16": 2, "i8": 1, "u8": 1}
"""Bytes of a value by the precision of an op; all others have 4."""


def profile(
    run: Callable[["OpenVinoModel"], int],
    plain: "OpenVinoModel",
    traced: Callable[[], "OpenVinoModel"],
    job: Job,
    runs: int,
) -> Profile:
    """Profile a job in rounds of `runs` traced calls.

    OpenVINO reports the mean time of each op over the calls of a compiled model, in whole
    microseconds. The result has the medians of the rounds, so that a slow call does not matter, and
    excludes the first call of each, which prepares the weights.
    The bytes of a layer are those of its operands and result in the precision of the op. OpenVINO
    drops the names of some fused layers; their operations are unattributed.

    Args:
        run: runs the first batch in a model, and returns the nanoseconds of the call.
        plain: a model without traces.
        traced: compiles the model with traces.
        job: the graph, its inputs and settings.
        runs: number of traced calls of each round.
    """
    times, rounds = [], []
    for model in (traced() for _ in range(_ROUNDS)):
        run(model)
        first = model.executed()
        times += [(run(plain), run(model)) for _ in range(runs)]
        rounds.append([
            replace(op, nanoseconds=_later(before.nanoseconds, op.nanoseconds, runs))
            for before, op in zip(first, model.executed(), strict=True)
        ])  # fmt: skip
    untraced_ms, traced_ms = (statistics.median(item) / 1e6 for item in zip(*times, strict=True))
    executed = [
        replace(ops[0], nanoseconds=int(statistics.median(op.nanoseconds or 0 for op in ops)))
        for ops in zip(*rounds, strict=True)
    ]
    graph = fed_graph(job)
    work = dict(_work(graph, Shapes(graph)))
    events = list(_events(executed, work))
    busy = sum(event.ms for event in events)
    nodes = node_costs([events])
    return Profile(
        runs=_ROUNDS * runs,
        samples=samples_in(job.batches[0]),
        nodes=nodes,
        ops=op_costs(nodes),
        untraced_ms=untraced_ms,
        traced_ms=traced_ms,
        span_ms=max(traced_ms, busy),
        busy_ms=busy,
        overlap=1.0,  # a call runs its ops one after another
        model_flops=sum(flops for flops, _ in work.values() if flops),
        uncounted=tuple(sorted({event.node for event in events if event.flops is None})),
        events=tuple(events),
    )


def _later(first: int | None, mean: int | None, calls: int) -> int:
    """Return the mean of `calls` calls after a first one, from that one and the mean of all."""
    return max(0, round(((calls + 1) * (mean or 0) - (first or 0)) / calls))


def _work(graph: Graph, shapes: Shapes) -> Iterator[tuple[str, tuple[int | None, int]]]:
    """Yield the operations and the number of values of each layer; None, 0 if unknown."""
    for node in graph:
        if node.op in FLOPS_OPS:
            sizes = operands(node, shapes)
            values = 0 if sizes is None else prod(sizes.result) + sum(map(prod, sizes.read))
            yield node.name, (None if sizes is None else sizes.flops, values)


def _events(
    executed: "Iterable[Executed]", work: Mapping[str, tuple[int | None, int]]
) -> Iterator[Event]:
    """Yield the ops of a call, one after another."""
    start = 0
    for number, item in enumerate(executed):
        flops, values = work.get(item.layer, (0, 0))
        end = start + (item.nanoseconds or 0)
        yield Event(
            node=item.layer or " ".join([*item.nodes[:1], item.kind, str(number)]),
            op=f"{item.kind} {item.precision}",
            device="CPU",
            start=start,
            end=end,
            moved=values * _BYTES.get(item.precision, 4),
            flops=flops,
        )
        start = end
