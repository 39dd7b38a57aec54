"""Times of each layer in OpenVINO, in float32 and int8, and of the conversions between layers.

OpenVINO fuses ops: it quantizes in the op that produces a tensor, and dequantizes in the layer that
produces codes. So a conversion costs the time of its executed ops, mostly none.
"""

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from deploykit.benchmarking.engines.runner import compiling
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.rounds import Advance
from deploykit.benchmarking.run_config import RunConfig
from deploykit.quantization.timing.layer_times import (
    FEWEST,
    LEAST,
    USUAL,
    LayerTimes,
    Line,
    PartTimes,
    Times,
    job_of,
)
from deploykit.transforms.engines.engine_session import compiled_for
from deploykit.transforms.engines.engines import OPENVINO, TITLES
from deploykit.transforms.engines.executed_ops import Executed
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.int8.stored_codes import FROM_FLOATS, ROUNDS, SHIFTED
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, producer_name
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.samples import Data

CALLS = 10  # calls of a compiled graph per round
_FREE = Line(0.0, 0.0)


def openvino_times(
    graph: Graph,
    codes: Graph,
    plan: Plan,
    settings: RunConfig,
    *,
    data: Data | None = None,
    rounds: int,
    advance: Advance = lambda name, count: None,
    decided: Callable[[LayerTimes], bool] = lambda result: False,
) -> LayerTimes:
    """Measure each part of a plan; in each round, both graphs are compiled and run.

    `codes` is the graph that `quantize_codes` made from `graph` with `plan`. The other arguments
    and the errors are those of `layer_times`.
    """
    feeds = batches(graph, settings.batch, {}, data)
    used: dict[str, list[dict[str, int]]] = {"float": [], "int8": []}

    def at(share: float) -> Times:
        in_float, in_codes = (_quantile(used[name], share) for name in ("float", "int8"))
        return Times(
            parts=_parts(graph, plan, in_float, in_codes),
            quantized=_rounded(codes, in_codes),
            dequantized={},
            quantize=_FREE,
            dequantize=_FREE,
            elements={},
            onednn_is_on=True,
        )

    def found() -> LayerTimes:
        return LayerTimes(at(LEAST), at(USUAL))

    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        jobs = {
            name: job_of(Path(folder, f"{name}.pb"), item, feeds, settings)
            for name, item in (("float", graph), ("int8", codes))
        }
        with closing(Worker(f"{__name__}:Profiles", jobs, runs=TITLES[OPENVINO])) as worker:
            for number in range(1, rounds + 1):
                for name in random.sample([*jobs], len(jobs)):
                    advance(name, rounds * len(jobs))
                    used[name].append(_by_node(worker.ask("taken", name, CALLS)))
                if not number % FEWEST and decided(found()):
                    break
    return found()


class Profiles:
    """Compiles graphs again for each round, as times depend on where the weights are in memory."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        """Store the jobs by name."""
        self._jobs = jobs

    def taken(self, name: str, calls: int) -> list[Executed]:
        """Return the executed ops of a graph, with mean times over the given number of calls."""
        job = self._jobs[name]
        feeds = [
            {normal(tensor): array for tensor, array in zip(job.inputs, batch, strict=True)}
            for batch in job.batches
        ]
        graph_def = GraphDef.FromString(Path(job.model).read_bytes())
        how = replace(compiling(job.settings), profiles=True)
        model = compiled_for(graph_def, feeds[0], job.outputs, how)
        for number in range(calls):
            model.run(feeds[number % len(feeds)])
        return [*model.executed()]


def _by_node(executed: Sequence[Executed]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for item in executed:
        if item.nodes:
            node = item.layer or item.nodes[0]
            numbers[node] = numbers.get(node, 0) + (item.nanoseconds or 0)
    return numbers


def _quantile(rounds: Sequence[Mapping[str, int]], share: float) -> dict[str, int]:
    names = dict.fromkeys(name for round_ in rounds for name in round_)
    used = {name: [round_.get(name, 0) for round_ in rounds] for name in names}
    return {name: round(float(np.quantile(item, share))) for name, item in used.items()}


def _of(used: Mapping[str, int], *nodes: str) -> int:
    """Return the nanoseconds of nodes; a fused op counts for its layer or its first node."""
    return sum(used.get(node, 0) for node in nodes)


def _parts(
    graph: Graph, plan: Plan, in_float: Mapping[str, int], in_codes: Mapping[str, int]
) -> dict[str, PartTimes]:
    """Return the times of each part, summed over its nodes in each graph."""
    results = {}
    for layer, chain in plan.chains.items():
        nodes = [node.name for node in chain.nodes]
        made = _of(in_float, *nodes)
        results[layer] = PartTimes(made, made, _of(in_codes, *nodes, f"{nodes[-1]}/float"))
    for name in plan.passing:
        made = _of(in_float, name)
        results[name] = PartTimes(made, made, _of(in_codes, name))
    return results


def _rounded(codes: Graph, in_codes: Mapping[str, int]) -> dict[str, int]:
    """Return the time to quantize each float32 tensor, if separate ops did it."""
    numbers: dict[str, int] = {}
    for node in codes:
        kind, used = node.attr(ROUNDS), _of(in_codes, node.name)
        if kind not in (FROM_FLOATS, SHIFTED):
            continue
        tensor = node.data_inputs[0]
        if kind == SHIFTED:  # between two Subs
            readers = [reader.name for reader in codes.readers(node.name)]
            used += _of(in_codes, producer_name(tensor), *readers)
            tensor = codes.producer(tensor).data_inputs[0]
        numbers[tensor] = numbers.get(tensor, 0) + used
    return numbers
