"""Kernels of pure ops in NumPy, for the ops of batch norms and shapes."""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, numpy_type

_AT_ONCE = 1 << 16  # numbers that fit into the CPU cache

# Type: the unsigned type of the same size, and all bits of the fraction.
_FRACTIONS: dict[str, tuple[Any, int]] = {
    "float32": (np.uint32, (1 << 23) - 1),
    "float64": (np.uint64, (1 << 52) - 1),
    "bfloat16": (np.uint16, (1 << 7) - 1),
}


def has_subnormals(array: Array) -> bool:
    """Return whether an array has subnormal numbers, which TensorFlow flushes to 0, in one pass."""
    if array.dtype.kind == "c":
        return has_subnormals(array.real) or has_subnormals(array.imag)
    unsigned, fraction = _fraction_of(array.dtype)
    if not fraction or not array.size:
        return False
    bits = array.view(unsigned)
    without_sign = unsigned(2 ** (8 * bits.itemsize - 1) - 1)
    parts: Any = [bits.reshape(-1)]
    if bits.size > _AT_ONCE:
        parts = np.nditer(bits, ["external_loop", "buffered"], buffersize=_AT_ONCE)
    # Exponent 0 with a nonzero fraction; 0 itself wraps around to the largest number.
    return any(((part & without_sign) - unsigned(1) < unsigned(fraction)).any() for part in parts)


