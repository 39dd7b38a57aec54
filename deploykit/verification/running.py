"""Running two graphs on the same feeds in a child process."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.importers.graph_files import parse_graph_def
from deploykit.importers.model_files import Original
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime import process_limits
from deploykit.transforms.runtime.differences import DISTINCT_AT_MOST, Difference, Sums
from deploykit.transforms.runtime.session import Session, refuse_large_tensors
from deploykit.verification.coverage import (
    ALIKE,
    DIFFERENT,
    FREE,
    Answers,
    Uncovered,
    WeakClass,
    answers_of,
    class_numbers,
    weak_classes,
)
from deploykit.verification.feeds import Feed, samples_in
from deploykit.verification.tolerance import Pairing

MAX_BYTES = 2 << 30  # limit of a tensor on synthetic inputs; a tiny graph can request more

Runnable = bytes | str | Original
"""A serialized graph, the path of its file, or the SavedModel that it was frozen from."""


@dataclass(frozen=True)
class Task:
    """The feeds of two graphs, and the tensors to compare."""

    feeds: Sequence[Feed]
    names: Mapping[str, str]
    """Inputs of the result by inputs of the reference."""
    paired: Pairing
    """Values of the result after a choice are computed from the reference's values before it."""
    labels: Array | None = None
    has_class_names: bool = False
    """Whether the labels are class names in the data, numbered in a known order."""
    source: str = ""
    """The origin of user data."""
    made_by: str = ""
    """The op that computes the reference's first output."""
    is_given: bool = False
    """Whether the feeds are user data, on which the reference must run."""

    @property
    def tensors(self) -> list[str]:
        """The compared tensors of the reference."""
        return [a for a, _ in self.paired.pairs]

    def for_result(self, feed: Feed) -> Feed:
        """Return a feed with the names of the result's inputs."""
        return {self.names[name]: item for name, item in feed.items() if name in self.names}

    @property
    def with_itself(self) -> "Task":
        """The task that compares the reference with itself."""
        fed = {tensor for feed in self.feeds for tensor in feed}
        same = Pairing([(a, a) for a in self.tensors])
        return replace(self, names={item: item for item in fed}, paired=same)


@dataclass(frozen=True)
class Run:
    """The result of running two graphs."""

    differences: tuple[Difference, ...] = ()
    finite: int = 0
    """Number of compared finite values of the reference, over all outputs and samples."""
    distinct: int = 0
    """Number of distinct values among them, counted up to 1000."""
    accuracy: tuple[float, float] | None = None
    weak_classes: tuple[WeakClass, ...] = ()
    answers: Answers | None = None
    """Classes predicted by the reference's first output on user samples."""
    not_possible: str = ""
    """Why the reference cannot run."""
    broken: str = ""
    """Why the result cannot be loaded or run although the reference can."""


def run_both(reference: Runnable, result: Runnable, task: Task) -> Run:
    """Run two graphs and compare their outputs.

    It runs in a child process. GraphError: TensorFlow cannot load the reference, or cannot run it
    on the user's data. LimitError: on synthetic inputs, a tensor exceeds MAX_BYTES.
    """
    first = _Loaded(reference)
    if not task.is_given:
        first.refuse_large_tensors()
    try:
        second = _Loaded(result)
    except GraphError as error:
        return Run(broken=str(error))
    fetches = task.tensors
    sums = [Sums(a) for a in fetches]
    truth, answers = _Truth(task.labels), list[Array]()
    bound = contextlib.nullcontext if task.is_given else process_limits.internal_run
    for feed in task.feeds:
        try:
            with bound():
                expected = first.run(fetches, feed)
        except GraphError as error:
            if task.is_given:
                raise
            return Run(not_possible=str(error))
        try:
            with bound():
                value = second.run([b for _, b in task.paired.pairs], task.for_result(feed))
                judged = _behind_choices(second, task, feed, expected, value)
        except GraphError as error:
            return Run(broken=str(error))
        truth.add(expected[0], value[0], samples_in([feed]))
        if task.is_given and np.ndim(expected[0]) == 2:  # other ranks have no classes
            answers.append(np.asarray(expected[0]))
        for item, a, b in zip(sums, expected, judged, strict=True):
            item.add(a, b)
    distinct = set[object]().union(*(sum_.distinct for sum_ in sums))
    return Run(
        tuple(sum_.difference() for sum_ in sums),
        sum(sum_.finite for sum_ in sums),
        min(len(distinct), DISTINCT_AT_MOST),
        truth.accuracy,
        truth.weak_classes,
        _answers(answers, task.made_by),
    )


