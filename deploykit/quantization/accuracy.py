"""Quality of graphs against a float32 graph: SQNR, top-1 agreement, and accuracy with labels.

A child process stores the float32 graph's outputs on held-out samples, and runs one graph after the
other on them. It compares the input of a final Softmax instead of its output.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from deploykit.quantization.metrics import LOWER_IS_BETTER, Score, metric_named, with_interval
from deploykit.transforms.common.documents import IfSet, OrNull, Written
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError, counts_differ
from deploykit.transforms.engines.engine_session import OpenVinoSession, session_in
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.differences import CODES_BAR, MAX_LOST_DB, Sums
from deploykit.transforms.runtime.session import Session
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.verification.confidence import (
    FEWEST,
    NORMAL_95,
    Decibels,
    GroupCloseness,
    agreeing,
    closeness_by_group,
    lower_bound_db,
    wilson,
    wilson_of_groups,
)
from deploykit.verification.coverage import Answers, WeakClass, answers_of, weak_classes
from deploykit.verification.feeds import Layout, samples_first, samples_in
from deploykit.verification.samples import Dataset
from deploykit.verification.synthetic.sample_inputs import paired_inputs
from deploykit.verification.tolerance import (
    compared_outputs,
    compared_tensors,
    maker,
    paired_outputs,
)


@dataclass(frozen=True)
class Judgement:
    """Comparison of a graph with the float32 graph on the same samples."""

    sqnr_db: Annotated[float, Written(digits=3)]
    """The smallest SQNR of the outputs in dB; inf: all equal, -inf: one has invalid values."""
    agreement: float | None
    """Top-1 agreement, a share of samples; None: no output is [samples, classes]."""
    samples: int
    metric: OrNull[str] = ""
    """The name of the metric; empty: not measured, as there are no labels."""
    before: Annotated[Score | None, Written(by=with_interval)] = None
    after: Annotated[Score | None, Written(by=with_interval)] = None
    sqnr_low_db: Decibels = None
    """The lower end of the 95 % confidence interval of SQNR; None: not available."""
    agreement_interval: tuple[float, float] | None = None
    """The 95 % confidence interval of the agreement."""
    independent: IfSet[int | None] = None
    """Number of groups of related samples, which the intervals count; None: independent samples."""
    groups: tuple[GroupCloseness, ...] = ()
    """The comparison within each group of samples; empty: the data have no groups."""
    weak_classes: tuple[WeakClass, ...] = ()
    """Classes that the graph never predicts right, or significantly less often than float32."""

    @property
    def certain_db(self) -> float:
        """The 95 % lower bound of the SQNR in dB, or the SQNR if it has none."""
        return self.sqnr_db if self.sqnr_low_db is None else self.sqnr_low_db

    @property
    def drop(self) -> float | None:
        """The loss in the metric, in its unit; negative: it improved. None: not measured."""
        if self.before is None or self.after is None:
            return None
        drop = self.before.value - self.after.value
        return -drop if self.metric in LOWER_IS_BETTER else drop


@dataclass(frozen=True)
class EngineComparison:
    """The SQNR of a graph's output in TensorFlow and in another engine, in dB."""

    emulated_db: float
    """SQNR of TensorFlow's output against the float32 graph."""
    found_db: float
    """SQNR of the engine's output against the float32 graph."""
    apart_db: float
    """SQNR of the engine's output against TensorFlow's."""

    @property
    def departs(self) -> bool:
        """Whether the engine's output differs from TensorFlow's.

        Its SQNR against the float32 graph is clearly lower, or it differs from TensorFlow's output
        by more than single codes rounded differently explain.
        """
        near = min(self.emulated_db, float(CODES_BAR.min_sqnr or 0))
        return self.found_db < self.emulated_db - MAX_LOST_DB or self.apart_db < near


