"""Compares a graph in another execution engine with TensorFlow, on samples and by known limits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from deploykit.transforms.common.errors import (
    CrashError,
    Error,
    GraphError,
    LimitError,
    UnverifiedError,
    VerificationError,
)
from deploykit.transforms.engines.engines import OPENVINO, check_engine
from deploykit.transforms.engines.openvino_model import DEFAULT, Compiling
from deploykit.transforms.ir.functions import Library, reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.differences import (
    CODES_BAR,
    FLOAT_BAR,
    MAX_LOST_DB,
    Answered,
    Bars,
    QualityBar,
    departure,
    nothing_compared,
    signal_to_noise,
)
from deploykit.verification.engine_feeds import (
    EngineCase,
    EngineFeeds,
    GraphRunner,
    case_of,
    engine_feeds,
    reference_cases,
)
from deploykit.verification.samples import Data
from deploykit.verification.synthetic.sample_inputs import type_and_shape
from deploykit.verification.tolerance import before_softmax, choices, default_tolerance

_NO_NUMBERS = ("string", "resource", "variant")
_WIDE = ("int64", "uint32", "uint64")
_PRODUCTS = frozenset({"Cumprod", "LeftShift", "MatMul", "Mul", "Pow", "Prod", "Square"})
_DRAWS = re.compile(r"Multinomial|Parameterized\w+|Random\w+|TruncatedNormal")
_SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})  # they do not read values


def unfit(graph: Graph) -> str:
    """Return why OpenVINO cannot run a graph correctly, or an empty string.

    It has no strings. For duplicate indices, its ScatterNd keeps the last value instead of the sum.
    It computes integers in 32 bits on CPUs, so int64 products such as hashes are only right for
    small ids. Its random numbers differ, with a seed at the latest from the second run.
    """
    for kind, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            type_ = type_and_shape(graph, tensor)[0]
            if type_ in _NO_NUMBERS:
                op = graph[producer_name(tensor)].op
                return f"{kind} '{tensor}' ({op}) has dtype {type_}, which OpenVINO does not have"
    for node in graph:
        if node.op == "ScatterNd" and graph.constant(node.data_inputs[0]) is None:
            return (
                f"node '{node.name}' (ScatterNd) sums values with the same index, but OpenVINO "
                "keeps only the last"
            )
    for name, op in ops_of(graph):
        if _DRAWS.fullmatch(op):
            return f"node '{name}' ({op}) draws random numbers, which differ between engines"
    if (result := _product(graph)) is not None:
        return (
            f"node '{result.name}' ({result.op}) multiplies {result.attr('T')} that depend on "
            "inputs, but OpenVINO computes integers in 32 bits"
        )
    return ""


def ops_of(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the name and op of each node, including those in functions that may be called."""
    yield from ((node.name, node.op) for node in graph)
    library = Library(graph)
    for name in reachable(graph):
        yield from ((node.name, node.op) for node in library.functions[name].node_def)


def _product(graph: Graph) -> Node | None:
    """Return a node that multiplies wide integers that depend on input values, or None."""
    live = graph.ancestors(map(producer_name, graph.outputs))
    waiting = [name for name in map(producer_name, graph.inputs) if name in live]
    seen = set(waiting)
    readers: dict[str, list[str]] = {}
    for name in live:
        for tensor in graph[name].data_inputs:
            readers.setdefault(producer_name(tensor), []).append(name)
    while waiting:
        for name in readers.get(waiting.pop(), ()):
            node = graph[name]
            if name in seen or node.op in _SIZES:
                continue
            if node.op in _PRODUCTS and node.attr("T") in _WIDE:
                return node
            seen.add(name)
            waiting.append(name)
    return None


_TENSORFLOW = "deploykit.transforms.runtime.session:Session"
_OPENVINO = "deploykit.transforms.engines.engine_session:OpenVinoSession"
_ENOUGH_DB = 30.0
"""SQNR from codes that round differently now and then; a better one is not a loss."""


