"""Kernels of pure ops in NumPy: what batch norms and shapes are made of.

Each takes the node and its input arrays, and returns the array of its first output. A test holds
every kernel against TensorFlow's own, within 4 ulp. What is missing here is left to TensorFlow.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from transforms.core.node import Node
from transforms.core.tensors import Array, numpy_type

Kernel = Callable[..., Array]


def _elementwise(function: Callable[..., Array]) -> Kernel:
    return lambda node, *arrays: function(*arrays)


def _divide(node: Node, x: Array, y: Array) -> Array:
    if x.dtype.kind in "iu":  # C's division truncates towards zero
        quotient = np.abs(x) // np.abs(y)
        return np.where((x < 0) != (y < 0), -quotient, quotient).astype(x.dtype)
    return x / y


def _strided_slice(node: Node, x: Array, begin: Array, end: Array, strides: Array) -> Array:
    def bit(mask: str, i: int) -> bool:
        return bool(node.attr(mask, 0) >> i & 1)

    index: list[Any] = []
    for i in range(len(begin)):
        if bit("ellipsis_mask", i):
            index.append(Ellipsis)
        elif bit("new_axis_mask", i):
            index.append(None)
        elif bit("shrink_axis_mask", i):
            index.append(int(begin[i]))
        else:
            low = None if bit("begin_mask", i) else int(begin[i])
            high = None if bit("end_mask", i) else int(end[i])
            index.append(slice(low, high, int(strides[i])))
    result: Array = x[tuple(index)]
    return result


def _slice(node: Node, x: Array, begin: Array, size: Array) -> Array:
    ends = [None if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
    result: Array = x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]
    return result


def _squeeze(node: Node, x: Array) -> Array:
    axes = node.attr("squeeze_dims") or node.attr("axis") or []
    return np.squeeze(x, tuple(axes) if axes else None)


def _reduce(function: Callable[..., Array]) -> Kernel:
    def kernel(node: Node, x: Array, axes: Array) -> Array:
        axis = tuple(np.atleast_1d(axes).tolist())
        return function(x, axis=axis, keepdims=node.attr("keep_dims", False), dtype=x.dtype)

    return kernel


def _reduce_select(function: Callable[..., Array]) -> Kernel:
    def kernel(node: Node, x: Array, axes: Array) -> Array:
        axis = tuple(np.atleast_1d(axes).tolist())
        return function(x, axis=axis, keepdims=node.attr("keep_dims", False))

    return kernel


def _out_type(node: Node) -> Any:
    return numpy_type(node.attr("out_type", "int32"))


def _cast(node: Node, x: Array) -> Array:
    return x.astype(numpy_type(node.attr("DstT")))


def _gather(node: Node, x: Array, indices: Array, axis: Array) -> Array:
    if node.attr("batch_dims", 0):
        raise NotImplementedError("batch_dims")
    return np.take(x, indices, int(axis))


def _select(node: Node, condition: Array, x: Array, y: Array) -> Array:
    return _select_broadcast(
        node, condition.reshape(condition.shape + (1,) * (x.ndim - condition.ndim)), x, y
    )


def _select_broadcast(node: Node, condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


# Sums and products of floats depend on their order, so they are here for integers only.
INTEGERS_ONLY = frozenset({"Sum", "Prod"})

KERNELS: dict[str, Kernel] = {
    "Abs": _elementwise(np.abs),
    "Add": _elementwise(operator.add),
    "AddV2": _elementwise(operator.add),
    "All": _reduce_select(np.all),
    "Any": _reduce_select(np.any),
    "BroadcastTo": lambda node, x, shape: np.broadcast_to(x, tuple(shape)),
    "Cast": _cast,
    "Concat": lambda node, axis, *xs: np.concatenate(xs, int(axis)),
    "ConcatV2": lambda node, *xs: np.concatenate(xs[:-1], int(xs[-1])),
    "Equal": _elementwise(operator.eq),
    "ExpandDims": lambda node, x, axis: np.expand_dims(x, int(axis)),
    "Fill": lambda node, shape, value: np.broadcast_to(value, tuple(shape)),
    "Floor": _elementwise(np.floor),
    "FloorDiv": _elementwise(operator.floordiv),
    "FloorMod": _elementwise(operator.mod),
    "GatherV2": _gather,
    "Greater": _elementwise(operator.gt),
    "GreaterEqual": _elementwise(operator.ge),
    "Identity": _elementwise(lambda x: x),
    "Less": _elementwise(operator.lt),
    "LessEqual": _elementwise(operator.le),
    "LogicalAnd": _elementwise(operator.and_),
    "LogicalNot": _elementwise(np.logical_not),
    "LogicalOr": _elementwise(operator.or_),
    "Max": _reduce_select(np.max),
    "Maximum": _elementwise(np.maximum),
    "Min": _reduce_select(np.min),
    "Minimum": _elementwise(np.minimum),
    "Mul": _elementwise(operator.mul),
    "Neg": _elementwise(operator.neg),
    "NotEqual": _elementwise(operator.ne),
    "OnesLike": _elementwise(np.ones_like),
    "Pack": lambda node, *xs: np.stack(xs, node.attr("axis", 0)),
    "Prod": _reduce(np.prod),
    "Range": lambda node, start, limit, step: np.arange(start, limit, step, dtype=start.dtype),
    "Rank": lambda node, x: np.array(x.ndim, np.int32),
    "RealDiv": _divide,
    "Reciprocal": _elementwise(lambda x: np.ones((), x.dtype) / x),
    "Reshape": lambda node, x, shape: x.reshape(tuple(shape)),
    "Rsqrt": _elementwise(lambda x: np.ones((), x.dtype) / np.sqrt(x)),
    "Select": _select,
    "SelectV2": _select_broadcast,
    "Shape": lambda node, x: np.array(x.shape, _out_type(node)),
    "Size": lambda node, x: np.array(x.size, _out_type(node)),
    "Slice": _slice,
    "Snapshot": _elementwise(lambda x: x),
    "Sqrt": _elementwise(np.sqrt),
    "Square": _elementwise(np.square),
    "SquaredDifference": _elementwise(lambda x, y: np.square(x - y)),
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Sub": _elementwise(operator.sub),
    "Sum": _reduce(np.sum),
    "Tile": lambda node, x, multiples: np.tile(x, tuple(multiples)),
    "Transpose": lambda node, x, axes: np.transpose(x, tuple(axes)),
    "TruncateDiv": _divide,
    "ZerosLike": _elementwise(np.zeros_like),
}
