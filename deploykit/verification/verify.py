"""Proof that a rewrite kept the numbers: two graphs run on the same inputs, Grappler off.

Per output, the largest and the root-mean-square difference are taken relative to the reference's
own largest and root-mean-square value; NaN and Inf must stand in the same places. No elementwise
relative error: a correct fold of fifty layers shows 1e-1 near zeros. Where an output is a Softmax,
its input is compared as well, because a Softmax hides errors.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from deploykit.importers.model_files import Original
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.common.errors import CrashError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.differences import Difference, QualityBar
from deploykit.verification.coverage import doubt, nothing_compared, uncovered
from deploykit.verification.running import Run, Runnable, Task
from deploykit.verification.samples import Data, Dataset, Feed, samples_in
from deploykit.verification.synthetic.sample_inputs import made_up_feeds, paired_inputs
from deploykit.verification.tolerance import (
    Pairing,
    bar_between,
    judged_outputs,
    maker,
    paired_outputs,
)

ROUNDS = 4  # times as many synthetic feeds, where the first prove nothing
LARGE_GRAPH = (
    250_000  # nodes; TensorFlow takes minutes and 14 kB a node to load and run both graphs
)
AT_ONCE = 50  # samples of the user's, where the inputs leave it open

ADVICE = (
    "Give representative samples with --data, choose another --input-range for random inputs, or "
    "accept an unverified result with --allow-unverified."
)
"""What helps where nothing was compared."""

CHANGES = "the reference gives other values each time, so there is nothing to compare with"


def _by_output(differences: Iterable[Difference]) -> dict[str, Mapping[str, float]]:
    keys = ("max_relative_error", "rms_relative_error", "sqnr_db")
    return {
        difference.output: {key: getattr(difference, key) for key in keys}
        for difference in differences
    }


@dataclass(frozen=True)
class Verification(AsHtml):
    """What a comparison of two graphs found, and whether it met its bar."""

    verified: bool
    """Whether something was compared that could have differed."""
    passed: bool
    """Whether something was compared, and met the bar."""
    bar: str
    reason: str = ""
    differences: Annotated[tuple[Difference, ...], Written("by_output", by=_by_output)] = ()
    accuracy: Hidden[tuple[float, float] | None] = None
    samples: Hidden[int] = 0
    models: Hidden[tuple[Any, Any] | None] = None
    """The two as they were opened, where they were models."""
    compared: Annotated[int, Written("compared_values")] = 0
    """Finite values of the reference, of all outputs and samples."""
    distinct: Annotated[int, Written("distinct_values")] = 0
    """Different ones among them; at most 1000 are counted."""
    not_possible: Hidden[str] = ""
    """Why the reference was not run."""
    proves_nothing: Hidden[bool] = False
    """Whether both ran and are equal where a wrong result would be, too."""
    is_unchanged: Hidden[bool] = False
    """Whether neither was run because all nodes of a large graph are the same in both."""
    seconds: Annotated[float, Written("run_seconds", digits=4)] = field(default=0.0, compare=False)
    """That loading and running both took."""
    made_up: Hidden[int] = 0
    """Samples that were made up."""
    doubt: str = ""
    """Why the reference's answers on given samples can hardly be right, in a sentence."""
    is_classifier: Hidden[bool] = False
    """Whether the reference surely names classes: a Softmax or Sigmoid makes them, or labels are
    given."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    @property
    @written()
    def max_relative_error(self) -> float | None:
        """The largest of the outputs' errors; None where nothing was compared."""
        return max((d.max_relative_error for d in self.differences), default=None)

    @property
    @written()
    def sqnr_db(self) -> float | None:
        """The smallest signal-to-noise ratio that is judged; None where nothing was compared."""
        return min((d.sqnr_db for d in self.differences if d.judged), default=None)

    @property
    @written()
    def run(self) -> str:
        """On what both were run, in words, or why they were not."""
        if self.not_possible:
            return f"not possible: {self.not_possible}"
        if self.is_unchanged:
            return "no samples: all nodes, constants and edges are unchanged"
        kind = "made-up " if self.made_up else ""
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
        """Whether the two were compared, and are not the same."""
        return self.verified and not self.passed


