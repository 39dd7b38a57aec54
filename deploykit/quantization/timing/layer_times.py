"""Times of each layer in float32 and int8 in TensorFlow, and of the ops between layers."""

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling.execution import ExecutedGraph
from deploykit.benchmarking.rounds import Advance, spill
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.transforms.shapes.static_shapes import Shapes
from deploykit.transforms.use_onednn_kernels import KERNELS, use_onednn_kernels
from deploykit.verification.samples import Data

WARM_UP_CALLS = 3


class Tracer:
    """Traces graphs in sessions with Grappler, which may fuse nodes, as in a benchmark.

    GraphError: as in TensorFlowRunner.
    """

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        """Load the graphs by name, and warm each up, so that its memory is allocated."""
        self._runners = {name: TensorFlowRunner(job) for name, job in jobs.items()}
        options = start_tensorflow().config.RunOptions
        self._options = options(trace_level=options.FULL_TRACE)
        for name in jobs:
            self.trace(name, WARM_UP_CALLS)

    def ready(self) -> None:
        """Do nothing; the call returns once the graphs are loaded."""

    def trace(self, name: str, calls: int) -> list[dict[str, int]]:
        """Return, for each traced call, the nanoseconds of each node that ran."""
        runner, result = self._runners[name], []
        for _ in range(calls):
            runner.run_once()  # the state of caches and threads between two calls
            _, metadata = runner.run_once(self._options)
            times: Counter[str] = Counter()
            for event in ExecutedGraph(()).events(metadata.step_stats):
                times[event.node] += event.end - event.start
            result.append(dict(times))
        return result

    def onednn(self, name: str) -> bool:
        """Return whether TensorFlow runs plain ops of a graph on oneDNN here."""
        return bool(self._runners[name].facts()["onednn"])


ROUNDS = 12
FEWEST = 4  # rounds between two checks whether the times are conclusive
CALLS = 2  # traced calls per round
LEAST, USUAL = 0.1, 0.5
"""Quantiles of the traced calls."""
FAR_AHEAD = 1.5  # speedup from which a benchmark of whole graphs has a foregone result
PROBED = (1_000, 30_000, 300_000, 1_000_000)  # elements
FLOAT, CODES = DType("float32"), DType("quint8")
_SCALED = {"mode": "SCALED"}

_Calls = dict[str, list[dict[str, int]]]
"""Nanoseconds of each node, by graph and call."""


@dataclass(frozen=True)
class Line:
    """A linear model of a time over the number of elements."""

    fixed_ns: float
    ns_each: float

    def at(self, elements: int) -> int:
        """Return the time for a number of elements, in integer nanoseconds."""
        return round(self.fixed_ns + self.ns_each * elements)


@dataclass(frozen=True)
class PartTimes:
    """Nanoseconds of a layer with its chain, or of an op that passes int8 codes on."""

    eigen: int
    """Time in TensorFlow without oneDNN."""
    onednn: int
    """Time on oneDNN's float32 kernels, in the current environment."""
    int8: int


@dataclass(frozen=True)
class Times:
    """Times of layers and conversions, at one quantile of the calls."""

    parts: Mapping[str, PartTimes]
    """Times by layer, or by op that passes int8 codes on."""
    quantized: Mapping[str, int]
    """Nanoseconds of each QuantizeV2 in the int8 graph, by tensor."""
    dequantized: Mapping[str, int]
    """Nanoseconds of each Dequantize in the int8 graph, by tensor."""
    quantize: Line
    dequantize: Line
    elements: Mapping[str, int]
    """Number of elements of each tensor with a known shape."""
    onednn_is_on: bool
    """Whether TensorFlow runs plain ops on oneDNN in this environment."""

    def float_ns(self, part: str) -> int:
        """Return the time of a part in float32 (ns): on oneDNN, or the faster if both can run."""
        times = self.parts[part]
        return times.onednn if self.onednn_is_on else min(times.eigen, times.onednn)

    def quantize_ns(self, tensor: str) -> int:
        """Return the nanoseconds to quantize a tensor."""
        measured = self.quantized.get(tensor)
        return self.quantize.at(self.elements.get(tensor, 0)) if measured is None else measured

    def dequantize_ns(self, tensor: str) -> int:
        """Return the nanoseconds to dequantize a tensor."""
        measured = self.dequantized.get(tensor)
        return self.dequantize.at(self.elements.get(tensor, 0)) if measured is None else measured