def first_not_compared(
    reference: Runnable, result: Runnable, task: Task, left: Uncovered
) -> tuple[str, str]:
    """Return an output that the comparison did not cover, and the tensor that causes it.

    It runs in a child process. Both are empty if all outputs are covered.
    """
    loaded, feed = (_Loaded(reference), _Loaded(result)), task.feeds[0]
    fed = feed, task.for_result(feed)
    for output in (*left.empty, *left.constant):
        waiting, seen = [output], {output}
        while waiting:
            kinds = [left.origins[pair].kind for pair in waiting]
            if DIFFERENT in kinds:
                return output[0], waiting[kinds.index(DIFFERENT)][0]
            free = [p for p, kind in zip(waiting, kinds, strict=True) if kind == FREE]
            alike = [p for p, kind in zip(waiting, kinds, strict=True) if kind == ALIKE]
            looked_at = [p for p in alike if output in left.empty and left.origins[p].must_be_empty]
            try:
                a = loaded[0].run([p[0] for p in (*free, *looked_at)], fed[0])
                b = loaded[1].run([p[1] for p in free], fed[1]) if free else []
            except GraphError:
                return output[0], (*free, *looked_at)[0][0]
            for pair, value, other in zip(free, a, b, strict=False):
                if not _is_same(value, other):
                    return output[0], pair[0]
            for pair, value in zip(looked_at, a[len(free) :], strict=True):
                if np.size(value):
                    return output[0], pair[0]
            waiting = [p for pair in alike for p in left.origins[pair].inputs if p not in seen]
            seen.update(waiting)
    return "", ""


def _is_same(value: Array, other: Array) -> bool:
    value, other = np.asarray(value), np.asarray(other)
    return value.dtype == other.dtype and np.array_equal(
        value, other, equal_nan=value.dtype.kind in "fc"
    )


class _Loaded:
    """A loaded graph or SavedModel, whose tensors have the names of the graph."""

    def __init__(self, graph: Runnable) -> None:
        self._names: dict[str, str] = {}
        if isinstance(graph, Original):
            self._session = Session.of_saved_model(graph.folder, graph.tags)
            self._names = {**graph.inputs, **graph.outputs}
        else:
            self._session = Session(parse_graph_def(graph) if isinstance(graph, str) else graph)

    def refuse_large_tensors(self) -> None:
        refuse_large_tensors(self._session.graph, MAX_BYTES)

    def run(self, fetches: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        named = {self._names.get(name, name): value for name, value in feed.items()}
        return self._session.run([self._names.get(name, name) for name in fetches], named)


def _behind_choices(
    session: _Loaded, task: Task, feed: Feed, expected: Sequence[Array], arrays: list[Array]
) -> list[Array]:
    """Return a result's values; those after choices use the reference's values before them."""
    values = dict(zip(task.tensors, expected, strict=True))
    fed, judged = task.for_result(feed), list(arrays)
    for in_front, behind in task.paired.stages:
        fed |= {b: values[a] for a, b in in_front}
        places = [n for n, tensor in enumerate(task.tensors) if tensor in behind]
        again = session.run([task.paired.pairs[n][1] for n in places], fed)
        for place, value in zip(places, again, strict=True):
            judged[place] = value
    return judged


class _Truth:
    """The top-1 accuracy of the first output, before and after."""

    def __init__(self, labels: Array | None) -> None:
        self._labels, self._right, self._count = labels, list[list[Array]]([[], []]), 0
        self._numbers: list[Array | None] = []

    def add(self, expected: Array, judged: Array, count: int) -> None:
        if self._labels is not None:
            truth = self._labels[self._count : self._count + count]
            classes = expected.shape[-1] if np.ndim(expected) == 2 else 0
            numbers = class_numbers(truth, count, classes)
            self._numbers.append(numbers)
            truth = truth if numbers is None else numbers
            for right, output in zip(self._right, (expected, judged), strict=True):
                right.append(np.asarray(np.argmax(output, -1) == truth))
        self._count += count

    @property
    def accuracy(self) -> tuple[float, float] | None:
        if self._labels is None:
            return None
        before, after = (
            sum(int(part.sum()) for part in right) / max(self._count, 1) for right in self._right
        )
        return before, after

    @property
    def weak_classes(self) -> tuple[WeakClass, ...]:
        """The classes on which the result fails, if the labels are class numbers."""
        numbers = [part for part in self._numbers if part is not None]
        if not numbers or len(numbers) < len(self._numbers):
            return ()
        whole = np.concatenate(numbers)
        return weak_classes([*map(np.concatenate, self._right)], whole, int(whole.max()) + 1)


def _answers(parts: Sequence[Array], made_by: str) -> Answers | None:
    """Return the predicted classes if all batches of an output have the same classes."""
    if len({part.shape[1:] for part in parts}) != 1:
        return None
    return answers_of(np.concatenate(parts), made_by)
