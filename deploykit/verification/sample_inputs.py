"""What a graph is run on: the user's data, or values made up from the types of its inputs."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import split
from deploykit.transforms.core.ops import op_defs, output_types
from deploykit.transforms.core.tensors import Array, numpy_type

logger = logging.getLogger("deploykit")

BATCH = 2  # one example would not show a mix-up of examples
UNKNOWN_SIZE = 96  # for sizes that a placeholder leaves open; the smallest that InceptionV3 takes
DATA_BATCH = 50


def type_and_shape(graph: Graph, tensor: str) -> tuple[str, tuple[int, ...] | None, str]:
    """Return type and shape of an input, and why it cannot be fed with made-up values."""
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    if types is None or port >= len(types):
        return "", None, f"the type of input '{tensor}' is not known"
    shape = node.attr("shape") if node.op in ("Placeholder", "PlaceholderWithDefault") else None
    if node.op == "Const":
        shape = node.shape
    return types[port], shape, ""


def feeds_for(
    graph: Graph, data: Mapping[str, Array] | None, input_range: tuple[float, float]
) -> tuple[dict[str, Array], Array | None, str]:
    """Return the arrays to feed, labels, and why there are none."""
    if data is not None:
        return feeds_from(graph, data)
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        type_, shape, reason = type_and_shape(graph, tensor)
        if reason:
            return {}, None, reason
        if not can_be_made_up(type_):
            return {}, None, f"input '{tensor}' is of type {type_}, which cannot be made up"
        if shape is None:
            return {}, None, f"input '{tensor}' has no known shape; give --data"
        sizes = [s if s >= 0 else BATCH if i == 0 else UNKNOWN_SIZE for i, s in enumerate(shape)]
        feeds[tensor] = made_up(type_, sizes, input_range, random)
    return feeds, None, ""


def can_be_made_up(type_: str) -> bool:
    """Say whether values of a type have no meaning that only the user knows."""
    return type_ not in ("string", "resource", "variant") and not type_.startswith("type")


def made_up(
    type_: str, sizes: Sequence[int], input_range: tuple[float, float], random: np.random.Generator
) -> Array:
    """Return random values: floats over `input_range`, integers over [0, 255]."""
    dtype = numpy_type(type_)
    if dtype.kind == "b":
        return random.integers(0, 2, sizes).astype(dtype)
    if dtype.kind in "iu":
        top = min(255, np.iinfo(dtype).max)
        return random.integers(0, top, sizes, endpoint=True).astype(dtype)
    return random.uniform(*input_range, sizes).astype(dtype)


def feeds_from(
    graph: Graph, data: Mapping[str, Array]
) -> tuple[dict[str, Array], Array | None, str]:
    """Return the arrays of the user's data, and labels. GraphError: they do not fit the inputs."""
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        name = split(tensor)[0]
        if name not in data:
            known = ", ".join(sorted(data))
            raise GraphError(f"the data has no array for input '{name}'; it has: {known}")
        type_, shape, _ = type_and_shape(graph, tensor)
        array = np.asarray(data[name])
        if type_ and not np.can_cast(array.dtype, numpy_type(type_), "same_kind"):
            raise GraphError(f"the data for input '{name}' is {array.dtype}, but it takes {type_}")
        if shape is not None and not _fits(array.shape, shape):
            raise GraphError(
                f"the data for input '{name}' has shape {list(array.shape)}, "
                f"but it takes {[None if s < 0 else s for s in shape]}"
            )
        feeds[tensor] = array.astype(numpy_type(type_)) if type_ else array
    counts = {len(array) for array in feeds.values() if array.ndim}
    if len(counts) > 1:
        raise GraphError(f"the arrays of the data hold different numbers of samples: {counts}")
    labels = data.get("labels")
    if labels is not None and counts and counts != {len(np.atleast_1d(labels))}:
        raise GraphError(f"the data hold {np.size(labels)} labels for {counts.pop()} samples")
    return feeds, labels, ""


def _fits(actual: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Say whether samples of this shape can be fed, the first axis in batches."""
    return len(actual) == len(declared) and all(
        s < 0 or s == a for a, s in zip(actual[1:], declared[1:], strict=True)
    )


def samples_at_once(graph: Graph) -> int:
    """Return how many samples are fed at once: what the inputs demand, or fifty."""
    return demanded_batch(graph) or DATA_BATCH


def demanded_batch(graph: Graph) -> int | None:
    """Return how many samples the inputs demand at once, or None where they leave it open."""
    shapes = [type_and_shape(graph, tensor)[1] for tensor in graph.inputs]
    return next((shape[0] for shape in shapes if shape and shape[0] > 0), None)


def in_batches(feeds: Mapping[str, Array], batch: int, whole: bool) -> list[dict[str, Array]]:
    """Return arrays by input name as feeds of at most so many samples, which are views of them.

    With `whole`, a smaller one at the end is left out. What is one number alone is in every feed.
    GraphError: there is no sample, or no feed is whole.
    """
    count = min((len(array) for array in feeds.values() if array.ndim), default=1)
    if not count:
        raise GraphError("the data hold no samples")
    end = count - count % batch if whole else count
    if not end:
        raise GraphError(f"the data hold {count} samples, but the graph takes {batch} at once")
    if end < count:
        logger.warning("the last %d of %d samples are left out, as the graph takes %d at once",
                       count - end, count, batch)  # fmt: skip
    return [
        {name: a[start : start + batch] if a.ndim else a for name, a in feeds.items()}
        for start in range(0, end, batch)
    ]
