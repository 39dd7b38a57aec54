"""What TensorFlow and another engine are both fed: batches of 3, of 1 and of none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.freezing.sidecar import about
from deploykit.photos.wanted_range import SIGNED, wanted_from
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.tensors import Array
from deploykit.verification.sample_inputs import made_up_feeds, type_and_shape
from deploykit.verification.samples import Data, Dataset, Feed, samples_in

BATCHES = (3, 1)
_ROUNDS = 2  # batches of each size, of the user's samples


@dataclass(frozen=True)
class EngineFeeds:
    """Feeds of a graph."""

    feeds: Sequence[Feed]
    """In batches of 3 and 1 where the inputs leave the batch open; else as the graph demands."""
    others: Sequence[Feed] = ()
    """Fed where TensorFlow takes none of these: what is open may be no batch."""
    batched: frozenset[str] = frozenset()
    """The inputs whose first size is open, and is that of the batch."""
    are_made_up: bool = False

    @property
    def empty(self) -> Feed | None:
        """A batch of none; None: the graph demands another."""
        if not self.batched:
            return None
        feed = self.feeds[0]
        return {name: a[:0] if name in self.batched else a for name, a in feed.items()}


def engine_feeds(graph: Graph, data: Data | None = None) -> tuple[EngineFeeds | None, str]:
    """Return what is fed, or None and why nothing can be.

    Args:
        graph: what is fed, by its inputs.
        data: samples; default: made-up ones.

    GraphError: the data do not fit the graph's inputs.
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
    feeds = [_sliced(whole, batched, slice(0, batch)) for batch in BATCHES]
    return EngineFeeds(feeds, made_up, batched, True), ""


def _of_samples(graph: Graph, samples: Dataset) -> EngineFeeds:
    """Return samples from all over the data, in batches."""
    if samples.batch is not None:
        return EngineFeeds(samples.spread(2 * samples.batch).feeds())
    few = samples.spread(_ROUNDS * sum(BATCHES)).at_least(max(BATCHES))
    batched = _batched(graph, few.arrays, few.count)
    feeds, place = list[Feed](), 0
    while place < few.count:
        for batch in BATCHES:
            feed = _sliced(few.arrays, batched, slice(place, place + batch))
            if samples_in([feed]) == batch:
                feeds.append(feed)
            place += batch
    if all(samples_in([feed]) > 1 for feed in feeds):
        feeds.append(_sliced(few.arrays, batched, slice(0, 1)))
    return EngineFeeds(feeds, batched=batched)


def _batched(graph: Graph, feed: Mapping[str, Array], count: int) -> frozenset[str]:
    """Return the inputs whose first size is open, where all of them hold so many samples."""
    found = set()
    for tensor, array in feed.items():
        shape = type_and_shape(graph, tensor)[1]
        if (shape is None or (shape and shape[0] < 0)) and array.ndim and len(array) == count:
            found.add(tensor)
    return frozenset(found)


def _sliced(feed: Mapping[str, Array], batched: frozenset[str], rows: slice) -> Feed:
    return {
        name: np.ascontiguousarray(array[rows]) if name in batched else array
        for name, array in feed.items()
    }


def made_up_range(graph: Graph) -> tuple[float, float]:
    """Return the range of made-up floats: that of photos, where it is known."""
    said = (wanted_from(each) for each in about(graph).photos.values() if each)
    found = next((each.range for each in said if each is not None), SIGNED)
    return found.low, found.high