@dataclass(frozen=True)
class LayerTimes:
    """Measured times of layers."""

    least: Times
    """Times at the 10 % quantile, which other load on the machine hardly affects."""
    usual: Times
    """Median times."""

    @property
    def onednn_is_far_ahead(self) -> bool:
        """Whether the float32 layers take far longer on Eigen, at both quantiles."""
        return all(
            sum(part.eigen for part in item.parts.values())
            > FAR_AHEAD * sum(part.onednn for part in item.parts.values())
            for item in (self.least, self.usual)
        )


def layer_times(
    graph: Graph,
    int8: Graph,
    plan: Plan,
    settings: RunConfig,
    *,
    data: Data | None = None,
    rounds: int = ROUNDS,
    advance: Advance = lambda name, count: None,
    decided: Callable[[LayerTimes], bool] = lambda result: False,
) -> LayerTimes:
    """Measure each part of a plan; the graphs are traced interleaved, round by round.

    Args:
        graph: the float32 graph.
        int8: the int8 graph made from it with `plan`.
        plan: which layers are int8.
        settings: the batch, the threads and the environment.
        data: as in `benchmark`.
        rounds: number of measurement rounds.
        advance: called before each step with its name and the number of steps.
        decided: called after every FEWEST rounds; if true, the measurement stops.

    GraphError: as in `benchmark`, or TensorFlow cannot run a graph. CrashError: it died.
    """
    onednn = with_onednn_kernels(graph)
    feeds, probed = batches(graph, settings.batch, {}, data), _conversions()
    ramps = tuple(np.linspace(0, 1, size, dtype=np.float32) for size in PROBED)
    graphs = {
        "Eigen": (graph, feeds, replace(settings, onednn=False)),
        "oneDNN": (onednn, feeds, settings),
        "int8": (int8, feeds, settings),
        "conversions": (probed, (ramps,), settings),
    }
    elements = _elements(graph, feeds[0])

    def at(share: float, calls: _Calls, is_on: bool) -> Times:
        times = {name: _quantiles(item, share) for name, item in calls.items()}
        quantized, dequantized = _converted(int8, times["int8"])
        return Times(
            parts=_parts(graph, onednn, plan, times),
            quantized=quantized,
            dequantized=dequantized,
            quantize=_line(times["conversions"], "quantized"),
            dequantize=_line(times["conversions"], "floats"),
            elements=elements,
            onednn_is_on=is_on,
        )

    def found(calls: _Calls, is_on: bool) -> LayerTimes:
        return LayerTimes(at(LEAST, calls, is_on), at(USUAL, calls, is_on))

    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        jobs = {name: job_of(Path(folder, f"{name}.pb"), *item) for name, item in graphs.items()}
        return _traced(jobs, rounds, advance, found, decided)


def job_of(
    path: Path, graph: Graph, feeds: tuple[tuple[Array, ...], ...], settings: RunConfig
) -> Job:
    """Write a graph to a file, and return the job to measure it."""
    spill(graph, path)
    return Job(str(path), graph.inputs, graph.outputs, feeds, settings)


def with_onednn_kernels(graph: Graph) -> Graph:
    """Return a float32 graph on oneDNN kernels, regardless of the environment."""
    result = graph.copy()
    use_onednn_kernels(result)
    result.prune()
    return result


def _traced(
    jobs: Mapping[str, Job],
    rounds: int,
    advance: Advance,
    function: Callable[[_Calls, bool], LayerTimes],
    decided: Callable[[LayerTimes], bool],
) -> LayerTimes:
    """Trace the jobs; return `function` of their calls and of whether plain ops run on oneDNN.

    Jobs with the same settings share a process.
    """
    calls: _Calls = {name: [] for name in jobs}
    steps = rounds * len(jobs)
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for how in dict.fromkeys(job.settings for job in jobs.values()):
            kind = "deploykit.quantization.timing.layer_times:Tracer"
            own = {name: job for name, job in jobs.items() if job.settings == how}
            worker = Worker(kind, own, forced=how.environment)
            stack.callback(worker.close)
            workers |= dict.fromkeys(own, worker)
        for name, worker in workers.items():  # all processes start at once; "ready" waits for each
            advance(f"load {name}", steps + len(jobs))
            worker.ask("ready")
        is_on = workers["int8"].ask("onednn", "int8")
        for number in range(1, rounds + 1):
            for name, worker in workers.items():
                advance(name, steps + len(jobs))
                calls[name] += worker.ask("trace", name, CALLS)
            if not number % FEWEST and decided(function(calls, is_on)):
                break
    return function(calls, is_on)


