"""Feeds for TensorFlow and another engine, TensorFlow's outputs, and the check of split
signatures.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deploykit.importers.image_range import SIGNED, expected_from
from deploykit.importers.metadata_file import about
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.feeds import Feed, axes_of, rows_of, samples_in
from deploykit.verification.samples import Data, Dataset
from deploykit.verification.synthetic.sample_inputs import made_up_feeds, type_and_shape

BATCHES = (3, 1)
_ROUNDS = 2  # batches of each size from user samples


@dataclass(frozen=True)
class EngineFeeds:
    """Feeds for the comparison of an engine with TensorFlow."""

    feeds: Sequence[Feed]
    """Feeds in batches of 3 and 1, or of the fixed batch size of the graph."""
    others: Sequence[Feed] = ()
    """Feeds if TensorFlow accepts none of these, as an open dimension may not be a batch."""
    batched: frozenset[str] = frozenset()
    """Inputs with an open batch dimension."""
    are_made_up: bool = False

    @property
    def empty(self) -> Feed | None:
        """An empty batch; None if the graph has a fixed batch size."""
        if not self.batched:
            return None
        return rows_of(self.feeds[0], slice(0), self.batched)


def engine_feeds(graph: Graph, data: Data | None = None) -> tuple[EngineFeeds | None, str]:
    """Return feeds for a graph, or None and the reason why there are none.

    Args:
        graph: the graph to feed.
        data: samples; default: synthetic ones.

    GraphError: the data does not fit the graph's inputs.
    """
    if data is not None:
        samples = Dataset.of(graph, data, labelled=False)
        if samples.arrays:
            return _of_samples(graph, samples), ""
    made_up, reason = made_up_feeds(graph, made_up_range(graph))
    if reason:
        return None, reason
    whole = made_up[0]
    batched = _batched(graph, whole, samples_in([whole]))
    if not batched:
        return EngineFeeds(made_up, are_made_up=True), ""
    feeds = [rows_of(whole, slice(0, batch), batched) for batch in BATCHES]
    return EngineFeeds(feeds, made_up, batched, True), ""


def _of_samples(graph: Graph, samples: Dataset) -> EngineFeeds:
    """Return evenly spaced samples of the data in batches."""
    if samples.batch is not None:
        return EngineFeeds(samples.spread(2 * samples.batch).feeds())
    few = samples.spread(_ROUNDS * sum(BATCHES)).at_least(max(BATCHES))
    whole = few.as_fed(few.arrays)
    batched = _batched(graph, whole, few.count)
    feeds, place = list[Feed](), 0
    while place < few.count:
        for batch in BATCHES:
            feed = rows_of(whole, slice(place, place + batch), batched)
            if samples_in([feed]) == batch:
                feeds.append(feed)
            place += batch
    if all(samples_in([feed]) > 1 for feed in feeds):
        feeds.append(rows_of(whole, slice(0, 1), batched))
    return EngineFeeds(feeds, batched=batched)


def _batched(graph: Graph, feed: Mapping[str, Array], count: int) -> frozenset[str]:
    """Return the inputs with an open batch dimension whose arrays have `count` samples."""
    results, axes = set(), axes_of(feed)
    for tensor, array in feed.items():
        shape, axis = type_and_shape(graph, tensor)[1], axes.get(tensor, 0)
        is_open = shape is None or (shape and shape[axis] < 0)
        if is_open and array.ndim and array.shape[axis] == count:
            results.add(tensor)
    return frozenset(results)


def made_up_range(graph: Graph) -> tuple[float, float]:
    """Return the range of synthetic floats: the expected pixel range if it is known."""
    ranges = (expected_from(photo) for photo in about(graph).photos.values() if photo)
    range_ = next((item.range for item in ranges if item is not None), SIGNED)
    return range_.low, range_.high


class GraphRunner(Protocol):
    """An object that runs a graph, such as a `Session`."""

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the values of tensors. GraphError: the graph cannot run."""
        ...


