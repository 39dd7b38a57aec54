"""Shape rules: the output shape of each op, from the shapes and values of its inputs.

A rule that returns None or raises a ValueError means that the shape is unknown.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.layers.layers import LAYER_OPS, PRIVATE_OPS, channels_first
from deploykit.transforms.shapes.sizes import (
    UNKNOWN,
    Shape,
    axes_in,
    broadcast,
    common_shape,
    common_size,
    if_full,
    is_partial,
    product,
    quotient,
    require,
    sizes_in,
    total,
    whole,
    with_rank,
)

InputShapes = Sequence[Shape | None]  # of the inputs of a node; None: unknown rank
InputValues = Sequence[Array | None]  # of the inputs; UNKNOWN: an unknown element
Rule = Callable[[Node, InputShapes, InputValues], Shape | None]
T = TypeVar("T")


EVERY_PORT = frozenset({"Split", "Unpack"})  # all outputs have the same shape


def _variable(node: Node, _: InputShapes, __: InputValues) -> Shape | None:
    shape: Shape | None = node.attr("shape")
    return shape or (shape if node.op == "VariableV2" else None)  # [] of a Variable: any shape


def _convolution(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    op = PRIVATE_OPS.get(node.op, node.op)
    rank = LAYER_OPS[op]
    image, (*window, read, given) = with_rank(shapes[0], rank), with_rank(shapes[1], rank)
    channels = _channel_axis(node, rank)
    window.insert(0, 1)
    window.insert(channels, 1)
    result = _slide(node, image, window)
    result[channels] = product(read, given) if op == "DepthwiseConv2dNative" else given
    return tuple(result)


def _slide(node: Node, shape: Shape, window: Sequence[int]) -> list[int]:
    """Return the output sizes of a window that slides along each axis."""
    strides = node.attr("strides")
    dilations = node.attr("dilations") or [1] * len(shape)
    pads = node.attr("explicit_paddings") or [0] * 2 * len(shape)
    result = []
    for axis, (size, width) in enumerate(zip(shape, window, strict=True)):
        if node.attr("padding") == "SAME":
            width = 1
        if size < 0 or width < 0:
            result.append(-1)
            continue
        room = size + pads[2 * axis] + pads[2 * axis + 1] - (width - 1) * dilations[axis] - 1
        if room < -1:
            raise ValueError("the window is wider than the image")
        result.append(room // strides[axis] + 1)
    return result


def _channel_axis(node: Node, rank: int) -> int:
    return 1 if channels_first(node) else rank - 1


def _matmul(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    if PRIVATE_OPS.get(node.op, node.op) == "MatMul":
        shapes = [with_rank(shape, 2) for shape in shapes[:2]]
    (*batch, rows, inner), (*other, inner_2, columns) = map(require, shapes)
    if node.attr("transpose_a", False) or node.attr("adj_x", False):
        rows, inner = inner, rows
    if node.attr("transpose_b", False) or node.attr("adj_y", False):
        inner_2, columns = columns, inner_2
    common_size((inner, inner_2))
    return (*require(broadcast((batch, other))), rows, columns)


def _einsum(node: Node, shapes: InputShapes, _: InputValues) -> Shape | None:
    terms, arrow, result = str(node.attr("equation")).replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for labels, shape in zip(terms.split(","), map(require, shapes), strict=True):
        if not arrow or "." in terms or len(labels) != len(shape):
            return None
        for label, size in zip(labels, shape, strict=True):
            if sizes.setdefault(label, size) < 0:
                sizes[label] = size
    return tuple(sizes[label] for label in result)


def _reshape(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    sizes = sizes_in(values[1])
    rest = math.prod(size for size in sizes if size >= 0)
    full = if_full(shapes[0])
    if sizes.count(-1) != 1 or full is None or rest == 0:
        return sizes
    return tuple(math.prod(full) // rest if size < 0 else size for size in sizes)


def _reduction(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    shape = require(shapes[0])
    axes = axes_in(values[1], len(shape))
    if node.attr("keep_dims", False):
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _resize(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    batch, *_image, channels = with_rank(shapes[0], 4)
    height, width = (-1, -1) if values[1] is None else sizes_in(values[1])
    return batch, height, width, channels


def _space_to_batch(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    blocks, pads = (whole(value).tolist() for value in values[1:])
    batch, *rest = require(shapes[0])
    for axis, (block, pad) in enumerate(zip(blocks, pads, strict=True)):
        rest[axis] = quotient(total(rest[axis], *pad), block)
    return (product(batch, *blocks), *rest)


def _batch_to_space(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    blocks, crops = (whole(value).tolist() for value in values[1:])
    batch, *rest = require(shapes[0])
    for axis, (block, crop) in enumerate(zip(blocks, crops, strict=True)):
        rest[axis] = -1 if rest[axis] < 0 else rest[axis] * block - sum(crop)
    return (quotient(batch, math.prod(blocks)), *rest)


def _depth_to_space(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    block, deep = node.attr("block_size"), node.op == "DepthToSpace"
    result = list(with_rank(shapes[0], 4))
    channels = _channel_axis(node, 4)
    for axis in {1, 2, 3} - {channels}:
        result[axis] = product(result[axis], block) if deep else quotient(result[axis], block)
    depth = result[channels]
    result[channels] = quotient(depth, block**2) if deep else product(depth, block**2)
    return tuple(result)


def _concat(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    place = 0 if node.op == "Concat" else -1
    parts = shapes[1:] if node.op == "Concat" else shapes[:-1]
    rank = common_size(len(part) for part in parts if part is not None)
    (axis,) = axes_in(values[place], rank)
    ranked = [with_rank(part, rank) for part in parts]
    result = common_shape([(*part[:axis], -1, *part[axis + 1 :]) for part in ranked])
    return (*result[:axis], total(*(part[axis] for part in ranked)), *result[axis + 1 :])


def _pack(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    shape = common_shape(shapes)
    axis = range(len(shape) + 1)[node.attr("axis", 0)]
    return (*shape[:axis], len(shapes), *shape[axis:])


def _unpack(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    result = list(require(shapes[0]))
    del result[node.attr("axis", 0)]
    return tuple(result)


def _split(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    result = list(require(shapes[1]))
    (axis,) = axes_in(values[0], len(result))
    result[axis] = quotient(result[axis], node.attr("num_split"))
    return tuple(result)


def _squeeze(node: Node, shapes: InputShapes, _: InputValues) -> Shape | None:
    shape = require(shapes[0])
    axes = [range(len(shape))[axis] for axis in node.attr("squeeze_dims") or ()]
    if not axes and -1 in shape:
        return None
    return tuple(s for axis, s in enumerate(shape) if (axis not in axes if axes else s != 1))


def _expand_dims(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    shape = require(shapes[0])
    (axis,) = axes_in(values[1], len(shape) + 1)
    return (*shape[:axis], 1, *shape[axis:])


def _gather(node: Node, shapes: InputShapes, values: InputValues) -> Shape | None:
    shape = require(shapes[0])
    (axis,) = axes_in(values[2], len(shape)) if node.op == "GatherV2" else (0,)
    if node.attr("batch_dims", 0):
        return None
    return (*shape[:axis], *require(shapes[1]), *shape[axis + 1 :])


def _slice(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    begin, counts = sizes_in(values[1]), require(values[2]).tolist()
    result = []
    for size, low, count in zip(require(shapes[0]), begin, counts, strict=True):
        to_the_end = size - low if min(size, low) >= 0 else -1
        result.append(to_the_end if count == -1 else max(count, -1))
    return tuple(result)


def _strided_slice(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    def has(mask: str, place: int) -> bool:
        return bool(node.attr(f"{mask}_mask", 0) >> place & 1)

    begin, end, strides = (require(value).tolist() for value in values[1:])
    places = range(len(begin))
    rest = list(require(shapes[0]))
    read = sum(not has("ellipsis", place) and not has("new_axis", place) for place in places)
    skipped = len(rest) - read  # the number of axes that an ellipsis covers
    result: list[int] = []
    for place in places:
        if has("ellipsis", place):
            result += rest[:skipped]
            del rest[:skipped]
        elif has("new_axis", place):
            result.append(1)
        else:
            size = rest.pop(0)
            low = None if has("begin", place) else begin[place]
            high = None if has("end", place) else end[place]
            if not has("shrink_axis", place):
                is_open = size < 0 or UNKNOWN in (low, high, strides[place])
                part = slice(low, high, strides[place])
                result.append(-1 if is_open else len(range(*part.indices(size))))
    return (*result, *rest)


def _range(_: Node, __: InputShapes, values: InputValues) -> Shape:
    if any(value is None or is_partial(value) or value.dtype.kind != "i" for value in values):
        return (-1,)
    return (len(range(*(whole(value).item() for value in values))),)


def by_op(*rows: tuple[T, str]) -> dict[str, T]:
    """Return a table by op; each row gives one entry for several ops."""
    return {op: entry for entry, ops in rows for op in ops.split()}


RULES: dict[str, Rule] = by_op(
    (lambda _, shapes, __: shapes[0], """
     Abs BatchNormWithGlobalNormalization BiasAdd BiasAddV1 Cast Ceil CheckNumerics ClipByValue
     Cos Cumsum Dequantize Elu Erf Erfc Exp FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
     FakeQuantWithMinMaxVarsPerChannel Floor FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
     Identity IdentityN Inv IsFinite IsNan LRN LeakyRelu Log Log1p LogSoftmax LogicalNot Neg
     OnesLike PreventGradient QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeV2
     Reciprocal Relu Relu6 Reverse ReverseV2 Rint Round Rsqrt Selu Sigmoid Sign Sin Snapshot
     Softmax Softplus _MklLayerNorm Softsign Sqrt Square StopGradient Tan Tanh ZerosLike"""),
    (lambda _, shapes, __: broadcast(shapes), """
     Add AddN AddV2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
     LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv SelectV2
     SquaredDifference Sub TruncateDiv"""),
    (lambda node, _, __: node.shape, "Const"),
    (lambda node, shapes, _: shapes[0]
     if len({numpy_type(node.attr(name)).itemsize for name in ("T", "type")}) == 1 else None,
     "Bitcast"),
    (_variable, "Variable VariableV2"),
    (lambda *_: (), "Rank Size VarHandleOp"),
    (lambda _, shapes, __: (-1 if shapes[0] is None else len(shapes[0]),), "Shape"),
    (_convolution, """
     Conv2D Conv3D DepthwiseConv2dNative _FusedQuantizedConv2D _FusedQuantizedDepthwiseConv2D
     _MklNativeFusedConv2D _MklNativeFusedDepthwiseConv2dNative"""),
    (lambda _, __, values: with_rank(None if values[0] is None else sizes_in(values[0]), 4),
     "Conv2DBackpropInput"),
    (lambda node, shapes, _: tuple(
        _slide(node, with_rank(shapes[0], len(node.attr("ksize"))), node.attr("ksize"))),
     "AvgPool AvgPool3D MaxPool MaxPool3D QuantizedAvgPool QuantizedMaxPool"),
    (_matmul, """
     BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul _MklNativeFusedMatMul _QuantizedMatMul"""),
    (_einsum, "Einsum"),
    (_reshape, "Reshape"),
    (_reduction, "All Any Max Mean Min Prod Sum"),
    (lambda _, shapes, values: tuple(
        total(size, *pad)
        for size, pad in zip(require(shapes[0]), require(values[1]).tolist(), strict=True)),
     "MirrorPad Pad PadV2"),
    (_resize, "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor"),
    (_space_to_batch, "SpaceToBatchND"),
    (_batch_to_space, "BatchToSpaceND"),
    (_depth_to_space, "DepthToSpace SpaceToDepth"),
    (_concat, "Concat ConcatV2"),
    (_pack, "Pack"),
    (_unpack, "Unpack"),
    (_split, "Split"),
    (lambda _, shapes, __: common_shape(shapes[1:]), "Select"),
    (_squeeze, "Squeeze"),
    (_expand_dims, "ExpandDims"),
    (lambda _, shapes, values: tuple(
        require(shapes[0])[axis] for axis in axes_in(values[1], len(require(shapes[0])))),
     "Transpose"),
    (lambda _, shapes, values: tuple(
        product(*pair) for pair in zip(require(shapes[0]), sizes_in(values[1]), strict=True)),
     "Tile"),
    (lambda _, __, values: sizes_in(values[0]), "Fill"),
    (lambda _, __, values: sizes_in(values[1]), "BroadcastTo"),
    (_gather, "Gather GatherV2"),
    (_slice, "Slice"),
    (_strided_slice, "StridedSlice"),
    (_range, "Range"),
)  # fmt: skip
