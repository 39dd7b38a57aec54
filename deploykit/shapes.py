"""The shapes of a graph's tensors at batch 1, as far as they follow without starting TensorFlow.

One pass in execution order: each op's rule makes the shape of what it gives from the shapes of what
it reads, and where an op reads sizes (Reshape), from their values. What no rule covers, and what an
input leaves open beyond its first axis, stays unknown: None.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from transforms.core.errors import Error
from transforms.core.evaluate import compute
from transforms.core.graph import Graph
from transforms.core.kernels import KERNELS
from transforms.core.layers import channels_first
from transforms.core.node import Node, split
from transforms.core.ops import FEEDABLE_OPS
from transforms.core.tensors import Array, numpy_type

Shape = tuple[int, ...]

VARIABLE_OPS = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_MOST_SIZES = 1024  # a tensor with more elements holds no sizes


class Shapes:
    """The shape of each tensor that is known; for a variable's handle, that of the variable."""

    def __init__(self, graph: Graph) -> None:
        """Find the shapes; an open first axis of an input is 1."""
        self._shapes: dict[str, Shape] = {}
        self._values: dict[str, Array] = {}
        self._ops = {node.name: node.op for node in graph}
        for name in graph.order():
            node = graph[name]
            shape = self._find(node)
            if shape is not None and all(size >= 0 for size in shape):
                self._shapes[name] = shape
                if not graph.is_input(name) and math.prod(shape) <= _MOST_SIZES:
                    self._keep_value(node)

    def of(self, tensor: str) -> Shape | None:
        """Return the shape of a tensor, or None where it is not known."""
        name, port = split(tensor)
        alike = port == 0 or self._ops.get(name) in ("Split", "Unpack")
        return self._shapes.get(name) if alike else None

    def _find(self, node: Node) -> Shape | None:
        if node.op == "Const":
            return node.shape
        if node.op in FEEDABLE_OPS:
            declared = node.attr("shape")
            if declared is None:
                return None
            return tuple(1 if i == 0 and s < 0 else s for i, s in enumerate(declared))
        if node.op in VARIABLE_OPS:
            return variable_shape(node)
        rule = _RULES.get(node.op)
        shapes = [self.of(tensor) for tensor in node.data_inputs]
        known = [shape for shape in shapes if shape is not None]
        if rule is None or len(known) < len(shapes):
            return None
        values = [self._values.get(tensor) for tensor in node.data_inputs]
        try:
            return rule(node, known, values)
        except (ArithmeticError, Error, IndexError, NotImplementedError, TypeError, ValueError):
            return None  # sizes that are not known, or a graph that TensorFlow would refuse

    def _keep_value(self, node: Node) -> None:
        """Keep the value of a small tensor if it is known: it may be used as sizes."""
        value: Array | None = None
        operands = [self._values.get(tensor) for tensor in node.data_inputs]
        known = [operand for operand in operands if operand is not None]
        if node.op == "Const":
            value = node.value
        elif node.op == "Shape":
            measured = self.of(node.data_inputs[0])
            value = np.array(measured, numpy_type(node.attr("out_type", "int32")))
        elif node.op in KERNELS and known and len(known) == len(operands):
            value = compute(node, known)
        if value is not None and value.dtype.kind in "biuf":
            self._values[node.name] = value


def variable_shape(node: Node) -> Shape | None:
    """Return the shape of a variable where it is fully known."""
    shape: Shape | None = node.attr("shape")
    return shape if shape is not None and all(size >= 0 for size in shape) else None


Rule = Callable[[Node, Sequence[Shape], Sequence[Any]], Shape]