class Scorer:
    """Runs a float32 graph once, and scores other graphs against it.

    GraphError: TensorFlow refuses the graph or the samples.
    """

    def __init__(
        self,
        graph_def: bytes,
        outputs: Sequence[str],
        tensors: Sequence[str],
        feeds: Sequence[Mapping[str, Array]],
        labels: Array | None,
        metric: str,
        groups: Array | None = None,
        related: Array | None = None,
    ) -> None:
        """Run the graph on the feeds; `tensors` are compared, and `metric` may be ''.

        `groups` are the groups of the samples, `related` those of related samples.

        GraphError: the metric cannot be imported, raises, or does not fit the labels.
        """
        self._metric_name = metric
        self._metric = metric_named(metric) if metric else None  # before TensorFlow's slow start
        self._outputs, self._feeds, self._labels = list(outputs), feeds, labels
        self._groups, self._related = groups, related
        session, start = Session(graph_def), time.monotonic()
        self._expected = _run(session, list(tensors), {}, feeds)
        self._seconds = time.monotonic() - start
        # SQNR needs floating-point outputs: integers are right or wrong.
        if not any(array.dtype.kind == "f" for array in self._expected.values()):
            raise GraphError("no-float-output")
        self._samples = samples_in(feeds)
        self._before = self._score(self._expected)
        self._right = self._per_sample(self._expected)

    def facts(self) -> tuple[float, bool]:
        """Return the run time of the graph in seconds, and whether plain ops run on oneDNN."""
        return self._seconds, bool(start_tensorflow().features.IsMklEnabled())

    def score(
        self,
        graph_def: bytes,
        inputs: Mapping[str, str],
        pairs: Mapping[str, str],
        judged: Sequence[str],
        engine: str = TENSORFLOW,
    ) -> Judgement:
        """Run another graph on the same feeds, and compare it with the float32 graph.

        `inputs` and `pairs` map tensor names of the float32 graph to those of the other graph.
        Only the SQNR of `judged` counts.

        GraphError: the engine refuses the graph, or the metric raises.
        """
        given = self._answers_of(graph_def, inputs, pairs, engine)
        sqnr, low, agreement = np.inf, np.inf, None
        for name in judged:
            if self._expected[name].dtype.kind != "f":
                continue
            sums = Sums(name)
            sums.add(self._expected[name], given[name])
            difference = sums.difference()
            sqnr = min(sqnr, difference.sqnr_db)
            if difference.fault:
                low = -np.inf
                continue
            pair = self._expected[name], given[name]
            bound = lower_bound_db(*pair, self._samples, self._related)
            low = min(low, difference.sqnr_db if bound is None else bound)
            share = same_class(*pair, self._related)
            if share is not None and (agreement is None or share.value < agreement.value):
                agreement = share
        independent = None if self._related is None else len(np.unique(self._related))
        right = [self._right, self._per_sample(given)]
        classes = (0, *self._expected[self._outputs[0]].shape)[-1]
        groups: tuple[GroupCloseness, ...] = ()
        if self._groups is not None:
            item = [(self._expected[name], given[name]) for name in judged]
            groups = closeness_by_group(item, self._groups)
        return Judgement(
            sqnr_db=float(sqnr),
            agreement=None if agreement is None else agreement.value,
            samples=self._samples,
            metric=self._metric_name,
            before=self._before,
            after=self._score(given),
            sqnr_low_db=None if independent is not None and independent < FEWEST else float(low),
            independent=independent,
            agreement_interval=None if agreement is None else agreement.interval,
            groups=groups,
            weak_classes=weak_classes(right, self._labels, classes),
        )

    def departure(
        self,
        graph_def: bytes,
        inputs: Mapping[str, str],
        pairs: Mapping[str, str],
        judged: Sequence[str],
        engine: str,
    ) -> list[EngineComparison]:
        """Compare the outputs of a graph in an engine with those in TensorFlow, by tensor.

        GraphError: TensorFlow or the engine refuses the graph.
        """
        plain = self._answers_of(graph_def, inputs, pairs, TENSORFLOW)
        other = self._answers_of(graph_def, inputs, pairs, engine)
        return [
            EngineComparison(
                _sqnr(self._expected[name], plain[name]),
                _sqnr(self._expected[name], other[name]),
                _sqnr(plain[name], other[name]),
            )
            for name in judged
            if self._expected[name].dtype.kind == "f"
        ]

    def _answers_of(
        self, graph_def: bytes, inputs: Mapping[str, str], pairs: Mapping[str, str], engine: str
    ) -> dict[str, Array]:
        """Return the paired tensors of another graph, by the names of the float32 graph."""
        session = session_in(engine, graph_def)
        result = _run(session, list(pairs.values()), inputs, self._feeds)
        return {name: result[other] for name, other in pairs.items()}

    def answers(self, maker: str) -> Answers | None:
        """Return the classes predicted in the float32 graph's first output; None: not classes.

        `maker` is the op that makes the output.
        """
        result = answers_of(self._expected[self._outputs[0]], maker)
        return result if result is not None and len(result.numbers) == self._samples else None

    def _score(self, values: Mapping[str, Array]) -> Score | None:
        if self._metric is None:
            return None
        return self._metric({name: values[name] for name in self._outputs}, self._labels)

    def _per_sample(self, values: Mapping[str, Array]) -> Array | None:
        if self._metric is None:
            return None
        outputs = {name: values[name] for name in self._outputs}
        return self._metric.per_sample(outputs, self._labels)


