"""Integers that an input accepts: valid indices of tables, sizes, and lengths."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.ops import input_ports, op_defs
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.shapes.sizes import Shape
from deploykit.verification.synthetic.input_uses import Use, reads_sparse, sparse_triples, uses

LARGEST = 255  # as in an image
SHORT = 8  # default for an unknown length
SIDE = 4  # fed sizes; equal to the number of samples, which they may have to match

Sizes = Callable[[str], Shape | None]  # shape of a tensor of the graph


@dataclass(frozen=True)
class Allowed:
    """The range of an input's integers, and their order."""

    low: int = 0
    high: int = LARGEST
    is_bound: bool = False
    """Whether an op that reads them sets limits, not only their dtype."""
    last: int = 0
    """For indices or a dense shape: size of the last axis if a reader determines it, else 0."""
    order: str = ""
    """"sorted": ascending order; "rows": distinct rows in ascending order; "splits": row splits
    of a ragged tensor; "shape": a shape whose first size is inferred (-1)."""

    def within(self, low: int, high: int, order: str = "") -> "Allowed":
        """Return the intersection with further limits."""
        high = max(min(self.high, high), 0)
        return Allowed(min(max(self.low, low), high), high, True, self.last, self.order or order)


# Limits of parameters such as sizes, axes and counts, by op and input index.
_PLAIN: Mapping[tuple[str, int], tuple[int, int]] = {
    ("ArgMax", 1): (0, 0), ("ArgMin", 1): (0, 0), ("BroadcastTo", 1): (SIDE, SIDE),
    ("Concat", 0): (0, 0), ("ConcatV2", -1): (0, 0), ("CropAndResize", 2): (0, 0),
    ("CropAndResize", 3): (SHORT, SHORT), ("Cumsum", 1): (0, 0), ("Div", 1): (1, LARGEST),
    ("ExpandDims", 1): (0, 0), ("Fill", 0): (SIDE, SIDE), ("FloorDiv", 1): (1, LARGEST),
    ("FloorMod", 1): (1, LARGEST), ("GatherV2", 2): (0, 0), ("LinSpace", 2): (2, SHORT),
    ("Mod", 1): (1, LARGEST), ("OneHot", 1): (SHORT, SHORT), ("Pad", 1): (0, 1),
    ("MirrorPad", 1): (0, 1), ("PadV2", 1): (0, 1), ("RandomUniform", 0): (SIDE, SIDE),
    ("Range", 0): (0, 0), ("Range", 1): (SIDE, SIDE), ("Range", 2): (1, 1),
    ("ResizeArea", 1): (SHORT, 4 * SHORT), ("ResizeBicubic", 1): (SHORT, 4 * SHORT),
    ("ResizeBilinear", 1): (SHORT, 4 * SHORT), ("ResizeNearestNeighbor", 1): (SHORT, 4 * SHORT),
    ("ScatterNd", 2): (SIDE, SIDE), ("Slice", 1): (0, 0), ("Slice", 2): (1, 1),
    ("Split", 0): (0, 0),
    ("StridedSlice", 1): (0, 0), ("StridedSlice", 2): (1, SHORT), ("StridedSlice", 3): (1, 1),
    ("Tile", 1): (1, 2), ("TopK", 1): (1, 1), ("TopKV2", 1): (1, 1),
    ("TruncateDiv", 1): (1, LARGEST), ("TruncateMod", 1): (1, LARGEST),
    **{(op, 1): (0, 0) for op in ("All", "Any", "Max", "Mean", "Min", "Prod", "Sum")},
}  # fmt: skip
# Lengths, limited by an axis of another input: its input index and the axis.
_LENGTHS = {
    ("BlockLSTM", 0): (1, 0), ("BlockLSTMV2", 0): (1, 0), ("CTCBeamSearchDecoder", 1): (0, 0),
    ("CTCGreedyDecoder", 1): (0, 0), ("ReverseSequence", 1): (0, 1),
}  # fmt: skip
_IN_A_LOOP = frozenset({"Merge", "NextIteration", "Switch"})
_COMPARING = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual"})


def limits(reading: list[Use], sizes: Sizes) -> Allowed:
    """Return the limits of a tensor from the ops that read it."""
    allowed = Allowed()
    for use in reading:
        try:
            allowed = _limited(use, allowed, sizes)
        except (Error, ArithmeticError, IndexError, TypeError, ValueError):
            continue  # TensorFlow would refuse this node
    return allowed


