"""The ops that read a constant, also through loops, branches and calls, and its role in them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.ir.functions import CALL_OPS, Body, Callee, Library, callees
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, tensor_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import FLOATS, LAYER_OPS, PRIVATE_OPS, WEIGHTS, channel_axes
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.runtime.numpy_kernels import KERNELS, UNCLEAR
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes

Axes = tuple[int, ...]  # ascending; they index the channels of a constant

# Op: the input index of its filter or kernel, and its channel axes from the end. `channel_axes` has
# those of LAYER_OPS. The result of Conv...BackpropInput is [..., in], its filter [..., in, out].
_KERNELS: dict[tuple[str, int], Axes] = {
    ("Conv", 1): (-1,),
    ("FusedPadConv2D", 2): (-1,),
    ("FusedResizeAndPadConv2D", 3): (-1,),
    **dict.fromkeys((("BlockLSTM", 4), ("BlockLSTMV2", 4), ("LSTMBlockCell", 3)), (-1,)),
    **dict.fromkeys((("GRUBlockCell", 2), ("GRUBlockCell", 3)), (-1,)),
    **dict.fromkeys((("Conv3DBackpropInput", 1), ("Conv3DBackpropInputV2", 1)), (-2,)),
    ("DepthwiseConv2dNativeBackpropInput", 1): (-2,),
}
# Op: the attributes that transpose its first or second operand.
_PRODUCTS = {
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
    **dict.fromkeys(("MatMul", "SparseMatMul"), ("transpose_a", "transpose_b")),
}
# Sums or means of rows of their first input.
_ROW_SUMS = frozenset(
    f"SparseSegment{kind}{ending}"
    for kind in ("Mean", "SqrtN", "Sum")
    for ending in ("", "WithNumSegments")
)
_PASSING = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"})


class Roles:
    """The roles of inputs in one graph, or in the body of one function."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._constants: Constants | None = None
        self._shapes: Shapes | None = None

    def value(self, tensor: str) -> Array | None:
        """Return the value of a constant tensor.

        A Const in a loop or branch of TensorFlow 1 waits for it, so `Constants` has it not.
        """
        if (const := self.graph.constant(tensor)) is not None:
            return const.value
        self._constants = self._constants or Constants(self.graph)
        return self._constants.value(tensor)

    def shape(self, tensor: str) -> Shape | None:
        """Return the shape of a tensor."""
        self._shapes = self._shapes or Shapes(self.graph)
        return self._shapes.shape(tensor)

    def channels(self, reader: Node, place: int, rank: int) -> Axes | None:
        """Return the axes of an input that index a layer's output channels, or a table's rows.

        None: the input has another role. No axes: all elements contribute to one value.
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
        """Return the axis of rows of a first factor, or of columns of a second one, in each batch.

        A product with the result of OneHot is a lookup, so its other factor is a table.
        """
        if place > 1 or rank < 2:
            return None
        flipped = reader.attr(_PRODUCTS[reader.op][place], False)
        picks = self._is_one_hot(reader.data_inputs[1 - place])
        retained = rank - 1 if (place + flipped + picks) % 2 else rank - 2
        return (*range(rank - 2), retained)

    def _einsum(self, reader: Node, place: int, rank: int) -> Axes | None:
        """Return the axes of an operand that its product with the other one keeps.

        It is a layer only if an axis of both is summed over: otherwise it is not a sum of products.
        """
        terms, arrow, result = str(reader.attr("equation", "")).replace(" ", "").partition("->")
        operands = terms.split(",")
        if len(operands) != 2 or place > 1 or not arrow:
            return None
        labels, other = _labels(operands[place], rank), operands[1 - place]
        if len(labels) != rank or len(set(labels)) < rank:  # a diagonal
            return None
        retained = {label for label in labels if label in result or label[0] == "."}
        summed = {label for label in labels if label in other} - retained
        if not summed:
            return None
        if self._is_one_hot(reader.data_inputs[1 - place]):
            retained = summed | {label for label in retained if label in other}
        return tuple(axis for axis, label in enumerate(labels) if label in retained)

    def _is_one_hot(self, tensor: str) -> bool:
        node = self.graph.producer(tensor)
        while node.op in _PASSING and not self.graph.is_input(node.name):
            node = self.graph.producer(node.data_inputs[0])
        return node.op == "OneHot"

    def _table(self, reader: Node, place: int, rank: int) -> Axes | None:
        if reader.op == "SparseTensorDenseMatMul" and place == 3:
            return (1,) if reader.attr("adjoint_b", False) else (0,)
        if place > 0:
            return None
        if reader.op in _ROW_SUMS or reader.op == "Gather":
            return (0,)
        if reader.op == "GatherV2":
            axis = self.value(reader.data_inputs[2])
            batches = reader.attr("batch_dims", 0)
            if axis is None or batches < 0:
                return None
            return (*range(batches), int(axis.item()) % max(rank, 1))
        if reader.op == "GatherNd":
            indices = self.shape(reader.data_inputs[1])
            return tuple(range(indices[-1])) if indices and indices[-1] >= 0 else None
        return None


def _labels(term: str, rank: int) -> list[str]:
    """Return one label per axis; those of an ellipsis are a dot and their index."""
    before, dots, after = term.partition("...")
    unnamed = [f".{i}" for i in range(rank - len(before) - len(after))] if dots else []
    return [*before, *unnamed, *after]


# Ops that pass their first input on unchanged, and the number of outputs that do.
_SAME_OPS = """
    CheckNumerics EnsureShape Enter GuaranteeConst Identity PreventGradient Snapshot StopGradient