def _sqnr(expected: Array, judged: Array) -> float:
    sums = Sums("")
    sums.add(expected, judged)
    return sums.difference().sqnr_db


def _run(
    session: Session | OpenVinoSession,
    fetches: list[str],
    inputs: Mapping[str, str],
    feeds: Sequence[Mapping[str, Array]],
) -> dict[str, Array]:
    """Return the values of tensors for all samples."""
    parts = []
    for feed in feeds:
        named = {inputs[n]: a for n, a in feed.items() if n in inputs} if inputs else feed
        parts.append(session.run(fetches, named))
    layouts = [Layout.of(feed) for feed in feeds]
    values = (joined([np.asarray(part[i]) for part in parts], layouts) for i in range(len(fetches)))
    return dict(zip(fetches, values, strict=True))


def joined(parts: Sequence[Array], layouts: Sequence[Layout]) -> Array:
    """Return the values of a tensor for feeds as one array, samples first; scalars are stacked."""
    if not parts[0].ndim:
        return np.stack(parts)
    parts = samples_first(parts, layouts)
    if len({part.shape[1:] for part in parts}) > 1:  # a size that depends on the batch
        return np.concatenate([part.reshape(-1) for part in parts])
    return np.concatenate(parts)


def same_class(
    expected: Array, judged: Array, related: Array | None = None, z: float = NORMAL_95
) -> Score | None:
    """Return the top-1 agreement of two outputs; None: not class scores.

    Scores with NaN never agree. `related` are the groups of related samples, whose interval has
    95 % confidence; otherwise `z` is the normal quantile of the confidence level.
    """
    item = agreeing(expected, judged)
    if item is None or not len(item):
        return None
    same = int(item.sum())
    if related is not None and len(related) == len(item):
        return Score(same / len(item), wilson_of_groups(item, related))
    return Score(same / len(item), wilson(same, len(item), z))