def whole_numbers(shape: tuple[int, ...], allowed: Allowed, random: "np.random.Generator") -> Array:
    """Return random integers of this shape within limits."""
    if allowed.order == "shape":
        return np.where(np.arange(int(np.prod(shape))).reshape(shape) == 0, -1, 1)
    if allowed.order == "splits" and len(shape) == 1:  # splits of as many values
        return np.linspace(0, shape[0], shape[0]).round().astype(np.int64)
    if allowed.order == "rows" and len(shape) == 2 and shape[1]:
        side = max(allowed.high + 1, int(np.ceil(shape[0] ** (1 / shape[1]))))
        sides = *(side,) * (shape[1] - 1), min(allowed.last or side, side)
        places = np.linspace(0, np.prod(sides) - 1, shape[0]).astype(np.int64)
        return np.asarray(np.stack(np.unravel_index(places, sides), axis=-1))
    values = random.integers(allowed.low, allowed.high, shape, endpoint=True)
    if allowed.last and values.ndim == 1:
        values[-1] = allowed.last
    return np.sort(values, axis=0) if allowed.order and values.ndim else values


def _limited(use: Use, allowed: Allowed, sizes: Sizes) -> Allowed:
    node, port, op = use.node, use.port, use.node.op
    is_last = port == len(node.data_inputs) - 1
    plain = _PLAIN.get((op, port)) or (_PLAIN.get((op, -1)) if is_last else None)
    if plain is not None:
        return allowed.within(*plain)
    if op == "Reshape" and port == 1:
        is_one = any(step.op in ("Pack", "ConcatV2") for step in use.steps())
        return allowed.within(SIDE, SIDE) if is_one else allowed.within(0, SHORT, "shape")
    if op in _COMPARING:
        return _compared(use, allowed, sizes)
    if _is_row_splits(use):
        return replace(allowed.within(0, LARGEST), order="splits")
    if (op, port) in _LENGTHS:
        place, axis = _LENGTHS[op, port]
        size = _size(use, place, node.attr("seq_dim", axis), sizes)
        return allowed.within(1, SHORT if size is None else size)
    if op.startswith("Segment") and port == 1:
        return allowed.within(0, SHORT, "sorted")
    if op.startswith("SparseSegment") and port:
        rows = _size(use, 0, 0, sizes)
        high = SHORT if port == 2 or rows is None else rows - 1
        return allowed.within(0, high, "sorted" if port == 2 else "")
    if reads_sparse(node):
        allowed = _sparse(use, allowed, sizes)
    rows = _rows(use, sizes)
    return allowed if rows is None else _shifted(use, allowed, rows)


def _shifted(use: Use, allowed: Allowed, rows: int) -> Allowed:
    """Return limits that keep numbers below `rows` after the additions on the path."""
    low, high = 0, rows - 1
    for node in use.steps():
        constants = [use.scope.constant(tensor) for tensor in node.data_inputs[:2]]
        added = next((c.value for c in constants if c is not None and c.value.size), None)
        if added is not None and node.op in ("Add", "AddV2", "Sub"):
            least, most = int(added.min()), int(added.max())
            if node.op == "Sub":
                least, most = -most, -least
            low, high = low - least, high - most
    return allowed.within(low, max(low, high))


def _rows(use: Use, sizes: Sizes) -> int | None:
    """Return the number of rows of the table that a node indexes, or None if it has none."""
    node, port, op = use.node, use.port, use.node.op
    if op in ("Gather", "GatherV2", "ResourceGather") and port == 1:
        axis = use.constant(2) if op == "GatherV2" else None
        return _size(use, 0, 0 if axis is None else int(axis.value), sizes)
    if op in ("GatherNd", "ResourceGatherNd") and port == 1:
        table, ids = _shape(use, 0, sizes), _shape(use, 1, sizes)
        depth = ids[-1] if ids and ids[-1] > 0 else None
        return min((s for s in (table or ())[:depth] if s > 0), default=None)
    if op == "ScatterNd" and port == 0:
        shape = use.constant(2)
        return SIDE if shape is None else int(shape.value.min())
    counted = {"OneHot": (0, 1), "UnsortedSegmentSum": (1, 2), "UnsortedSegmentMax": (1, 2),
               "UnsortedSegmentMin": (1, 2), "UnsortedSegmentProd": (1, 2), "Bincount": (0, 1),
               "DenseBincount": (0, 1), "DynamicPartition": (1, None)}.get(op)  # fmt: skip
    if counted is not None and port == counted[0]:
        if counted[1] is None:
            return int(node.attr("num_partitions"))
        constant = use.constant(counted[1])
        return None if constant is None else int(constant.value)
    if op in ("SparseSoftmaxCrossEntropyWithLogits", "InTopK", "InTopKV2") and port == 1:
        return _size(use, 0, -1, sizes)
    return None