@functools.lru_cache
def _fraction_of(dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Return the entry of a type in `_FRACTIONS`; a fraction of 0: there is none."""
    return _FRACTIONS.get(dtype.name, (None, 0))  # NumPy rebuilds the name at each access


def refuse_subnormals(*arrays: Array) -> None:
    """Raise NotImplementedError for numbers that TensorFlow flushes to 0, unlike NumPy."""
    if any(map(has_subnormals, arrays)):
        raise NotImplementedError("numbers that TensorFlow flushes to 0")


Kernel = Callable[..., Array]

# A few bytes of a graph can request gigabytes. Larger values are not computed from constants,
# neither as a result nor as an intermediate value. The largest weights of common models take 411
# MB.
MAX_BYTES = 512 << 20


def check_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise LimitError if an array of this shape is too large to be computed."""
    if math.prod(shape) * dtype.itemsize > MAX_BYTES:
        raise LimitError("constant-too-large", shape=shape)


def _elementwise(function: Callable[..., Array]) -> Kernel:
    def kernel(node: Node, *arrays: Array) -> Array:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        check_bytes(shape, max((array.dtype for array in arrays), key=lambda d: d.itemsize))
        return function(*arrays)

    return kernel


def _integer_divisor(y: Array) -> None:
    if y.dtype.kind in "iu" and not y.all():
        raise ZeroDivisionError("an integer is divided by zero")


def _floor_div(x: Array, y: Array) -> Array:
    _integer_divisor(y)
    if x.dtype.kind in "iu":
        quotient: Array = x // y
        return quotient
    quotient = x / y
    refuse_subnormals(quotient)
    return np.floor(quotient)


def _floor_mod(x: Array, y: Array) -> Array:
    _integer_divisor(y)
    if x.dtype.kind in "iu":
        rest: Array = x % y
        return rest
    rest = np.fmod(x, y)
    refuse_subnormals(rest)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _truncate_div(x: Array, y: Array) -> Array:
    """Divide integers as C does: towards zero."""
    if x.dtype.kind not in "iu":
        raise NotImplementedError("TruncateDiv of floats")
    _integer_divisor(y)
    quotient: Array = x // y + ((x % y != 0) & ((x < 0) != (y < 0)))
    return quotient


def _squared_difference(x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":  # TensorFlow multiplies by the conjugate
        raise NotImplementedError("SquaredDifference of complex numbers")
    difference: Array = x - y
    return np.square(difference)


def _broadcast(x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, tuple(shape.tolist()))  # a view, independent of the size


def _reshape(node: Node, x: Array, shape: Array) -> Array:
    if (shape < -1).any():
        raise ValueError("a size is negative")
    return x.reshape(tuple(shape.tolist()))


def _concat(axis: Array, xs: tuple[Array, ...]) -> Array:
    check_bytes((sum(x.size for x in xs),), xs[0].dtype)
    return np.concatenate(xs, int(axis.item()))


def _pack(node: Node, *xs: Array) -> Array:
    check_bytes((len(xs), *xs[0].shape), xs[0].dtype)
    return np.stack(xs, node.attr("axis", 0))


def _tile(node: Node, x: Array, multiples: Array) -> Array:
    if multiples.shape != (x.ndim,) or (multiples < 0).any():
        raise ValueError("there must be one multiple for each dimension")
    check_bytes((x.size, *multiples.tolist()), x.dtype)
    return np.tile(x, tuple(multiples.tolist()))


def _range(node: Node, start: Array, limit: Array, step: Array) -> Array:
    if start.dtype.kind not in "iu":
        raise NotImplementedError("TensorFlow adds up the steps of floats")
    first, last, by = int(start), int(limit), int(step)
    if not by or (last - first) * by < 0:
        raise ValueError("the limit is not in the direction of the step")
    check_bytes((abs((last - first) // by) + 1,), start.dtype)
    return np.arange(first, last, by, dtype=start.dtype)


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
    index = []
    for low, count, full in zip(begin.tolist(), size.tolist(), x.shape, strict=True):
        high = full if count == -1 else low + count
        if not 0 <= low <= high <= full:
            raise ValueError("the slice is out of bounds")
        index.append(slice(low, high))
    result: Array = x[tuple(index)]
    return result


def _squeeze(node: Node, x: Array) -> Array:
    axes = node.attr("squeeze_dims") or node.attr("axis") or []
    return np.squeeze(x, tuple(axes) if axes else None)


def _reduce(function: Callable[..., Array], is_sum: bool = False) -> Kernel:
    def kernel(node: Node, x: Array, axes: Array) -> Array:
        if is_sum and x.dtype.kind not in "iu":
            raise NotImplementedError("sums and products of floats depend on their order")
        axis, types = tuple(np.atleast_1d(axes).tolist()), {"dtype": x.dtype} if is_sum else {}
        return function(x, axis=axis, keepdims=node.attr("keep_dims", False), **types)

    return kernel


def _out_type(node: Node) -> Any:
    return numpy_type(node.attr("out_type", "int32"))


def _cast(node: Node, x: Array) -> Array:
    to = numpy_type(node.attr("DstT"))
    if node.attr("Truncate", False) or "O" in (x.dtype.kind, to.kind):
        raise NotImplementedError("truncation, and text")
    if x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    if to.kind in "iu" and x.dtype.kind not in "biu":
        bounds = np.iinfo(to)
        wide = x.astype(np.float64)
        if not ((wide > bounds.min - 1.0) & (wide < bounds.max + 1.0)).all():
            raise NotImplementedError("floats beyond the integers, for which no rule exists")
    return x.astype(to)


def _gather(node: Node, x: Array, indices: Array, axis: Array) -> Array:
    if node.attr("batch_dims", 0):
        raise NotImplementedError("batch_dims")
    if (indices < 0).any():
        raise IndexError("an index is negative")
    at = int(axis.item())
    check_bytes((*indices.shape, x.size // max(x.shape[at], 1)), x.dtype)
    return np.take(x, indices, at)


def _select(node: Node, condition: Array, x: Array, y: Array) -> Array:
    if x.shape != y.shape:
        raise ValueError("both branches must have the same shape")
    if condition.shape != x.shape and condition.ndim > 1:
        raise ValueError("the condition must be a scalar or a vector, or have the branches' shape")
    ones = (1,) * (x.ndim - condition.ndim) if condition.ndim else ()
    return np.where(condition.reshape(condition.shape + ones), x, y)


def _like(function: Callable[..., Array]) -> Callable[..., Array]:
    def like(x: Array) -> Array:
        if x.dtype.kind == "O":
            raise NotImplementedError("text")
        return np.broadcast_to(function((), x.dtype), x.shape)

    return like


UNCLEAR = (ArithmeticError, IndexError, NotImplementedError, TypeError, ValueError)
"""Errors of kernels and shape rules: the result is unknown, or TensorFlow would refuse the op."""

# These return their input or only read its shape; the others compute values.
_MOVING_OPS = """
    BroadcastTo Concat ConcatV2 ExpandDims Fill GatherV2 Identity OnesLike Pack Rank Reshape Select
    SelectV2 Shape Size Slice Snapshot Squeeze StopGradient StridedSlice Tile Transpose ZerosLike
"""
MOVING_OPS = frozenset(_MOVING_OPS.split())

KERNELS: dict[str, Kernel] = {
    "Abs": _elementwise(np.abs),
    "Add": _elementwise(operator.add),
    "AddV2": _elementwise(operator.add),
    "All": _reduce(np.all),
    "Any": _reduce(np.any),
    "BroadcastTo": lambda node, x, shape: _broadcast(x, shape),
    "Cast": _cast,
    "Concat": lambda node, axis, *xs: _concat(axis, xs),
    "ConcatV2": lambda node, *xs: _concat(xs[-1], xs[:-1]),
    "Equal": _elementwise(operator.eq),
    "ExpandDims": lambda node, x, axis: np.expand_dims(x, int(axis.item())),
    "Fill": lambda node, shape, value: _broadcast(value, shape),
    "Floor": _elementwise(np.floor),
    "FloorDiv": _elementwise(_floor_div),
    "FloorMod": _elementwise(_floor_mod),
    "GatherV2": _gather,
    "Greater": _elementwise(operator.gt),
    "GreaterEqual": _elementwise(operator.ge),
    "Identity": lambda node, x: x,
    "Less": _elementwise(operator.lt),
    "LessEqual": _elementwise(operator.le),
    "LogicalAnd": _elementwise(operator.and_),
    "LogicalNot": _elementwise(np.logical_not),
    "LogicalOr": _elementwise(operator.or_),
    "Max": _reduce(np.max),
    "Maximum": _elementwise(np.maximum),
    "Min": _reduce(np.min),
    "Minimum": _elementwise(np.minimum),
    "Mul": _elementwise(operator.mul),
    "Neg": _elementwise(operator.neg),
    "NotEqual": _elementwise(operator.ne),
    "OnesLike": _elementwise(_like(np.ones)),
    "Pack": _pack,
    "Prod": _reduce(np.prod, is_sum=True),
    "Range": _range,
    "Rank": lambda node, x: np.array(x.ndim, np.int32),
    "RealDiv": _elementwise(operator.truediv),
    "Reciprocal": _elementwise(lambda x: np.ones((), x.dtype) / x),
    "Reshape": _reshape,
    "Rsqrt": _elementwise(lambda x: np.ones((), x.dtype) / np.sqrt(x)),
    "Select": _select,
    "SelectV2": _elementwise(np.where),
    "Shape": lambda node, x: np.array(x.shape, _out_type(node)),
    "Size": lambda node, x: np.array(x.size, _out_type(node)),
    "Slice": _slice,
    "Snapshot": lambda node, x: x,
    "Sqrt": _elementwise(np.sqrt),
    "Square": _elementwise(np.square),
    "SquaredDifference": _elementwise(_squared_difference),
    "Squeeze": _squeeze,
    "StopGradient": lambda node, x: x,
    "StridedSlice": _strided_slice,
    "Sub": _elementwise(operator.sub),
    "Sum": _reduce(np.sum, is_sum=True),
    "Tile": _tile,
    "Transpose": lambda node, x, axes: np.transpose(x, tuple(axes.tolist())),
    "TruncateDiv": _elementwise(_truncate_div),
    "ZerosLike": _elementwise(_like(np.zeros)),
}