class Evaluator(AbstractContextManager["Evaluator"]):
    """Compares graphs with a float32 graph on samples; a context manager that ends its child.

    If a graph crashes the child or takes too long, the next graph runs in a new child.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Sequence[Mapping[str, Array]],
        labels: Array | None = None,
        metric: str = "top1",
        groups: Array | None = None,
        related: Array | None = None,
    ) -> None:
        """Run the float32 graph.

        Args:
            graph: the reference.
            feeds: held-out samples, batch by batch, as `Dataset.feeds` returns them.
            labels: one per sample; without labels, only a user-defined metric is evaluated.
            metric: top1 or top5, the share of samples whose label is among the 1 or 5 highest
                scores of the first output; mae, the mean absolute error of the first output; or
                `module:function`, called with the outputs by name and the labels.
            groups: the group of each sample, strings.
            related: the group of related samples of each one, over which intervals are computed.

        GraphError: TensorFlow cannot run the graph on the samples, or no output is floating-point.
        Also: the labels do not match the samples or classes, or the metric does not exist, raises,
        or does not return a number.
        """
        samples = samples_in(feeds)
        if not samples:
            raise GraphError("no-samples", purpose="compare on")
        if labels is not None and len(labels) != samples:
            raise counts_differ("labels", len(labels), samples)
        if labels is None and ":" not in metric:
            if metric != "top1":  # top1 is the default
                raise GraphError(
                    "metric-needs-labels", metric=metric, reason="the data contain none"
                )
            metric = ""
        self._graph = graph
        self._arguments = (
            b"".join(graph.serialized()),
            list(graph.outputs),
            compared_tensors(graph),
            list(feeds),
            labels,
            metric,
            groups,
            related,
        )
        self._worker: Worker | None = None
        self._start()

    @classmethod
    def on(cls, graph: Graph, samples: Dataset, metric: str = "") -> Self:
        """Run the float32 graph on a dataset, whose labels are used if a metric is given."""
        feeds = samples.feeds()
        labels = samples.labels_of(feeds) if metric else None
        groups = samples.groups_of(feeds), samples.related_of(feeds)
        return cls(graph, feeds, labels, metric or "top1", *groups)

    def judge(self, graph: Graph, engine: str = TENSORFLOW) -> Judgement:
        """Run a graph in an engine, and compare it with the float32 graph.

        Inputs and outputs are paired by name or else by index.

        CrashError: the engine died. LimitError: it took too much time or memory. GraphError: the
        engine cannot run the graph, the inputs or outputs differ, or the metric raises.
        """
        judgement: Judgement = self._ask("score", graph, engine)
        return judgement

    def departs(self, graph: Graph, engine: str) -> bool:
        """Return whether the outputs of a graph in an engine differ from TensorFlow's.

        Errors are those of `judge`, for both runs.
        """
        besides: list[EngineComparison] = self._ask("departure", graph, engine)
        return any(beside.departs for beside in besides)

    def facts(self) -> tuple[float, bool]:
        """Return the run time of the float32 graph in seconds, and whether it ran on oneDNN."""
        seconds, onednn = (self._worker or self._start()).ask("facts")
        return seconds, onednn

    def answers(self) -> Answers | None:
        """Return the classes predicted in the float32 graph's first output; None: not classes."""
        made_by = maker(self._graph, self._graph.outputs[0]).op
        result: Answers | None = (self._worker or self._start()).ask("answers", made_by)
        return result

    def close(self) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, question: str, graph: Graph, engine: str) -> Any:
        """Call a method of the child for a graph in an engine."""
        inputs = paired_inputs(self._graph, graph)
        if inputs is None or len(graph.outputs) != len(self._graph.outputs):
            raise GraphError("graph-interface-differs")
        paired = paired_outputs(self._graph, graph)
        judged = sorted(compared_outputs(self._graph, paired) - paired.behind)
        message = (b"".join(graph.serialized()), inputs, dict(paired.pairs), judged, engine)
        worker = self._worker or self._start()
        try:
            return worker.ask(question, *message)
        except (CrashError, LimitError):
            self.close()
            raise

    def _start(self) -> Worker:
        self._worker = Worker("deploykit.quantization.accuracy:Scorer", *self._arguments)
        try:
            self._worker.ask("facts")  # returns once the float32 graph has run
        except BaseException:  # an interrupt too must leave no child behind
            self.close()
            raise
        return self._worker
