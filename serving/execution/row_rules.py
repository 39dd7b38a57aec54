"""Rules for ops that process each example of a batch independently, or move and measure axes: the
effect of cutting the batch on their outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.shapes.sizes import Shape, product, require
from deploykit.transforms.shapes.static_shapes import Shapes


class Kind(Enum):
    """How a tensor without rows depends on the number of examples in a chunk."""

    SAME = "independent of it"
    COUNT = "the number of examples, a scalar"
    SHAPE = "a shape whose first size is that number"
    SIZES = "any other function of it"


@dataclass(frozen=True)
class Rows:
    """A tensor with `each` rows per example, computed from that example only."""

    each: int = 1


What = Kind | Rows
Kinds = Sequence[What]


class Facts:
    """The properties of a graph that rules use."""

    def __init__(self, graph: Graph) -> None:
        """Infer the shapes of the graph."""
        self.graph = graph
        self._shapes = Shapes(graph)

    def shape(self, tensor: str) -> Shape:
        """Return a shape, with -1 for unknown sizes. ValueError: its rank is unknown."""
        return require(self._shapes.shape(tensor))

    def rank(self, node: Node, place: int = 0) -> int:
        """Return the rank of an input. ValueError: it is unknown."""
        return len(self.shape(node.data_inputs[place]))

    def numbers(self, node: Node, place: int) -> list[int]:
        """Return the values of a constant input. ValueError: it is not constant."""
        return [int(n) for n in require(self.graph.constant(node.data_inputs[place])).value.flat]

    def is_beside(self, tensor: str, rank: int) -> bool:
        """Return whether a tensor without rows broadcasts to each row of a tensor of this rank."""
        shape = self.shape(tensor)
        return len(shape) < rank or (len(shape) == rank and shape[0] == 1)


Rule = Callable[[Facts, Node, Kinds], What]
"""Returns the kind of a node's outputs from those of its inputs. ValueError: nothing is proved."""


def table(*rules: tuple[Rule, str]) -> dict[str, Rule]:
    """Return the rules by op name."""
    return {op: rule for rule, ops in rules for op in ops.split()}


def must(holds: bool) -> None:
    """Raise ValueError if a condition does not hold."""
    if not holds:
        raise ValueError("examples may interact")


def same(kinds: Kinds) -> What:
    """Return `Kind.SAME`. ValueError: an input depends on the batch."""
    must(all(kind == Kind.SAME for kind in kinds))
    return Kind.SAME


def first(kinds: Kinds) -> Rows:
    """Return the rows of the first input. ValueError: another input depends on the batch."""
    rows, *rest = kinds
    same(rest)
    must(isinstance(rows, Rows))
    assert isinstance(rows, Rows)
    return rows


def common(kinds: Kinds) -> Rows:
    """Return the `Rows` that all inputs with rows share. ValueError: they differ."""
    results = {kind for kind in kinds if isinstance(kind, Rows)}
    must(len(results) == 1)
    must(all(isinstance(kind, Rows) or kind == Kind.SAME for kind in kinds))
    return results.pop()


def rows_if(holds: Callable[[Facts, Node], bool]) -> Rule:
    """Return the rule of ops that keep the rows of their first input, under a condition."""

    def rule(proof: Facts, node: Node, kinds: Kinds) -> What:
        must(holds(proof, node))
        return first(kinds)

    return rule