"""
_SAME = {"Switch": 2, **dict.fromkeys(_SAME_OPS.split(), 1)}
# Ops that move their input or parts of it to other positions, and the index of that input.
_MOVING_OPS = "ExpandDims Reshape Slice Squeeze StridedSlice Transpose"
_MOVING = {"Split": 1, **dict.fromkeys(_MOVING_OPS.split(), 0)}
_SUMS = frozenset({"Add", "AddV2"})
_SHAPE_OPS = frozenset({"Rank", "Shape", "ShapeN", "Size"})
_LOOPS = frozenset({"StatelessWhile", "While"})
# Op: the index of its first argument, and the attributes that name its callees.
_CALLS = {
    **dict.fromkeys(("Case", "StatelessCase"), (1, ("branches",))),
    **dict.fromkeys(("If", "StatelessIf"), (1, ("then_branch", "else_branch"))),
    **dict.fromkeys(CALL_OPS, (0, ("f",))),
    **dict.fromkeys(_LOOPS, (0, ("body", "cond"))),
}
_MAX_PARTS = 1024  # real weights are not split into more

Move = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)  # nodes cannot be hashed; each call is made once for a spot
class Caller:
    """The call of a function with a constant, and the index of the argument."""

    spot: "ConstantSource"
    node: Node
    argument: int
    is_condition: bool


@dataclass(frozen=True)
class ConstantSource:
    """A tensor with a constant's values, and how they were moved there."""

    scope: Roles
    tensor: str
    moves: tuple[Move, ...] | None = ()  # None: the order does not matter
    caller: Caller | None = None


@dataclass(frozen=True)
class Reading:
    """An op that uses a constant's values, and the index of the input.

    Index -1: the values are fetched, or cannot be followed further.
    """

    spot: ConstantSource
    reader: Node
    place: int

    @property
    def is_fetched(self) -> bool:
        """Return whether the values are an output of the graph."""
        return self.place < 0 and self.spot.caller is None

    @property
    def is_moved(self) -> bool:
        """Return whether the reader gets the values in another order or shape."""
        return bool(self.spot.moves)

    def moved(self, array: Array) -> Array:
        """Return an array in the constant's shape, moved as for the reader."""
        for move in self.spot.moves or ():
            array = move(array)
        return array

    def channels(self, shape: tuple[int, ...]) -> Axes | None:
        """Return the axes that index channels in the reader's input, or None for another role."""
        if self.place < 0:
            return None
        try:
            seen = self.moved(np.broadcast_to(np.int8(0), shape))
        except UNCLEAR:  # TensorFlow would refuse it too
            return None
        if not seen.size:
            return None
        return self.spot.scope.channels(self.reader, self.place, seen.ndim)


