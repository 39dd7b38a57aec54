"""Samples in batches that a graph takes, and split into some to learn from and some held out."""

from collections.abc import Iterable, Mapping

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import producer_name
from deploykit.transforms.core.tensors import Array
from deploykit.verification.sample_inputs import demanded_batch, feeds_from, in_batches

BATCH = 8  # samples at once, where the inputs leave it open: memory grows with it, speed hardly
HELD_OUT_EVERY = 4
SPLIT_FROM = 8  # samples; below, what is held out would be one or none


def calibration_feeds(
    graph: Graph, data: Mapping[str, Array], batch: int | None = None
) -> list[dict[str, Array]]:
    """Return arrays by input name as feeds; `labels` play no part.

    GraphError: they do not fit the inputs, hold no sample, or cannot be fed in such batches.
    """
    unlabelled = {name: data[name] for name in data if name != "labels"}
    return labelled_feeds(graph, unlabelled, batch)[0]


def labelled_feeds(
    graph: Graph, data: Mapping[str, Array], batch: int | None = None
) -> tuple[list[dict[str, Array]], Array | None]:
    """Return arrays by input name as feeds, and the labels of the samples in them, if any.

    GraphError: as in `calibration_feeds`, or there are more or fewer labels than samples.
    """
    if not graph.inputs:
        raise GraphError("the model has no input, so there is nothing to run it on")
    demanded = demanded_batch(graph)
    if demanded and batch and batch != demanded:
        raise GraphError(
            f"the model takes {demanded} samples at once, so a batch of {batch} cannot be run"
        )
    arrays, labels, _ = feeds_from(graph, data)
    feeds = in_batches(arrays, demanded or batch or BATCH, whole=demanded is not None)
    return feeds, None if labels is None else np.asarray(labels)[: samples_in(feeds)]


def samples_in(feeds: Iterable[Mapping[str, Array]]) -> int:
    """Return how many samples feeds hold together."""
    return sum(next((len(a) for a in feed.values() if a.ndim), 1) for feed in feeds)


def split_samples(
    graph: Graph, data: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array], str]:
    """Return the samples to calibrate with, those held out to judge by, and a note on them.

    Every fourth is held out. Where there are fewer than eight, or too few for the batch that the
    graph demands, all serve for both and the note says so. Arrays that are neither fed nor labels
    are left out. GraphError: the data do not fit the inputs.
    """
    feeds_from(graph, data)
    names = [*map(producer_name, graph.inputs), "labels"]
    data = {name: np.asarray(data[name]) for name in names if name in data}
    count = _count(data)
    least = demanded_batch(graph) or 1
    if count < SPLIT_FROM or count // HELD_OUT_EVERY < least:
        return (
            data,
            data,
            (
                f"{count} samples are too few to hold some out, so layers are judged by those that "
                "they were calibrated with"
            ),
        )
    held = np.arange(count) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    return _taken(data, ~held), _taken(data, held), ""


def spread_samples(graph: Graph, data: Mapping[str, Array], most: int) -> dict[str, Array]:
    """Return so many samples at even distances, or all where there are fewer.

    They are no fewer than the graph demands at once.
    """
    count = _count(data)
    most = min(max(most, demanded_batch(graph) or 1), count)
    return _taken(data, np.linspace(0, count - 1, most).round().astype(int))


def _count(data: Mapping[str, Array]) -> int:
    return min((len(array) for array in data.values() if array.ndim), default=0)


def _taken(data: Mapping[str, Array], places: Array) -> dict[str, Array]:
    return {name: array[places] if array.ndim else array for name, array in data.items()}