@dataclass(frozen=True)
class Stored:
    """The paths of files that hold the graphs of a comparison; None: they are in memory."""

    reference: str | Original | None = None
    """An original is run once, and compared at its outputs: nothing else of it has a name, and what
    it keeps from run to run is not frozen."""
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
        reference: the graph that is right.
        result: the graph to judge; its inputs and outputs are paired with the reference's by name,
            or by place where the names differ.
        data: samples, or arrays by input name, first axis the samples; `labels` (class numbers)
            adds accuracy. Without data, values are made up (`made_up_feeds`).
        input_range, shapes: of made-up inputs: the range of floats, and sizes by name.
        tolerance: bar on the largest relative error. Default: `default_tolerance`, unless the
            result holds 8-bit constants that the reference does not.
        min_sqnr: bar in dB instead; default for such a quantized result: 15. It holds for what a
            Softmax reads in place of the Softmax.
        stored: files that hold the graphs, which are run in place of those in memory.

    `verified` is false, with the reason, where nothing was compared that could differ: the
    reference does not run on made-up inputs; all of its values are the same, or those of an output
    are NaN; an output is empty and what it is made of was not compared (`coverage`). What lies
    behind a choice, such as a non-maximum suppression, is computed from what the reference has in
    front of it, where the noise is judged.

    Without data, two graphs of more than LARGE_GRAPH nodes that are all the same are not run.

    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.
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
    is_single = samples is not None and bool(samples.scalars)  # one value proves nothing
    first = feeds[:1] if isinstance(stored.reference, Original) and not is_single else feeds
    value = _found(graphs, _task(*graphs, first, names, samples), stored, bar)
    if samples is None and value.proves_nothing and reference.inputs:
        # One feed gives an output of one value, such as a mean of all samples, no other to show.
        feeds, _ = made_up_feeds(reference, input_range, shapes, result, ROUNDS)
        more = _found(graphs, _task(*graphs, feeds, names, None), stored, bar)
        # What an original keeps from run to run is not frozen, so a later run may differ.
        if more.passed or not isinstance(stored.reference, Original):
            value = more
    return value


def _is_same(reference: Graph, result: Graph) -> bool:
    """Return whether two graphs have the same nodes, edges, constants, functions and outputs."""
    if (reference.inputs, reference.outputs) != (result.inputs, result.outputs):
        return False
    if len(reference) != len(result) or reference.library != result.library:
        return False
    return all(node.name in result and node == result[node.name] for node in reference)


def _found(
    compared: tuple[Graph, Graph], task: Task, stored: Stored, bar: QualityBar
) -> Verification:
    """Run two graphs and return how they compare."""
    reference, result = compared
    feeds = task.feeds
    if isinstance(stored.reference, Original):
        paired = Pairing(task.paired.pairs[: len(reference.outputs)])
        task = replace(task, paired=paired)
    graphs = (stored.reference or _bytes(reference), stored.result or _bytes(result))
    began = time.perf_counter()
    value = _judged(_run(*graphs, task), bar, reference, task)
    if value.passed and (reason := _not_covered(graphs, compared, task, value)):
        value = replace(value, verified=False, passed=False, reason=reason, proves_nothing=True)
    runs: list[Runnable] = [graphs[0]]
    if isinstance(graphs[0], Original):  # each time that it is loaded, its seeds are the same
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
    """Return what is run and compared."""
    return Task(
        feeds,
        names,
        paired_outputs(reference, result),
        labels=None if samples is None else samples.labels_of(feeds),
        made_by=maker(reference, reference.outputs[0]).op if reference.outputs else "",
        is_given=samples is not None,
    )


def _judged(run: Run, bar: QualityBar, reference: Graph, task: Task) -> Verification:
    """Return what a run comes to."""
    judged = set(task.tensors)
    if bar.tolerance is None:
        judged = judged_outputs(reference, task.paired) | task.paired.behind
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
        compared=run.finite,
        distinct=run.distinct,
        not_possible=run.not_possible,
        doubt="" if answers is None else doubt(answers.numbers, answers.classes, task.labels),
        is_classifier=answers is not None and (answers.are_sure or task.labels is not None),
    )


def _given(samples: Dataset) -> list[Feed]:
    return samples.feeds(samples.batch or AT_ONCE) if samples.arrays else [{}]


def _run(reference: Runnable, result: Runnable, task: Task) -> Run:
    """Run both in a child; where TensorFlow dies, find out on which.

    CrashError: it was on the reference, and the data are the user's.
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
    """Return why values that are equal say nothing of a result, or an empty string."""
    if reason := nothing_compared(*graphs, verification.differences):
        return reason
    left = uncovered(*graphs, task.paired, verification.differences, task.names)
    if not left:
        return ""
    if isinstance(runnable[0], Original):  # it has no names but those of its inputs and outputs
        return f"output '{(*left.empty, *left.constant)[0][0]}' is empty or constant"
    try:
        output, tensor = call(
            "deploykit.verification.running:first_not_compared", *runnable, task, left
        )
    except CrashError as error:
        return str(error)
    kind = "is empty" if any(output == a for a, _ in left.empty) else "has one value"
    return tensor and (
        f"output '{output}' {kind} on all samples, and tensor '{tensor}', of which it is made, was "
        "not compared"
    )


def _changes(reference: Runnable, task: Task, bar: QualityBar) -> bool:
    """Say whether a reference differs from itself by more than the bar."""
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
