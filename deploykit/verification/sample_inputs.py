"""What a graph takes: type and shape of its inputs, and values made up for them."""

from collections.abc import Sequence

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import split
from deploykit.transforms.core.ops import op_defs, output_types
from deploykit.transforms.core.tensors import Array, numpy_type

BATCH = 2  # one example would not show a mix-up of examples
UNKNOWN_SIZE = 96  # for sizes that a placeholder leaves open; the smallest that InceptionV3 takes


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


def made_up_feeds(graph: Graph, input_range: tuple[float, float]) -> tuple[dict[str, Array], str]:
    """Return made-up arrays to feed, and why there are none."""
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        type_, shape, reason = type_and_shape(graph, tensor)
        if reason:
            return {}, reason
        if not can_be_made_up(type_):
            return {}, f"input '{tensor}' is of type {type_}, which cannot be made up"
        if shape is None:
            return {}, f"input '{tensor}' has no known shape; give --data"
        sizes = [s if s >= 0 else BATCH if i == 0 else UNKNOWN_SIZE for i, s in enumerate(shape)]
        feeds[tensor] = made_up(type_, sizes, input_range, random)
    return feeds, ""


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


def demanded_batch(graph: Graph) -> int | None:
    """Return how many samples the inputs demand at once, or None where they leave it open."""
    shapes = [type_and_shape(graph, tensor)[1] for tensor in graph.inputs]
    return next((shape[0] for shape in shapes if shape and shape[0] > 0), None)
