"""Comparison of two graphs on the same inputs, with Grappler off.

For each output, the maximum and the root-mean-square (RMS) difference are relative to the maximum
and the RMS of the reference; NaN and Inf must be at the same positions. Elementwise relative errors
are not used: a correct fold of fifty layers has 1e-1 near zeros. If an output is a Softmax, its
input is also compared, because a Softmax hides errors.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from deploykit.importers.model_files import Original
from deploykit.transforms.common.documents import AsHtml, Hidden, IfSet, Written, written
from deploykit.transforms.common.errors import CrashError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.layers import FLOATS
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.differences import Difference, QualityBar
from deploykit.verification.class_order import refuse_other_order
from deploykit.verification.coverage import (
    Answers,
    WeakClass,
    doubt,
    nothing_compared,
    uncovered,
)
from deploykit.verification.feeds import Feed, samples_in
from deploykit.verification.running import Run, Runnable, Task
from deploykit.verification.samples import Data, Dataset
from deploykit.verification.synthetic.sample_inputs import (
    made_up_feeds,
    paired_inputs,
    size_advice,
    type_and_shape,
)
from deploykit.verification.tolerance import (
    Pairing,
    bar_between,
    compared_outputs,
    maker,
    paired_outputs,
)

ROUNDS = 4  # factor for synthetic feeds if the first ones verify nothing
LARGE_GRAPH = (
    250_000  # nodes; TensorFlow needs minutes and 14 kB per node to load and run both graphs
)
AT_ONCE = 50  # default batch size for user data

ADVICE = (
    "Give representative samples with --data, choose another --input-range for random inputs, or "
    "accept an unverified result with --allow-unverified."
)
"""Advice if nothing was compared."""

CHANGES = "the reference gives different values in each run, so there is nothing to compare with"


def _by_output(differences: Iterable[Difference]) -> dict[str, Mapping[str, float]]:
    keys = ("max_relative_error", "rms_relative_error", "sqnr_db")
    return {
        difference.output: {key: getattr(difference, key) for key in keys}
        for difference in differences
    }


@dataclass(frozen=True)
class Verification(AsHtml):
    """The result of comparing two graphs with a threshold."""

    verified: bool
    """Whether values were compared that could have differed."""
    passed: bool
    """Whether values were compared and all are within the threshold."""
    bar: str
    reason: str = ""
    differences: Annotated[tuple[Difference, ...], Written("by_output", by=_by_output)] = ()
    accuracy: Hidden[tuple[float, float] | None] = None
    weak_classes: IfSet[tuple[WeakClass, ...]] = ()
    """Classes that the result never predicts right, or significantly less often than before."""
    samples: Hidden[int] = 0
    models: Hidden[tuple[Any, Any] | None] = None
    """The two opened models, if models were compared."""
    compared: Annotated[int, Written("compared_values")] = 0
    """Number of finite values of the reference, over all outputs and samples."""
    distinct: Annotated[int, Written("distinct_values")] = 0
    """Number of distinct values among them, counted up to 1000."""
    not_possible: Hidden[str] = ""
    """Why the reference did not run."""
    proves_nothing: Hidden[bool] = False
    """Whether both ran with equal outputs that a wrong result would also have."""
    is_unchanged: Hidden[bool] = False
    """Whether neither was run because both large graphs have the same nodes."""
    seconds: Annotated[float, Written("run_seconds", digits=4)] = field(default=0.0, compare=False)
    """Seconds to load and run both graphs."""
    made_up: Hidden[int] = 0
    """Number of synthetic samples."""
    doubt: str = ""
    """Why the reference's predictions on user samples are doubtful, in a sentence."""
    is_classifier: Hidden[bool] = False
    """Whether the reference certainly predicts classes: by a Softmax or Sigmoid, or because of
    labels."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Description of the preprocessing of files, by input."""
    sizes: Hidden[str] = ""
    """How to give sizes that fit if nothing was compared on random inputs of open sizes."""
    before_choices: Hidden[tuple[str, ...]] = ()
    """Tensors compared because a choice, such as a non-maximum suppression, reads them. What
    follows it was compared on the reference's values of these."""

    @property
    def advice(self) -> str:
        """What to do if nothing was compared."""
        return f"{self.sizes} {ADVICE}".lstrip()

    @property
    @written()
    def max_relative_error(self) -> float | None:
        """Largest error over all outputs; None if nothing was compared."""
        return max((d.max_relative_error for d in self.differences), default=None)

    @property
    @written()
    def sqnr_db(self) -> float | None:
        """Lowest SQNR of the evaluated outputs; None if nothing was compared."""
        return min((d.sqnr_db for d in self.differences if d.judged), default=None)

    @property
    @written()
    def run(self) -> str:
        """Description of the samples of the run, or why there was none."""
        if self.not_possible:
            return f"not possible: {self.not_possible}"
        if self.is_unchanged:
            return "no samples: all nodes, constants and edges are unchanged"
        kind = "synthetic " if self.made_up else ""
        count = self.samples or self.made_up
        return f"{count} {kind}sample{'' if count == 1 else 's'}"

    @property
    @written(flat=True)
    def _accuracy(self) -> dict[str, float]:
        if self.accuracy is None:
            return {}
        before, after = self.accuracy
        return {"samples": self.samples, "accuracy_before": before, "accuracy_after": after}

    @property
    def differs(self) -> bool:
        """Whether the two were compared and differ."""
        return self.verified and not self.passed