def _quantiles(calls: Sequence[Mapping[str, int]], share: float) -> dict[str, int]:
    """Return the quantile `share` of the times of each node."""
    times: dict[str, list[int]] = {}
    for call in calls:
        for node, time in call.items():
            times.setdefault(node, []).append(time)
    return {node: round(float(np.quantile(item, share))) for node, item in times.items()}


def _parts(
    graph: Graph, onednn: Graph, plan: Plan, times: Mapping[str, Mapping[str, int]]
) -> dict[str, PartTimes]:
    """Return the times of each part, summed over its nodes in each graph."""
    # Match kernels by input: a kernel may include a sum that belongs to another int8 layer.
    private = {op for op, _ in KERNELS.values()}
    kernels = {node.inputs[:2]: node.name for node in onednn if node.op in private}

    def of(name: str, *nodes: str) -> int:
        return sum(times[name].get(node, 0) for node in nodes)

    results = {}
    for layer, chain in plan.chains.items():
        nodes = [node.name for node in chain.nodes]  # a fused node has one of these names
        apart = [
            name
            for node in chain.nodes
            if (name := node.name) in onednn and onednn[name].op == node.op
        ]
        kernel = kernels.get(graph[layer].inputs[:2])
        last = f"{nodes[-1]}/codes" if nodes[-1] in plan.forms else nodes[-1]
        results[layer] = PartTimes(
            of("Eigen", *nodes),
            of("oneDNN", *apart, *([kernel] if kernel else [])),
            of("int8", last, f"{layer}/zeros/uint8"),
        )
    for name in plan.passing:
        codes = of("int8", f"{name}/codes", f"{name}/codes/uint8")
        results[name] = PartTimes(of("Eigen", name), of("oneDNN", name), codes)
    return results


def _converted(int8: Graph, times: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the times of the conversions that ran, by the float32 tensor they read or produce."""
    quantized: dict[str, int] = {}
    dequantized: dict[str, int] = {}
    for node in int8:
        if node.op == "QuantizeV2" and node.name in times:
            tensor = node.inputs[0]
            quantized[tensor] = quantized.get(tensor, 0) + times[node.name]
        elif node.op == "Dequantize" and node.name in times:
            dequantized[node.name] = times[node.name]
    return quantized, dequantized


def _elements(graph: Graph, feeds: Sequence[Array]) -> dict[str, int]:
    """Return the number of elements of each tensor whose shape follows from the feeds."""
    fed = graph.copy()
    for tensor, array in zip(fed.inputs, feeds, strict=True):
        node = fed.producer(tensor)
        if node.op in FEEDABLE_OPS:
            fed.replace(node, node.with_attrs(shape=array.shape))
    shapes = Shapes(fed)
    known = {node.name: shapes.full_shape(node.name) for node in fed}
    return {name: math.prod(shape) for name, shape in known.items() if shape is not None}


def _conversions() -> Graph:
    """Return a graph that quantizes and dequantizes inputs of the sizes PROBED, one at a time."""
    ends = [
        Node.constant(name, np.array(value, np.float32))
        for name, value in (("low", 0), ("high", 1))
    ]
    nodes, before = [*ends], list[str]()
    for number, size in enumerate(PROBED):
        x = Node(f"x_{number}", "Placeholder").with_attrs(dtype=FLOAT, shape=(size,))
        codes = Node(f"quantized_{number}", "QuantizeV2", (x.name, "low", "high", *before))
        floats = Node(f"floats_{number}", "Dequantize", (codes.name, "low", "high"))
        nodes += [x, codes.with_attrs(T=CODES, **_SCALED), floats.with_attrs(T=CODES, **_SCALED)]
        before = [f"^{floats.name}"]  # one after the other, as parallel ops slow each other
    count = range(len(PROBED))
    return Graph(nodes, [f"x_{n}" for n in count], [f"floats_{n}" for n in count])


def _line(times: Mapping[str, int], name: str) -> Line:
    """Fit a line with the least squares of relative errors; both coefficients are at least 0."""
    sizes = np.array(PROBED, np.float64)
    measured = np.array([times[f"{name}_{number}"] for number in range(len(PROBED))], np.float64)
    rows = np.stack([np.ones(len(sizes)), sizes], 1) / measured[:, None]
    fixed, item = np.linalg.lstsq(rows, np.ones(len(sizes)))[0]
    return Line(max(float(fixed), 0.0), max(float(item), 0.0))