def _each_alone(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Elementwise ops; inputs of lower rank broadcast to each row."""
    if len(kinds) == 1 and not isinstance(kinds[0], Rows):
        return kinds[0] if node.op in ("Cast", "Identity", "StopGradient") else Kind.SIZES
    if not any(isinstance(kind, Rows) for kind in kinds):
        return Kind.SIZES
    rows = common(kinds)
    if len(kinds) > 1:
        rank = max(len(proof.shape(tensor)) for tensor in node.data_inputs)
        for tensor, kind in zip(node.data_inputs, kinds, strict=True):
            if isinstance(kind, Rows):
                must(len(proof.shape(tensor)) == rank)
            else:
                must(proof.is_beside(tensor, rank))
    return rows


def _alike(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Elementwise ops on tensors of the same shape and scalars."""
    for tensor, kind in zip(node.data_inputs, kinds, strict=True):
        must(isinstance(kind, Rows) or not proof.shape(tensor))
    return _each_alone(proof, node, kinds)


def _has_fixed_ranges(_: Facts, node: Node) -> bool:
    is_given = not node.op.startswith("QuantizeAndDequantize")
    return node.attr("axis", -1) != 0 and bool(node.attr("range_given", is_given))


def _fused(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Fused layers that may add another tensor with rows."""
    rank = proof.rank(node)
    must(rank >= 2 and not node.attr("transpose_a", False))
    same(kinds[1:2])
    for place, kind in enumerate(kinds):
        must(not isinstance(kind, Rows) or proof.rank(node, place) == rank)
    must(isinstance(kinds[0], Rows))
    return common(kinds)


def _transposed_convolution(_: Facts, node: Node, kinds: Kinds) -> What:
    sizes, weights, rows = kinds
    must(sizes == Kind.SHAPE and weights == Kind.SAME and rows == Rows())
    return Rows()


def _products(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Batched matrix products: the rows index the matrices, or are those of the one matrix."""
    ranks = [proof.rank(node, place) for place in (0, 1)]
    rank = max(ranks)
    if rank == 2:
        must(not node.attr("adj_x", False))
        return first(kinds)
    for tensor, kind in zip(node.data_inputs, kinds, strict=True):
        if isinstance(kind, Rows):
            must(len(proof.shape(tensor)) == rank)
        else:
            must(proof.is_beside(tensor, rank))
    return common(kinds)


def _einsum(_: Facts, node: Node, kinds: Kinds) -> What:
    terms, arrow, result = str(node.attr("equation")).replace(" ", "").partition("->")
    must(bool(arrow and result) and "." not in terms)
    row = result[0]
    for labels, kind in zip(terms.split(","), kinds, strict=True):
        held = isinstance(kind, Rows)
        must(labels[:1] == row if held else row not in labels)
        must(not held or row not in labels[1:])
    must(row not in result[1:])
    return common(kinds)


def _spare(proof: Facts, node: Node, axes: Sequence[int], added: int = 0) -> bool:
    """Return whether none of the axes is the batch axis; `added` axes are new."""
    return all(range(proof.rank(node) + added)[axis] for axis in axes)


def _joined(proof: Facts, node: Node, kinds: Kinds) -> What:
    *parts, axis = kinds
    same([axis])
    (along,) = proof.numbers(node, len(parts))
    if not any(isinstance(kind, Rows) for kind in kinds):
        begins = parts[0] == Kind.SHAPE and along == 0
        return Kind.SHAPE if begins and set(parts[1:]) <= {Kind.SAME} else Kind.SIZES
    must(all(isinstance(kind, Rows) for kind in parts))
    must(range(proof.rank(node))[along] != 0)
    return common(parts)


def _packed(proof: Facts, node: Node, kinds: Kinds) -> What:
    if not any(isinstance(kind, Rows) for kind in kinds):
        begins = kinds[0] == Kind.COUNT and not node.attr("axis", 0)
        return Kind.SHAPE if begins and set(kinds[1:]) <= {Kind.SAME} else Kind.SIZES
    must(all(isinstance(kind, Rows) for kind in kinds))
    must(range(proof.rank(node) + 1)[node.attr("axis", 0)] != 0)
    return common(kinds)


def _cut(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Split has inputs (axis, rows), SplitV (rows, sizes, axis)."""
    read, along = (1, 0) if node.op == "Split" else (0, 2)
    (axis,) = proof.numbers(node, along)
    must(range(proof.rank(node, read))[axis] != 0)
    return first([kinds[read], *kinds[:read], *kinds[read + 1 :]])


def _tiled(proof: Facts, node: Node, kinds: Kinds) -> What:
    if list(kinds) == [Kind.SAME, Kind.SHAPE]:
        must(proof.shape(node.data_inputs[0])[0] == 1)
        return Rows()
    must(proof.numbers(node, 1)[0] == 1)
    return first(kinds)


def _filled(_: Facts, node: Node, kinds: Kinds) -> What:
    must(list(kinds) == [Kind.SHAPE, Kind.SAME])
    return Rows()


def _looked_up(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Gather rows of a table by index, columns of each row, or per row its own columns."""
    table, numbers = kinds[:2]
    same(kinds[2:])
    axis = proof.numbers(node, 2)[0] if node.op == "GatherV2" else 0
    own = node.attr("batch_dims", 0)
    if isinstance(table, Rows):
        axis = range(proof.rank(node))[axis]
        must(axis > 0 and own == (1 if isinstance(numbers, Rows) else 0))
    else:
        must(axis == 0 and own == 0)
    return common((table, numbers))


def _found(_: Facts, node: Node, kinds: Kinds) -> What:
    """Look up strings in a table that nothing in this graph writes."""
    table, words, default = kinds
    same((table, default))
    must(isinstance(words, Rows))
    return words


def _strided(proof: Facts, node: Node, kinds: Kinds) -> What:
    masks = {name: node.attr(f"{name}_mask", 0) for name in
             ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    begin, end, step = (proof.numbers(node, place) for place in (1, 2, 3))
    same(kinds[1:])
    if kinds[0] == Kind.SHAPE and len(begin) == 1 and step == [1]:
        return _part_of_shape(masks, begin[0], end[0])
    if not isinstance(kinds[0], Rows):
        return Kind.SIZES
    if masks["ellipsis"] & 1:
        held = masks["new_axis"] | masks["ellipsis"]
        read = sum(not held >> place & 1 for place in range(len(begin)))
        must(proof.rank(node) > read)  # the ellipsis covers at least the batch axis
    else:
        must(not (masks["new_axis"] | masks["shrink_axis"]) & 1)
        must(bool(masks["begin"] & 1 or begin[0] == 0) and bool(masks["end"] & 1))
        must(step[0] == 1)
    return kinds[0]


def _part_of_shape(masks: Mapping[str, int], begin: int, end: int) -> What:
    """Return the kind of a slice of a shape that begins with the number of examples."""
    if masks["ellipsis"] or masks["new_axis"] or begin < 0:
        return Kind.SIZES
    start = 0 if masks["begin"] else begin
    if masks["shrink_axis"]:
        return Kind.SAME if begin else Kind.COUNT
    if start:
        return Kind.SAME
    return Kind.SHAPE if masks["end"] or end > 0 else Kind.SIZES


def _reshaped(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Reshape: the order of elements is kept, so rows stay whole if their size is known."""
    rows, sizes = kinds
    if not isinstance(rows, Rows):
        return Kind.SIZES
    if sizes == Kind.SHAPE:
        return Rows()
    must(sizes in (Kind.SAME, Kind.SIZES))
    (_, *given), (count, *expected) = (proof.shape(t) for t in (node.data_inputs[0], node.name))
    elements, width = rows.each * product(1, *given), product(1, *expected)
    must(count < 0 < min(elements, width) and elements % width == 0)
    return Rows(elements // width)


_CODED = """_FusedQuantizedConv2D _FusedQuantizedDepthwiseConv2D _QuantizedMatMul"""
WITH_RANGES = frozenset({*_CODED.split(), "QuantizeV2", "QuantizedAvgPool", "QuantizedMaxPool"})
RULES = table(
    (_each_alone, """
     Abs Add AddV2 Cast Ceil Cos Div DivNoNan Elu Equal Erf Erfc Exp Expm1 Floor
     FloorDiv FloorMod Greater GreaterEqual Identity Inv IsFinite IsInf IsNan LeakyRelu Less
     LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Neg
     NotEqual OnesLike Pow PreventGradient RealDiv Reciprocal Relu Relu6 Rint Round Rsqrt
     SelectV2 Selu Sigmoid Sign Sin Snapshot Softplus Softsign Sqrt Square SquaredDifference
     StopGradient Sub Tan Tanh TruncateDiv ZerosLike"""),
    (_alike, "AddN ClipByValue Select"),
    (rows_if(lambda *_: True), """
     Conv2D Conv3D DepthwiseConv2dNative DepthToSpace SpaceToDepth LRN
     BatchNormWithGlobalNormalization ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
     FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars"""),
    (rows_if(lambda proof, node: proof.rank(node) >= 2), """
     BiasAdd BiasAddV1 FakeQuantWithMinMaxVarsPerChannel LogSoftmax Softmax TopKV2
     _MklLayerNorm"""),
    (rows_if(_has_fixed_ranges),
     "Dequantize QuantizeV2 QuantizeAndDequantizeV2 QuantizeAndDequantizeV4"),
    (rows_if(lambda _, node: node.attr("ksize")[0] == node.attr("strides")[0] == 1),
     "AvgPool AvgPool3D MaxPool MaxPool3D QuantizedAvgPool QuantizedMaxPool"),
    (rows_if(lambda _, node: node.attr("is_training", True) is False),
     "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    (_fused, f"""
     {_CODED} _MklNativeFusedConv2D _MklNativeFusedDepthwiseConv2dNative _MklNativeFusedMatMul"""),
    (_transposed_convolution, "Conv2DBackpropInput"),
    (rows_if(lambda _, node: not node.attr("transpose_a", False)), "MatMul"),
    (_products, "BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    (_einsum, "Einsum"),
    (rows_if(lambda proof, node: _spare(proof, node, proof.numbers(node, 1))),
     "All Any ArgMax ArgMin Cumprod Cumsum Max Mean Min Prod ReverseV2 Sum"),
    (_joined, "ConcatV2"),
    (_packed, "Pack"),
    (rows_if(lambda proof, node: _spare(proof, node, [node.attr("axis", 0)])), "Unpack"),
    (_cut, "Split SplitV"),
    (rows_if(lambda proof, node: proof.numbers(node, 1)[:2] == [0, 0]), "MirrorPad Pad PadV2"),
    (rows_if(lambda proof, node: proof.numbers(node, 1)[0] == 0), "Transpose"),
    (_tiled, "Tile"),
    (_filled, "Fill"),
    (rows_if(lambda proof, node: _spare(proof, node, node.attr("squeeze_dims") or [0])),
     "Squeeze"),
    (rows_if(lambda proof, node: _spare(proof, node, proof.numbers(node, 1), added=1)),
     "ExpandDims"),
    (_looked_up, "Gather GatherV2 ResourceGather"),
    (_found, "LookupTableFindV2"),
    (rows_if(lambda _, node: node.attr("axis", -1) != 0), "OneHot"),
    (rows_if(lambda _, node: node.attr("shape") is None or node.attr("shape")[0] < 0),
     "EnsureShape"),
    (lambda _, __, kinds: Kind.SHAPE if kinds[0] == Rows() else Kind.SIZES, "Shape"),
    (rows_if(lambda proof, node: [proof.numbers(node, n)[0] for n in (1, 2)] == [0, -1]), "Slice"),
    (_strided, "StridedSlice"),
    (_reshaped, "Reshape"),
)  # fmt: skip