@dataclass(frozen=True)
class Stored:
    """Files of the graphs of a comparison; None for graphs in memory."""

    reference: str | Original | None = None
    """An original SavedModel runs once, because it keeps state between runs. Only its outputs are
    compared, as other tensors have no common name."""
    result: str | None = None


IN_MEMORY = Stored()


def verify(
    reference: Graph,
    result: Graph,
    *,
    data: Data | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    shapes: Mapping[str, Sequence[int]] | None = None,
    tolerance: float | None = None,
    min_sqnr: float | None = None,
    stored: Stored = IN_MEMORY,
) -> Verification:
    """Run two graphs on the same inputs and compare their outputs.

    Args:
        reference: the reference graph.
        result: the graph to verify; its inputs and outputs are paired with the reference's by name,
            or by position if the names differ.
        data: samples, or arrays by input name with samples on the first axis; `labels` (class
            numbers) adds the accuracy. The default is synthetic values (`made_up_feeds`).
        input_range, shapes: range of floats, and sizes by name, for synthetic inputs.
        tolerance: limit of the largest relative error. Default: `default_tolerance`, unless only
            the result is quantized.
        min_sqnr: minimum SQNR in dB instead; the default for such a quantized result is 15. For a
            Softmax, it applies to its input.
        stored: files of the graphs, which are run instead of those in memory.

    `verified` is false, with a reason, if nothing was compared that could differ: the reference
    does not run on synthetic inputs, all its values are equal, an output is NaN, or an output is
    empty and its inputs were not compared (`coverage`). The tensors before a choice, such as a
    non-maximum suppression, are compared too. What follows it is computed from the reference's
    values of these.

    Without data, identical graphs of more than LARGE_GRAPH nodes are not run.

    GraphError: TensorFlow cannot load the reference, or the data or its order of classes is wrong.
    """
    if data is None and len(reference) > LARGE_GRAPH and _is_same(reference, result):
        return Verification(True, True, "no change", is_unchanged=True)
    bar = bar_between(reference, result, tolerance, min_sqnr)
    samples = None if data is None else Dataset.of(reference, data)
    given = None if samples is None else (_given(samples), "")
    feeds, reason = given or made_up_feeds(reference, input_range, shapes, result)
    if reason:
        return Verification(False, False, str(bar), reason, not_possible=reason)
    names = paired_inputs(reference, result)
    if names is None or len(reference.outputs) != len(result.outputs):
        return Verification(True, False, str(bar), _other_ends(reference, result))
    graphs = reference, result
    is_single = samples is not None and bool(samples.scalars)  # one value verifies nothing
    first = feeds[:1] if isinstance(stored.reference, Original) and not is_single else feeds
    value = _found(graphs, _task(*graphs, first, names, samples), stored, bar, samples)
    if samples is None and value.proves_nothing and reference.inputs:
        # With one feed, a scalar output such as a mean has only one value.
        feeds, _ = made_up_feeds(reference, input_range, shapes, result, ROUNDS)
        more = _found(graphs, _task(*graphs, feeds, names, None), stored, bar)
        # An original keeps state between runs, so its later runs may differ.
        if more.passed or not isinstance(stored.reference, Original):
            value = more
    is_open = samples is None and not value.verified
    return replace(value, sizes=size_advice(reference, shapes)) if is_open else value


def _is_same(reference: Graph, result: Graph) -> bool:
    """Return whether two graphs have the same nodes, edges, constants, functions and outputs."""
    if (reference.inputs, reference.outputs) != (result.inputs, result.outputs):
        return False
    if len(reference) != len(result) or reference.library != result.library:
        return False
    return all(node.name in result and node == result[node.name] for node in reference)


def _found(
    compared: tuple[Graph, Graph],
    task: Task,
    stored: Stored,
    bar: QualityBar,
    samples: Dataset | None = None,
) -> Verification:
    """Run two graphs and return the result of the comparison.

    GraphError: another order of the classes fits the predictions on `samples` far better.
    """
    reference, result = compared
    feeds = task.feeds
    if isinstance(stored.reference, Original):
        paired = Pairing(task.paired.pairs[: len(reference.outputs)])
        task = replace(task, paired=paired)
    graphs = (stored.reference or _bytes(reference), stored.result or _bytes(result))
    began = time.perf_counter()
    run = _run(*graphs, task)
    if samples is not None and run.answers and len(run.answers.numbers) == samples_in(feeds):
        refuse_other_order(run.answers, samples)
    value = _judged(run, bar, reference, task)
    if value.passed and (reason := _not_covered(graphs, compared, task, value)):
        value = replace(value, verified=False, passed=False, reason=reason, proves_nothing=True)
    runs: list[Runnable] = [graphs[0]]
    if isinstance(graphs[0], Original):  # its seeds are the same after each load
        runs.append(_bytes(reference))
    if value.differences and value.differs and any(_changes(run, task, bar) for run in runs):
        value = replace(value, verified=False, reason=CHANGES)
    seconds = time.perf_counter() - began
    count = samples_in(feeds)
    of_user, made_up = (count, 0) if task.is_given else (0, count)
    return replace(value, samples=of_user, made_up=made_up, seconds=seconds)


