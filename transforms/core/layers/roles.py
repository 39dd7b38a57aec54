"""What an op does with a large constant that it reads: weights of a layer, a table, or else.

Both roles are allow lists, for only there does an error in 8 bits stay as small as it was: a sum of
products averages it, a row that is looked up hands it on. What is added, compared, divided by or
multiplied value by value is neither.
"""

from collections.abc import Callable
from dataclasses import replace

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import LAYER_OPS, PRIVATE_OPS, WEIGHTS, channel_axes
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.sizes import Shape
from deploykit.transforms.core.tensors import Array

Axes = tuple[int, ...]  # ascending; they number the channels of a constant

# Op: the place of its filter or kernel, and its channel axes from the end. Those of LAYER_OPS are
# in `channel_axes`. What Conv...BackpropInput gives is [..., in], and its filter [..., in, out].
_KERNELS: dict[tuple[str, int], Axes] = {
    ("Conv", 1): (-1,),
    ("Conv3DBackpropInput", 1): (-2,),
    ("Conv3DBackpropInputV2", 1): (-2,),
    ("DepthwiseConv2dNativeBackpropInput", 1): (-2,),
    ("FusedPadConv2D", 2): (-1,),
    ("FusedResizeAndPadConv2D", 3): (-1,),
    ("BlockLSTM", 4): (-1,),
    ("BlockLSTMV2", 4): (-1,),
    ("GRUBlockCell", 2): (-1,),
    ("GRUBlockCell", 3): (-1,),
    ("LSTMBlockCell", 3): (-1,),
}
# Op: what says that its first or second operand is transposed.
_PRODUCTS = {
    "BatchMatMul": ("adj_x", "adj_y"),
    "BatchMatMulV2": ("adj_x", "adj_y"),
    "BatchMatMulV3": ("adj_x", "adj_y"),
    "MatMul": ("transpose_a", "transpose_b"),
    "SparseMatMul": ("transpose_a", "transpose_b"),
}
# Sums or means of rows of what they read first.
_ROW_SUMS = frozenset(
    f"SparseSegment{kind}{ending}"
    for kind in ("Mean", "SqrtN", "Sum")
    for ending in ("", "WithNumSegments")
)
_PASSING = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"})


class Roles:
    """The roles in one graph, or in the body of one function."""

    def __init__(
        self,
        graph: Graph,
        value: Callable[[str], Array | None],
        shape: Callable[[str], Shape | None],
    ) -> None:
        """Take what knows the value of a constant tensor, and the shape of any."""
        self._graph, self._value, self._shape = graph, value, shape

    def channels(self, reader: Node, place: int, rank: int) -> Axes | None:
        """Return the axes of an input that number a layer's output channels, or a table's rows.

        None: this op reads this input in another role. No axis: all of it makes one value.
        """
        axes = self._layer(reader, place, rank)
        if axes is None:
            axes = self._table(reader, place, rank)
        if axes is None or any(not 0 <= axis < rank for axis in axes):
            return None
        return tuple(sorted(set(axes)))

    def _layer(self, reader: Node, place: int, rank: int) -> Axes | None:
        op = PRIVATE_OPS.get(reader.op, reader.op)
        if op in _PRODUCTS:
            return self._product(replace(reader, op=op), place, rank)
        if op in LAYER_OPS and place == WEIGHTS:
            return channel_axes(replace(reader, op=op))
        if op == "Einsum":
            return self._einsum(reader, place, rank)
        kernel = _KERNELS.get((op, place))
        return None if kernel is None else tuple(rank + axis for axis in kernel)

    def _product(self, reader: Node, place: int, rank: int) -> Axes | None:
        """Return the rows of a first factor, or the columns of a second one, in each batch.

        What OneHot makes looks rows up where others sum them, so its product's factor is a table.
        """
        if place > 1 or rank < 2:
            return None
        flipped = reader.attr(_PRODUCTS[reader.op][place], False)
        picks = self._is_one_hot(reader.data_inputs[1 - place])
        kept = rank - 1 if (place + flipped + picks) % 2 else rank - 2
        return (*range(rank - 2), kept)

    def _einsum(self, reader: Node, place: int, rank: int) -> Axes | None:
        """Return the axes of an operand that its product with the other one keeps.

        It is a layer only where an axis of both is summed over: else it is no sum of products.
        """
        terms, arrow, result = str(reader.attr("equation", "")).replace(" ", "").partition("->")
        operands = terms.split(",")
        if len(operands) != 2 or place > 1 or not arrow:
            return None
        labels, other = _labels(operands[place], rank), operands[1 - place]
        if len(labels) != rank or len(set(labels)) < rank:  # a diagonal
            return None
        kept = {label for label in labels if label in result or label[0] == "."}
        summed = {label for label in labels if label in other} - kept
        if not summed:
            return None
        if self._is_one_hot(reader.data_inputs[1 - place]):
            kept = summed | {label for label in kept if label in other}
        return tuple(axis for axis, label in enumerate(labels) if label in kept)

    def _is_one_hot(self, tensor: str) -> bool:
        node = self._graph.producer(tensor)
        while node.op in _PASSING and not self._graph.is_input(node.name):
            node = self._graph.producer(node.data_inputs[0])
        return node.op == "OneHot"

    def _table(self, reader: Node, place: int, rank: int) -> Axes | None:
        if reader.op == "SparseTensorDenseMatMul" and place == 3:
            return (1,) if reader.attr("adjoint_b", False) else (0,)
        if place > 0:
            return None
        if reader.op in _ROW_SUMS or reader.op == "Gather":
            return (0,)
        if reader.op == "GatherV2":
            axis = self._value(reader.data_inputs[2])
            batches = reader.attr("batch_dims", 0)
            if axis is None or batches < 0:
                return None
            return (*range(batches), int(axis.item()) % max(rank, 1))
        if reader.op == "GatherNd":
            indices = self._shape(reader.data_inputs[1])
            return tuple(range(indices[-1])) if indices and indices[-1] >= 0 else None
        return None


def _labels(term: str, rank: int) -> list[str]:
    """Return one label an axis; those of an ellipsis are a dot and its number."""
    before, dots, after = term.partition("...")
    unnamed = [f".{i}" for i in range(rank - len(before) - len(after))] if dots else []
    return [*before, *unnamed, *after]