@dataclass(frozen=True)
class EngineCase:
    """A batch with TensorFlow's values of the graph's outputs."""

    batch: int
    feeds: Feed
    expected: Mapping[str, Array]
    is_row: bool = False
    """Whether this is an empty batch whose expected outputs are those of one row, without it."""


def reference_cases(
    graph: Graph, tensorflow: GraphRunner, feeds: EngineFeeds
) -> tuple[list[EngineCase], list[str]]:
    """Return TensorFlow's outputs, and the batches that it rejects with its messages."""
    for tried in (feeds.feeds, feeds.others):
        cases, left_out = list[EngineCase](), list[str]()
        for feed in tried:
            try:
                cases.append(case_of(graph, tensorflow, feed))
            except GraphError as error:
                left_out.append(f"batch {samples_in([feed])}: {error}")
        if cases:
            break
    if cases and (empty := feeds.empty) is not None:
        case, why = _empty(graph, tensorflow, empty, cases)
        if case is None:
            left_out.append(f"batch 0: {why}")
        else:
            cases.append(case)
    return cases, left_out


def case_of(graph: Graph, runner: GraphRunner, feed: Feed) -> EngineCase:
    """Run a graph on a feed. GraphError: it cannot run."""
    names = list(dict.fromkeys(graph.outputs))
    values = runner.run(names, feed)
    return EngineCase(samples_in([feed]), feed, dict(zip(names, values, strict=True)))


def _empty(
    graph: Graph, tensorflow: GraphRunner, feed: Feed, cases: Sequence[EngineCase]
) -> tuple[EngineCase | None, str]:
    """Return the outputs for an empty batch, or None and the reason.

    An output with one row per sample has no rows then: some TensorFlow kernels refuse an empty
    batch or give it other sizes, and deploykit's server runs one row instead.
    """
    by_batch = {case.batch: case.expected for case in cases}
    if not {1, 3} <= by_batch.keys():
        return None, "batches of 1 and 3 did not both run"
    one, three = by_batch[1], by_batch[3]
    rows = {
        name: np.asarray(one[name])[:0]
        for name in graph.outputs
        if np.shape(one[name])[:1] == (1,)
        and np.shape(three[name])[:1] == (3,)
        and np.shape(one[name])[1:] == np.shape(three[name])[1:]
    }
    if not rows:
        return None, "no output has one row per sample"
    if len(rows) == len(set(graph.outputs)):
        return EngineCase(0, feed, rows, is_row=True), ""
    try:
        case = case_of(graph, tensorflow, feed)
    except GraphError as error:
        return None, str(error)
    return EngineCase(0, feed, {**case.expected, **rows}), ""


def differs_when_split(
    graph: Graph, cases: Sequence[EngineCase], model: Sequence[str], outputs: Sequence[str]
) -> str:
    """Return which of TensorFlow's outputs changes when the model's outputs are fed, or "".

    If they are bit-identical, another engine may run the model.

    Args:
        graph: the model with its pre- and postprocessing.
        cases: batches to feed.
        model: output tensors of the model.
        outputs: output tensors of the signature.

    GraphError: TensorFlow cannot run the graph on them.
    """
    model, outputs = [normal(item) for item in model], [normal(output) for output in outputs]
    every = list(dict.fromkeys([*model, *outputs]))
    behind = [item for item in every if item not in model]
    if not behind:
        return ""
    content = b"".join(graph.serialized())
    session = "deploykit.transforms.runtime.session:Session"
    with closing(Worker(session, content, runs="TensorFlow")) as worker:
        for case in (case for case in cases if case.batch):
            whole = dict(zip(every, worker.ask("run", every, dict(case.feeds)), strict=True))
            given = {name: whole[name] for name in model}
            arrays: list[Array] = worker.ask("run", behind, given)
            for name, array in zip(behind, arrays, strict=True):
                floats = array.dtype.kind in "fc"
                if not np.array_equal(array, whole[name], equal_nan=floats):
                    return f"'{name}' at batch {case.batch} depends on more than the model's output"
    return ""