def _task(
    reference: Graph,
    result: Graph,
    feeds: list[Feed],
    names: Mapping[str, str],
    samples: Dataset | None,
) -> Task:
    """Return the task: feeds and tensors to compare."""
    return Task(
        feeds,
        names,
        paired_outputs(reference, result),
        labels=None if samples is None else samples.labels_of(feeds),
        has_class_names=samples is not None and samples.has_class_names,
        source="" if samples is None else samples.source,
        made_by=maker(reference, reference.outputs[0]).op if reference.outputs else "",
        is_given=samples is not None,
    )


def _judged(run: Run, bar: QualityBar, reference: Graph, task: Task) -> Verification:
    """Evaluate the differences of a run."""
    judged = set(task.tensors)
    if bar.tolerance is None:
        judged = compared_outputs(reference, task.paired)
    differences = tuple(replace(d, judged=d.output in judged) for d in run.differences)
    failures = (bar.failure(d, task.paired.behind) for d in differences)
    reason = run.not_possible or run.broken or next(filter(None, failures), "")
    verified, passed = not run.not_possible, not reason
    answers = run.answers
    return Verification(
        verified,
        passed,
        str(bar),
        reason,
        differences,
        run.accuracy,
        run.weak_classes,
        compared=run.finite,
        distinct=run.distinct,
        not_possible=run.not_possible,
        doubt="" if answers is None else _doubt(answers, task),
        is_classifier=answers is not None and (answers.are_sure or task.labels is not None),
        before_choices=_before_choices(reference, task.paired),
    )


def _before_choices(reference: Graph, paired: Pairing) -> tuple[str, ...]:
    """Return the compared tensors of floats that choices read."""
    read = dict.fromkeys(a for stage in paired.stages for a, _ in stage.in_front)
    return tuple(sorted(a for a in read if type_and_shape(reference, a)[0] in FLOATS))


def _doubt(answers: Answers, task: Task) -> str:
    """Return why the predictions on the samples of a task cannot be right, or an empty string."""
    return doubt(
        answers.numbers,
        answers.classes,
        task.labels,
        source=task.source,
        is_named=task.has_class_names,
    )


def _given(samples: Dataset) -> list[Feed]:
    return samples.feeds(samples.batch or AT_ONCE) if samples.arrays else [{}]


def _run(reference: Runnable, result: Runnable, task: Task) -> Run:
    """Run both graphs in a child process; if TensorFlow crashes, find out which graph caused it.

    CrashError: the reference crashed on user data.
    """
    try:
        return _called(reference, result, task)
    except CrashError as error:
        try:
            _called(reference, reference, task.with_itself)
        except CrashError:
            if task.is_given:
                raise
            return Run(not_possible=str(error))
        return Run(broken=str(error))


def _called(reference: Runnable, result: Runnable, task: Task) -> Run:
    run: Run = call("deploykit.verification.running:run_both", reference, result, task)
    return run


def _not_covered(
    runnable: tuple[Runnable, Runnable],
    graphs: tuple[Graph, Graph],
    task: Task,
    verification: Verification,
) -> str:
    """Return why equal values do not verify a result, or an empty string."""
    if reason := nothing_compared(*graphs, verification.differences):
        return reason
    left = uncovered(*graphs, task.paired, verification.differences, task.names)
    if not left:
        return ""
    if isinstance(runnable[0], Original):  # only its inputs and outputs have names
        return f"output '{(*left.empty, *left.constant)[0][0]}' is empty or constant"
    try:
        output, tensor = call(
            "deploykit.verification.running:first_not_compared", *runnable, task, left
        )
    except CrashError as error:
        return str(error)
    kind = "is empty" if any(output == a for a, _ in left.empty) else "has one value"
    return tensor and (
        f"output '{output}' {kind} on all samples, and tensor '{tensor}', which it depends on, was "
        "not compared"
    )


def _changes(reference: Runnable, task: Task, bar: QualityBar) -> bool:
    """Return whether two runs of a reference differ by more than the threshold."""
    again = _run(reference, reference, task.with_itself)
    return any(map(bar.failure, again.differences))


def _other_ends(reference: Graph, result: Graph) -> str:
    """Return why two graphs cannot be compared."""
    if len(reference.outputs) != len(result.outputs):
        return f"{len(result.outputs)} outputs instead of {len(reference.outputs)}"
    shown = [", ".join(graph.inputs) or "none" for graph in (result, reference)]
    return f"its inputs are {shown[0]}, those of the reference {shown[1]}"


def _bytes(graph: Graph) -> bytes:
    return b"".join(graph.serialized())