class Readings:
    """The readers of a graph's constants."""

    def __init__(self, graph: Graph) -> None:
        """Index the graph; nodes that later replace constants under their names change nothing."""
        self._top = Roles(graph)
        self._library = Library(graph)
        self._scopes: dict[Callee, tuple[Roles, Body]] = {}

    def of(self, const: Node) -> list[Reading]:
        """Return the readers of a Const, without those that only read its shape."""
        return list(self._of(ConstantSource(self._top, const.name)))

    def of_rows(self, lookups: Iterable[Reading]) -> list[Reading]:
        """Return the readers of the results of lookups, also after sums."""
        spots = (replace(lookup.spot, tensor=lookup.reader.name, moves=None) for lookup in lookups)
        return list(self._of(*spots))

    def _of(self, *start: ConstantSource) -> Iterator[Reading]:
        waiting = list(start)
        summed: set[ConstantSource] = set()
        for spot in waiting:  # the list grows in the loop
            if spot.moves is None:
                if spot in summed:
                    continue
                summed.add(spot)
            graph, name = spot.scope.graph, producer_name(spot.tensor)
            if spot.caller is None and graph.is_output(name):
                yield Reading(spot, graph[name], -1)
            for reader in graph.readers(name):
                if reader.op in _SHAPE_OPS or graph.is_input(reader.name):
                    continue
                for place, tensor in enumerate(reader.data_inputs):
                    if tensor == spot.tensor:
                        following = self._behind(spot, reader, place)
                        if following is None:
                            yield Reading(spot, reader, place)
                        else:
                            waiting += following
            if spot.caller is not None and spot.tensor in graph.outputs:
                following = _returned(spot, spot.caller)
                if following is None:
                    yield Reading(spot.caller.spot, spot.caller.node, -1)
                else:
                    waiting += following

    def _behind(
        self, spot: ConstantSource, reader: Node, place: int
    ) -> list[ConstantSource] | None:
        """Return where a node passes the values on; None: it uses them."""
        scope, moves = spot.scope, spot.moves
        if reader.op in _CALLS:
            return self._called(spot, reader, place)
        if moves is None and reader.op in _SUMS:
            return [ConstantSource(scope, reader.name, None, spot.caller)]
        if reader.op in _MOVING:
            return _moved(spot, reader) if place == _MOVING[reader.op] else None
        if place > 0:
            return None
        if reader.op in _SAME or (reader.op == "Cast" and reader.attr("DstT") in FLOATS):
            ports = range(_SAME.get(reader.op, 1))
            return [
                ConstantSource(scope, tensor_name(reader.name, p), moves, spot.caller)
                for p in ports
            ]
        return None

    def _called(self, spot: ConstantSource, call: Node, place: int) -> list[ConstantSource] | None:
        first, attrs = _CALLS[call.op]
        argument = place - first
        if argument < 0:
            return None
        spots = []
        for attr in attrs:
            for callee in callees(call, attr):
                scope, body = self._body(callee)
                inner = f"@{argument}"
                if attr == "body" and scope.graph.source(body.results[argument]) != inner:
                    return None  # the next iteration of the loop has other values there
                caller = Caller(spot, call, argument, attr == "cond")
                spots.append(ConstantSource(scope, inner, spot.moves, caller))
        return spots

    def _body(self, callee: Callee) -> tuple[Roles, Body]:
        if callee not in self._scopes:
            body = self._library.body(callee)
            arguments = [Node(f"@{i}", "_Arg") for i in range(body.arguments)]
            graph = Graph([*arguments, *body.nodes], outputs=body.results)
            self._scopes[callee] = Roles(graph), body
        return self._scopes[callee]


def _returned(spot: ConstantSource, caller: Caller) -> list[ConstantSource] | None:
    """Return where the result of a function arrives; None: it is another variable of a loop."""
    ports = [i for i, tensor in enumerate(spot.scope.graph.outputs) if tensor == spot.tensor]
    if caller.is_condition or (caller.node.op in _LOOPS and ports != [caller.argument]):
        return None
    outer = caller.spot
    names = [tensor_name(caller.node.name, port) for port in ports]
    return [ConstantSource(outer.scope, name, spot.moves, outer.caller) for name in names]


def _moved(spot: ConstantSource, node: Node) -> list[ConstantSource] | None:
    """Return where a node moves values to, or None if that is unknown."""
    scope, place = spot.scope, _MOVING[node.op]
    others = [scope.value(t) for i, t in enumerate(node.data_inputs) if i != place]
    operands = [other for other in others if other is not None]
    parts = node.attr("num_split", 1)
    if parts > _MAX_PARTS or (spot.moves is not None and len(operands) < len(others)):
        return None
    spots = []
    for port in range(parts):
        moves = None if spot.moves is None else (*spot.moves, _move(node, operands, port))
        spots.append(replace(spot, tensor=tensor_name(node.name, port), moves=moves))
    return spots


def _move(node: Node, operands: list[Array], port: int) -> Move:
    if node.op == "Split":
        count, axis = node.attr("num_split"), operands[0]
        return lambda array: np.split(array, count, int(axis.item()))[port]
    return lambda array: KERNELS[node.op](node, array, *operands)