@dataclass(frozen=True)
class EngineCheck:
    """The result of comparing an engine with TensorFlow."""

    refused: str = ""
    """Why the engine cannot run the graph, with the names of unsupported ops."""
    departs: str = ""
    """Where its outputs differ from TensorFlow's, in a sentence."""
    not_compared: str = ""
    """Why the outputs could not be compared."""
    cases: Sequence[EngineCase] = ()
    bars: Bars = field(default_factory=dict)
    """Threshold of each output on any machine; None if its values are only compared here."""
    left_out: Sequence[str] = ()
    """Skipped batches, with reasons."""
    takes_empty: bool = True
    """Whether the engine accepts an empty batch; otherwise a row of zeros replaces it."""
    sqnr_db: Mapping[str, float] = field(default_factory=dict)
    """SQNR of each float output, with TensorFlow's outputs as the signal."""

    @property
    def is_right(self) -> bool:
        """Whether outputs were compared and match."""
        return not self.why

    @property
    def why(self) -> str:
        """Why the engine must not run the graph, in a sentence; empty if it may."""
        return self.refused or self.departs or self.not_compared

    def require(self) -> None:
        """Raise an error if the engine's outputs do not match.

        GraphError: it refuses the graph. VerificationError: its outputs differ. UnverifiedError:
        nothing was compared.
        """
        if self.refused:
            raise GraphError("engine-refuses", reason=self.refused)
        if self.departs:
            raise VerificationError("engine-outputs-differ", reason=self.departs)
        if self.not_compared:
            raise UnverifiedError("engine-not-compared", reason=self.not_compared)


def compared_in(
    graph: Graph,
    compiling: Compiling = DEFAULT,
    *,
    engine: str = OPENVINO,
    data: Data | None = None,
    feeds: EngineFeeds | None = None,
    float_graph: Graph | None = None,
) -> EngineCheck:
    """Compare all outputs of an engine with TensorFlow, at batch 0, 1 and 3.

    Args:
        graph: the graph that both run, from its inputs to its outputs.
        compiling: compile options of the engine.
        engine: name of the engine.
        data: samples of the graph; default: synthetic ones.
        feeds: feeds to use instead of these batches.
        float_graph: float graph of an int8 graph, with the same inputs and outputs.

    GraphError: the engine is not available here, or the data does not fit the graph.
    """
    check_engine(engine)
    if why := unfit(graph):
        return EngineCheck(refused=why)
    reason = ""
    if feeds is None:
        feeds, reason = engine_feeds(graph, data)
    if feeds is None:
        return EngineCheck(not_compared=reason)
    with ExitStack() as stack:
        results = [
            stack.enter_context(closing(item))
            for item in (
                _InChild("TensorFlow", _TENSORFLOW, graph),
                _InChild("OpenVINO", _OPENVINO, graph, compiling),
            )
        ]
        floats = None
        if float_graph is not None:
            floats = _InChild("TensorFlow", _TENSORFLOW, float_graph)
            stack.enter_context(closing(floats))
        return compared(graph, (results[0], results[1]), feeds, bar_of(graph, compiling), floats)


def bar_of(graph: Graph, compiling: Compiling = DEFAULT) -> QualityBar:
    """Return the threshold for the outputs of an engine: see `equivalence.py`.

    It is looser for a graph that computes in 16-bit floats in TensorFlow.
    """
    rounds = any(op.startswith("FakeQuant") for _, op in ops_of(graph))
    if rounds or compiling.precision == "bf16":
        return CODES_BAR
    assert FLOAT_BAR.tolerance is not None
    return replace(FLOAT_BAR, tolerance=max(FLOAT_BAR.tolerance, default_tolerance(graph)))


def compared(
    graph: Graph,
    runners: tuple[GraphRunner, GraphRunner],
    feeds: EngineFeeds,
    bar: QualityBar,
    floats: GraphRunner | None = None,
) -> EngineCheck:
    """Compare an engine with TensorFlow, given a runner of each.

    Args:
        graph: the graph that both run.
        runners: runners of TensorFlow and the engine.
        feeds: the feeds of both.
        bar: threshold for float outputs.
        floats: TensorFlow runner of the float graph of an int8 graph.
    """
    tensorflow, engine = runners
    cases, left_out = reference_cases(graph, tensorflow, feeds)
    if not cases:
        return EngineCheck(not_compared=f"TensorFlow cannot run it on {left_out[0]}")
    stages = choices(graph)
    behind = {t for t in graph.outputs if stages and producer_name(t) in stages[0].nodes}
    bars: Bars = {name: _bar(graph, name, bar) for name in graph.outputs}
    judged: Bars = {name: None if name in behind else item for name, item in bars.items()}
    takes_empty = True
    if cases[-1].is_row and (why := _not_empty(graph, engine, cases[-1], bars)):
        takes_empty = False
        left_out.append(f"batch 0, replaced by a row of zeros: {why}")
        cases = cases[:-1]
    answered = list[Answered]()
    for case in cases:
        try:
            result = case_of(graph, engine, case.feeds)
        except Error as error:
            return _failed(error, case, bool(answered))
        answered.append(Answered(case.batch, case.expected, result.expected))
    text = departure(answered, bars)
    if text and behind:
        text = departure(answered, judged) or _around_choices(graph, runners, cases, bar)
        bars = judged
    if text and _changes(graph, tensorflow, cases):
        return EngineCheck(not_compared="TensorFlow itself gives different values in each run")
    if not text and (why := nothing_compared(answered, dict.fromkeys(bars, bar))):
        return EngineCheck(not_compared=why)
    if not text and floats is not None:
        text = _lost(graph, floats, answered, cases, judged)
    if bar.min_sqnr is not None:  # on another machine, rounding may change a choice
        bars = judged
    noise = signal_to_noise(answered, bars)
    return EngineCheck("", text, "", cases, bars, left_out, takes_empty, noise)


