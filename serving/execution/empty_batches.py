"""An empty batch, for a model whose kernels cannot compute one: a row of zeros takes its place.

oneDNN's convolutions give an empty batch the sizes that they read, which the next op may refuse;
sums of TensorFlow's first 8-bit ops refuse it; and `Dequantize` in mode SCALED, with oneDNN on,
ends the process. What a model makes of the row is cut off again.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.signatures import Tensor
from deploykit.transforms.core.protos import MetaGraphDef, NodeDef
from deploykit.transforms.core.tensors import Array

_HARMED = re.compile(r"_?(Fused)?Quantized\w+|_MklNative\w+")


def needs_rows(meta: MetaGraphDef) -> bool:
    """Say whether an op of a model is known to fail where a batch is empty."""
    graph = meta.graph_def
    bodies = (graph.node, *(function.node_def for function in graph.library.function))
    return any(map(_is_harmed, bodies))


def one_row(inputs: Mapping[str, Tensor], feeds: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return the feeds with a row of zeros in the place of an empty batch, or None if it is none.

    ServingError: there is nothing to compute, but no empty batch either.
    """
    empty = sorted(alias for alias, array in feeds.items() if not array.size)
    if not empty:
        return None
    batched = [alias for alias in feeds if is_open(inputs[alias]) and feeds[alias].ndim]
    for alias in empty:
        shape = feeds[alias].shape
        if alias not in batched or 0 in shape[1:]:
            raise refused("empty-batch-shape", alias=alias, shape=shape)
    for alias in sorted(set(batched) - set(empty)):
        raise refused("empty-batch-mixed", empty=empty[0], alias=alias, count=len(feeds[alias]))
    return {alias: _row(array) if alias in empty else array for alias, array in feeds.items()}


def without_row(tensor: Tensor, array: Array) -> Array:
    """Return an output without what became of the row."""
    return array[:0] if is_open(tensor) and array.ndim and len(array) == 1 else array


def is_open(tensor: Tensor) -> bool:
    """Say whether a tensor may have any number of rows."""
    return tensor.shape is None or (len(tensor.shape) > 0 and tensor.shape[0] < 0)


def _is_harmed(nodes: Iterable[NodeDef]) -> bool:
    kinds = {node.name: node.op for node in nodes}
    return any(
        _HARMED.fullmatch(node.op)
        or (
            node.op == "Dequantize"
            and node.attr["mode"].s == b"SCALED"
            and kinds.get(node.input[0].split(":")[0]) != "Const"  # weights have no batch
        )
        for node in nodes
    )


def _row(array: Array) -> Array:
    fill = b"" if array.dtype == np.object_ else 0
    return np.full((1, *array.shape[1:]), fill, array.dtype)