def _compared(use: Use, allowed: Allowed, sizes: Sizes) -> Allowed:
    """Return limits for numbers that are compared with positions in a sequence."""
    other = use.node.data_inputs[1 - use.port]
    scope, tensor = use.scope.resolved(other)
    if other[:1] == "@":  # a loop body with a counter
        return allowed.within(1, SHORT)
    for _ in range(4):
        if producer_name(tensor) not in scope.graph:
            return allowed
        node = scope.graph.producer(tensor)
        constant = scope.constant(tensor)
        if node.op in _IN_A_LOOP:
            return allowed.within(1, SHORT)
        if constant is not None:
            value = constant.value.reshape(-1)
            is_count = value.size > 1 and np.array_equal(value, np.arange(value.size))
            return allowed.within(1, value.size) if is_count else allowed
        if node.op == "Range":
            size = (sizes(node.name) or (-1,))[0] if scope.caller is None else -1
            return allowed.within(1, size if size > 0 else SHORT)
        if node.op not in ("Cast", "ExpandDims", "Identity", "Reshape", "Tile"):
            return allowed
        tensor = node.data_inputs[0]
    return allowed


def _sparse(use: Use, allowed: Allowed, sizes: Sizes) -> Allowed:
    """Return limits for the indices or the dense shape of a sparse tensor."""
    for indices, _, shape in sparse_triples(use.node):
        if use.port not in (indices, shape):
            continue
        allowed = replace(allowed, last=allowed.last or _last_axis(use, sizes))
        if use.port == shape:
            return allowed.within(SIDE, SIDE)
        constant = use.constant(shape)
        side = SIDE if constant is None else int(constant.value.min())
        return replace(allowed.within(0, min(side, SIDE) - 1), order="rows")
    return allowed


def _last_axis(use: Use, sizes: Sizes) -> int:
    """Return the size of a sparse tensor's last axis from the matrix in a product, or 0."""
    node = use.node
    if node.op == "SparseTensorDenseMatMul" and not node.attr("adjoint_a", False):
        return _size(use, 3, 1 if node.attr("adjoint_b", False) else 0, sizes) or 0
    if node.op == "SparseToDense" and use.scope.caller is None:
        for reader in uses(use.scope.graph, node.name):
            if reader.is_first_factor:
                return _size(reader, 1, reader.rows_axis, sizes) or 0
    return 0


def _is_row_splits(use: Use) -> bool:
    """Return whether a node reads a tensor as row splits of a ragged tensor."""
    node = use.node
    if node.op.startswith("RaggedTensorTo"):
        ports = input_ports(node, op_defs()[node.op])
        if use.port in ports.get("rt_nested_splits", ()):
            return True
        kinds = node.attr("row_partition_types") or []
        partitions = ports.get("row_partition_tensors", range(0))
        return use.port in partitions and kinds[partitions.index(use.port)] == "ROW_SPLITS"
    if node.op != "StridedSlice" or use.port:
        return False
    for reader in use.scope.graph.readers(node.name):  # splits[1:] - splits[:-1]
        others = [use.scope.graph.producer(tensor) for tensor in reader.data_inputs]
        sliced = [o.data_inputs[0] for o in others if o.op == "StridedSlice"]
        if reader.op == "Sub" and sliced == [node.data_inputs[0]] * 2:
            return True
    return False


def _shape(use: Use, port: int, sizes: Sizes) -> Shape | None:
    constant = use.constant(port)
    if constant is not None:
        return constant.shape
    scope, tensor = use.scope.resolved(use.node.data_inputs[port])
    if producer_name(tensor) not in scope.graph or scope.caller is not None:
        return None
    node = scope.graph.producer(tensor)
    if node.op == "VarHandleOp":
        held: Shape | None = node.attr("shape")
        return held
    return sizes(tensor)


def _size(use: Use, port: int, axis: int, sizes: Sizes) -> int | None:
    shape = _shape(use, port, sizes)
    return shape[axis] if shape and shape[axis] > 0 else None