def _first(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return shapes[0]


def _broadcast(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return np.broadcast_shapes(*shapes)


def _by_kernel(*sizes: int) -> Rule:
    """Return the rule of an op that NumPy computes; the operands at `sizes` must be known."""

    def rule(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
        operands = [np.broadcast_to(np.int8(0), shape) for shape in shapes]
        for place in sizes:
            operands[place] = _known(values[place])
        return KERNELS[node.op](node, *operands).shape

    return rule


def _known(value: Array | None) -> Array:
    if value is None:
        raise ValueError("a size is not known")
    return value


def _reshape(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    wanted = _known(values[1]).tolist()
    rest = math.prod(size for size in wanted if size >= 0)
    return tuple(math.prod(shapes[0]) // rest if size < 0 else size for size in wanted)


def _reduce(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    rank = len(shapes[0])
    axes = {axis % rank for axis in _known(values[1]).reshape(-1).tolist()}
    if node.attr("keep_dims", False):
        return tuple(1 if axis in axes else size for axis, size in enumerate(shapes[0]))
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in axes)


def _convolution(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    *window, read, given = shapes[1]
    return _slide(node, shapes[0], window, read * given if _is_depthwise(node) else given)


def _pool(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    spatial, channels = _axes(node, len(shapes[0]))
    window = [node.attr("ksize")[axis] for axis in spatial]
    return _slide(node, shapes[0], window, shapes[0][channels])


def _slide(node: Node, shape: Shape, window: Sequence[int], channels: int) -> Shape:
    """Return the shape that a window leaves which slides over an image or a volume."""
    spatial, channel_axis = _axes(node, len(shape))
    strides = node.attr("strides")
    dilations = node.attr("dilations") or [1] * len(shape)
    pads = node.attr("explicit_paddings") or [0] * 2 * len(shape)
    result = list(shape)
    result[channel_axis] = channels
    for axis, size in zip(spatial, window, strict=True):
        covered = (size - 1) * dilations[axis] + 1
        if node.attr("padding") == "SAME":
            covered = 1
        room = shape[axis] + pads[2 * axis] + pads[2 * axis + 1] - covered
        result[axis] = room // strides[axis] + 1
    return tuple(result)


def _is_depthwise(node: Node) -> bool:
    return node.op == "DepthwiseConv2dNative"


def _axes(node: Node, rank: int) -> tuple[range, int]:
    """Return the spatial axes of an image or a volume, and the axis of its channels."""
    return (range(2, rank), 1) if channels_first(node) else (range(1, rank - 1), rank - 1)


def _sizes_first(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return tuple(_known(values[0]).tolist())


def _matmul(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    (*batch, rows, inner), (*other, inner_2, columns) = shapes
    if node.attr("transpose_a", False) or node.attr("adj_x", False):
        rows = inner
    if node.attr("transpose_b", False) or node.attr("adj_y", False):
        columns = inner_2
    return (*np.broadcast_shapes(tuple(batch), tuple(other)), rows, columns)


def _pad(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    pads = _known(values[1]).tolist()
    return tuple(size + sum(pad) for size, pad in zip(shapes[0], pads, strict=True))


def _resize(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return (shapes[0][0], *_known(values[1]).tolist(), shapes[0][3])


def _space_to_batch(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    blocks, pads = (_known(value).tolist() for value in values[1:])
    batch, *rest = shapes[0]
    for axis, (block, pad) in enumerate(zip(blocks, pads, strict=True)):
        rest[axis] = (rest[axis] + sum(pad)) // block
    return (batch * math.prod(blocks), *rest)


def _batch_to_space(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    blocks, crops = (_known(value).tolist() for value in values[1:])
    batch, *rest = shapes[0]
    for axis, (block, crop) in enumerate(zip(blocks, crops, strict=True)):
        rest[axis] = rest[axis] * block - sum(crop)
    return (batch // math.prod(blocks), *rest)


def _depth_to_space(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    block = node.attr("block_size")
    spatial, channels = _axes(node, 4)
    result = list(shapes[0])
    if node.op == "DepthToSpace":
        result[channels] //= block * block
    else:
        result[channels] *= block * block
    for axis in spatial:
        result[axis] = result[axis] * block if node.op == "DepthToSpace" else result[axis] // block
    return tuple(result)


def _split(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    result = list(shapes[1])
    result[int(_known(values[0]).item())] //= node.attr("num_split")
    return tuple(result)


def _unpack(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    result = list(shapes[0])
    del result[node.attr("axis", 0)]
    return tuple(result)


def _gather(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return (*shapes[1], *shapes[0][1:])


def _measure(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return (len(shapes[0]),)


def _scalar(node: Node, shapes: Sequence[Shape], values: Sequence[Any]) -> Shape:
    return ()


def _table(*rules: tuple[Rule, str]) -> dict[str, Rule]:
    return {op: rule for rule, ops in rules for op in ops.split()}


_RULES = _table(
    (_first, """
     Abs BatchNormWithGlobalNormalization BiasAdd BiasAddV1 Cast Ceil CheckNumerics ClipByValue
     Cos Cumsum Dequantize Elu Erf Exp FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
     FakeQuantWithMinMaxVarsPerChannel Floor FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
     Identity IdentityN Inv IsFinite IsNan LRN LeakyRelu Log Log1p LogSoftmax LogicalNot Neg
     OnesLike PreventGradient QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeV2
     ReadVariableOp Reciprocal Relu Relu6 Reverse ReverseV2 Rint Round Rsqrt Selu Sigmoid Sign
     Sin Snapshot Softmax Softplus Softsign Sqrt Square StopGradient Tan Tanh ZerosLike"""),
    (_broadcast, """
     Add AddN AddV2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
     LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv SelectV2
     SquaredDifference Sub TruncateDiv"""),
    (_convolution, "Conv2D Conv3D DepthwiseConv2dNative"),
    (_pool, "AvgPool AvgPool3D MaxPool MaxPool3D"),
    (_sizes_first, "Conv2DBackpropInput Fill"),
    (_matmul, "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul"),
    (_reduce, "All Any Max Mean Min Prod Sum"),
    (_reshape, "Reshape"),
    (_pad, "MirrorPad Pad PadV2"),
    (_resize, "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor"),
    (_space_to_batch, "SpaceToBatchND"),
    (_batch_to_space, "BatchToSpaceND"),
    (_depth_to_space, "DepthToSpace SpaceToDepth"),
    (_split, "Split"),
    (_unpack, "Unpack"),
    (_gather, "Gather"),
    (_measure, "Shape"),
    (_scalar, "Rank Size"),
    (_by_kernel(), "Pack Select Squeeze"),
    (_by_kernel(0), "Concat"),
    (_by_kernel(-1), "ConcatV2"),
    (_by_kernel(1), "BroadcastTo ExpandDims Tile Transpose"),
    (_by_kernel(2), "GatherV2"),
    (_by_kernel(1, 2), "Slice"),
    (_by_kernel(1, 2, 3), "StridedSlice"),
    (_by_kernel(0, 1, 2), "Range"),
)  # fmt: skip