def _not_empty(graph: Graph, engine: GraphRunner, case: EngineCase, bars: Bars) -> str:
    """Return why an engine cannot run an empty batch, or an empty string."""
    try:
        result = case_of(graph, engine, case.feeds)
    except Error as error:
        return str(error)
    return departure([Answered(0, case.expected, result.expected)], bars)


def _failed(error: Error, case: EngineCase, has_answered: bool) -> EngineCheck:
    """Interpret an engine's error: it refuses the graph, or only this batch."""
    if has_answered:
        return EngineCheck(departs=f"at batch {case.batch}, {error}")
    return EngineCheck(refused=str(error))


def _bar(graph: Graph, name: str, bar: QualityBar) -> QualityBar:
    """Return the threshold of an output; the noise of a Softmax is evaluated on its input."""
    is_noise = bar.min_sqnr is not None
    return replace(bar, of_logarithm=is_noise and before_softmax(graph, name) is not None)


def _around_choices(
    graph: Graph,
    runners: tuple[GraphRunner, GraphRunner],
    cases: Sequence[EngineCase],
    bar: QualityBar,
) -> str:
    """Return where tensors differ before choices, or after them from the same values."""
    stages = choices(graph)
    results = [name for name in graph.outputs if producer_name(name) in stages[0].nodes]
    # What each run compares; the next one is fed with it.
    compared = [(stage.tensors, {n: _bar(graph, n, bar) for n in stage.tensors})
                for stage in stages]  # fmt: skip
    compared.append((results, dict.fromkeys(results, FLOAT_BAR)))
    for case in cases:
        if not case.batch:
            continue  # there is nothing to choose from
        fed = case.feeds
        try:
            for tensors, bars in compared:
                first, second = (runner.run(tensors, fed) for runner in runners)
                sides = [dict(zip(tensors, item, strict=True)) for item in (first, second)]
                text = departure([Answered(case.batch, sides[0], sides[1])], bars)
                if text:
                    return text
                fed = fed | sides[0]
        except Error as error:
            return f"its choices cannot be compared: {error}"
    return ""


def _changes(graph: Graph, tensorflow: GraphRunner, cases: Sequence[EngineCase]) -> bool:
    """Return whether TensorFlow gives different values in a second run."""
    case = cases[0]
    again = case_of(graph, tensorflow, case.feeds)
    bars = dict.fromkeys(graph.outputs, FLOAT_BAR)
    return bool(departure([Answered(case.batch, case.expected, again.expected)], bars))


def _lost(
    graph: Graph,
    floats: GraphRunner,
    answered: Sequence[Answered],
    cases: Sequence[EngineCase],
    bars: Bars,
) -> str:
    """Return where an engine is noisier than TensorFlow, relative to the float graph."""
    sides: tuple[list[Answered], list[Answered]] = ([], [])
    for case, item in zip(cases, answered, strict=True):
        if case.batch:
            expected = case_of(graph, floats, case.feeds).expected
            sides[0].append(Answered(case.batch, expected, item.expected))
            sides[1].append(Answered(case.batch, expected, item.result))
    retained, result = (signal_to_noise(side, bars) for side in sides)
    for name, db in result.items():
        if db < min(retained[name] - MAX_LOST_DB, _ENOUGH_DB):
            return (
                f"output '{name}': SQNR {db:.1f} dB against the float model, while TensorFlow "
                f"has {retained[name]:.1f} dB; at most {MAX_LOST_DB:g} dB may be lost"
            )
    return ""


class _InChild:
    """A runner in a child process, which is restarted after a crash."""

    def __init__(self, name: str, kind: str, graph: Graph, *more: object) -> None:
        self._name = name
        self._kind = kind
        self._arguments = (b"".join(graph.serialized()), *more)
        self._worker = self._started()

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the values of tensors; a crash of the child process raises an Error."""
        try:
            arrays: list[Array] = self._worker.ask("run", list(fetches), dict(feeds))
        except (CrashError, LimitError):
            self._worker.close()
            self._worker = self._started()
            raise
        return arrays

    def _started(self) -> Worker:
        """Start it with the system's allocator: OpenVINO crashes with preloaded ones."""
        system = {"LD_PRELOAD": None}
        return Worker(self._kind, *self._arguments, forced=system, runs=self._name, kept=True)

    def close(self) -> None:
        """Stop the process."""
        self._worker.close()
