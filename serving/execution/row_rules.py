"""Rules for ops that process each example of a batch independently: the effect of cutting the batch
on their outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.shapes.sizes import Shape, require
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


def _images(_: Facts, node: Node, kinds: Kinds) -> What:
    """Layers that read rows and weights."""
    return first(kinds)


def _deep(axes: int) -> Rule:
    def rule(proof: Facts, node: Node, kinds: Kinds) -> What:
        """Ops along the last axes, which exclude the batch axis."""
        must(proof.rank(node) >= axes)
        return first(kinds)

    return rule


def _with_codes(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Quantize and dequantize ops whose ranges do not depend on the batch."""
    given = node.attr("range_given", not node.op.startswith("QuantizeAndDequantize"))
    must(node.attr("axis", -1) != 0 and given)
    return first(kinds)


def _pooled(_: Facts, node: Node, kinds: Kinds) -> What:
    must(node.attr("ksize")[0] == 1 and node.attr("strides")[0] == 1)
    return first(kinds)


def _normed(_: Facts, node: Node, kinds: Kinds) -> What:
    must(node.attr("is_training", True) is False)
    return first(kinds)


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


def _product(_: Facts, node: Node, kinds: Kinds) -> What:
    must(not node.attr("transpose_a", False))
    return first(kinds)


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


_CODED = """_FusedQuantizedConv2D _FusedQuantizedDepthwiseConv2D _QuantizedMatMul"""
WITH_RANGES = frozenset({*_CODED.split(), "QuantizeV2", "QuantizedAvgPool", "QuantizedMaxPool"})
COMPUTING = table(
    (_each_alone, """
     Abs Add AddV2 Cast Ceil Cos Div DivNoNan Elu Equal Erf Erfc Exp Expm1 Floor
     FloorDiv FloorMod Greater GreaterEqual Identity Inv IsFinite IsInf IsNan LeakyRelu Less
     LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Neg
     NotEqual OnesLike Pow PreventGradient RealDiv Reciprocal Relu Relu6 Rint Round Rsqrt
     SelectV2 Selu Sigmoid Sign Sin Snapshot Softplus Softsign Sqrt Square SquaredDifference
     StopGradient Sub Tan Tanh TruncateDiv ZerosLike"""),
    (_alike, "AddN ClipByValue Select"),
    (_images, """
     Conv2D Conv3D DepthwiseConv2dNative DepthToSpace SpaceToDepth LRN
     BatchNormWithGlobalNormalization ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
     FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars"""),
    (_deep(2), """
     BiasAdd BiasAddV1 FakeQuantWithMinMaxVarsPerChannel LogSoftmax Softmax TopKV2
     _MklLayerNorm"""),
    (_with_codes, "Dequantize QuantizeV2 QuantizeAndDequantizeV2 QuantizeAndDequantizeV4"),
    (_pooled, "AvgPool AvgPool3D MaxPool MaxPool3D QuantizedAvgPool QuantizedMaxPool"),
    (_normed, "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    (_fused, f"""
     {_CODED} _MklNativeFusedConv2D _MklNativeFusedDepthwiseConv2dNative _MklNativeFusedMatMul"""),
    (_transposed_convolution, "Conv2DBackpropInput"),
    (_product, "MatMul"),
    (_products, "BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    (_einsum, "Einsum"),
)  # fmt: skip
