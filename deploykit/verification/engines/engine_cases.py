"""What TensorFlow gives for feeds, to which an engine's answers are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.tensors import Array
from deploykit.verification.engines.engine_feeds import EngineFeeds
from deploykit.verification.samples import Feed, samples_in


class GraphRunner(Protocol):
    """What runs a graph, such as a `Session`."""

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the values of tensors. GraphError: they cannot be computed."""
        ...


@dataclass(frozen=True)
class EngineCase:
    """A batch, and what TensorFlow gives for it by the graph's outputs."""

    batch: int
    feeds: Feed
    expected: Mapping[str, Array]
    is_row: bool = False
    """Of an empty batch, whether each output is what becomes of a row of zeros, less that row."""


def reference_cases(
    graph: Graph, tensorflow: GraphRunner, feeds: EngineFeeds
) -> tuple[list[EngineCase], list[str]]:
    """Return what TensorFlow gives, and the batches that it does not take, with its words."""
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
    """Return what a graph gives for a feed. GraphError: nothing."""
    names = list(dict.fromkeys(graph.outputs))
    values = runner.run(names, feed)
    return EngineCase(samples_in([feed]), feed, dict(zip(names, values, strict=True)))


def _empty(
    graph: Graph, tensorflow: GraphRunner, feed: Feed, cases: Sequence[EngineCase]
) -> tuple[EngineCase | None, str]:
    """Return what an empty batch gives, or why that is not known.

    Of an output with a row for each sample, it is no row: some kernels of TensorFlow refuse an
    empty batch, or give it other sizes, and deploykit's server takes a row in its place.
    """
    by_batch = {case.batch: case.expected for case in cases}
    if not {1, 3} <= by_batch.keys():
        return None, "it has no rows of its own"
    one, three = by_batch[1], by_batch[3]
    rows = {
        name: np.asarray(one[name])[:0]
        for name in graph.outputs
        if np.shape(one[name])[:1] == (1,)
        and np.shape(three[name])[:1] == (3,)
        and np.shape(one[name])[1:] == np.shape(three[name])[1:]
    }
    if not rows:
        return None, "no output has a row for each sample"
    if len(rows) == len(set(graph.outputs)):
        return EngineCase(0, feed, rows, is_row=True), ""
    try:
        case = case_of(graph, tensorflow, feed)
    except GraphError as error:
        return None, str(error)
    return EngineCase(0, feed, {**case.expected, **rows}), ""
