"""The static shapes of a graph's tensors, as far as they follow without starting TensorFlow.

One pass in execution order: each op's rule makes the shape of what it gives from the shapes of what
it reads, and where an op reads sizes (Reshape), from their values. What no rule covers, what does
not follow, and what TensorFlow would refuse is unknown: whoever asks has to do without.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from transforms.core.errors import Error
from transforms.core.evaluate import compute
from transforms.core.graph import Graph
from transforms.core.kernels import KERNELS
from transforms.core.layers import LAYER_OPS, channels_first
from transforms.core.node import Node, split
from transforms.core.ops import FEEDABLE_OPS, op_defs, output_types
from transforms.core.tensors import Array, numpy_type

Shape = tuple[int, ...]  # -1: a size that is not known
InputShapes = Sequence[Shape | None]  # of the inputs of a node; None: a rank that is not known
InputValues = Sequence[
    Array | None
]  # of the inputs of a node; UNKNOWN: an element that is not known
Rule = Callable[[Node, InputShapes, InputValues], Shape | None]
T = TypeVar("T")

UNKNOWN = -(2**31)  # an element of a value; -1 is a size that Reshape finds itself
_SIZE_TYPES = ("int32", "int64")
_MOST_SIZES = 1024  # a tensor with more elements holds no sizes
_LAST_VERSION_WITHOUT_SCALARS = 21  # up to here a placeholder's shape [] meant any shape
_EVERY_PORT = frozenset({"Split", "Unpack"})  # all of their outputs have one shape
_JOINING = frozenset({"Concat", "ConcatV2", "Pack"})
_MOVING = frozenset(
    {"Cast", "ExpandDims", "GatherV2", "Identity", "Reshape", "Slice", "Squeeze", "StridedSlice"}
)
_UNCLEAR = (ArithmeticError, Error, IndexError, NotImplementedError, TypeError, ValueError)


class Shapes:
    """The shapes of a graph's tensors as it was when asked."""

    def __init__(self, graph: Graph, batch: int = -1) -> None:
        """Find them; an open first axis of an input has the size `batch`."""
        self._graph = graph
        self._batch = batch
        self._shapes: dict[str, Shape] = {}
        self._values: dict[str, Array] = {}
        for name in graph.order():
            node = graph[name]
            try:
                shape = self._find(node)
                if shape is not None:
                    self._shapes[name] = shape
                    self._keep_value(node, shape)
            except _UNCLEAR:
                continue

    def shape(self, tensor: str) -> Shape | None:
        """Return a tensor's shape, -1 for unknown sizes, or None where its rank is not known."""
        name, port = split(tensor)
        if port == 0 or (name in self._shapes and self._graph[name].op in _EVERY_PORT):
            return self._shapes.get(name)
        return None

    def full_shape(self, tensor: str) -> Shape | None:
        """Return a tensor's shape, or None where not all of it is known."""
        return _if_full(self.shape(tensor))

    def _find(self, node: Node) -> Shape | None:
        if node.op in FEEDABLE_OPS:
            return self._fed(node)
        if node.op == "ReadVariableOp":
            handle = self._graph.producer(node.data_inputs[0])
            held: Shape | None = handle.attr("shape") if handle.op == "VarHandleOp" else None
            return held
        rule = RULES.get(node.op)
        if rule is None or node.attr("data_format") == "NCHW_VECT_C":
            return None
        # a loop's NextIteration comes later: its shape is not known yet
        shapes = [self.shape(tensor) for tensor in node.data_inputs]
        return rule(node, shapes, [self._values.get(tensor) for tensor in node.data_inputs])

    def _fed(self, node: Node) -> Shape | None:
        shape: Shape | None = node.attr("shape")
        if shape:
            return (self._batch if shape[0] < 0 else shape[0], *shape[1:])
        old = self._graph.versions.producer <= _LAST_VERSION_WITHOUT_SCALARS
        return None if old and node.op == "Placeholder" else shape

    def _keep_value(self, node: Node, shape: Shape) -> None:
        """Keep what is known of the value of a small tensor: it may be used as sizes."""
        if min(shape, default=0) < 0 or math.prod(shape) > _MOST_SIZES:
            return
        value = None if self._graph.is_input(node.name) else self._compute(node)
        types = output_types(node) if value is None and node.op in op_defs() else None
        if types and types[0] in _SIZE_TYPES:
            value = np.full(shape, UNKNOWN, numpy_type(types[0]))
        if value is not None and value.dtype.kind in "biuf":
            self._values[node.name] = value

    def _compute(self, node: Node) -> Array | None:
        if node.op == "Const":
            return node.value
        if node.op == "Shape":
            sizes = _known(self.shape(node.data_inputs[0]))
            out_type = numpy_type(node.attr("out_type", "int32"))
            return np.array([UNKNOWN if size < 0 else size for size in sizes], out_type)
        operands = [self._values.get(tensor) for tensor in node.data_inputs]
        known = [operand for operand in operands if operand is not None]
        if node.op not in KERNELS or not known or len(known) < len(operands):
            return None
        if any(map(_is_partial, known)) and not _only_moves(node, known):
            return None
        return compute(node, known)


def variable_shape(node: Node) -> Shape | None:
    """Return the shape of a variable where all of it is known."""
    return _if_full(node.attr("shape"))


def broadcast(shapes: Iterable[Sequence[int] | None]) -> Shape | None:
    """Return the shape that several shapes broadcast to. ValueError: they do not."""
    known = list(shapes)
    ranked = [shape for shape in known if shape is not None]
    if len(ranked) < len(known):
        return None
    result = []
    for place in range(-max(map(len, ranked), default=0), 0):
        sizes = {shape[place] for shape in ranked if len(shape) >= -place} - {1}
        result.append(_one(sizes) if sizes else 1)
    return tuple(result)


def _if_full(shape: Shape | None) -> Shape | None:
    return shape if shape is not None and min(shape, default=0) >= 0 else None


def _is_partial(value: Array) -> bool:
    return value.dtype.name in _SIZE_TYPES and bool((value == UNKNOWN).any())


def _only_moves(node: Node, operands: Sequence[Array]) -> bool:
    """Say whether an op gives on elements as they are, and is known to which places."""
    if node.op == "Cast" and node.attr("DstT") not in _SIZE_TYPES:
        return False
    return node.op in _JOINING or (node.op in _MOVING and not any(map(_is_partial, operands[1:])))


# What the rules are made of. A ValueError says that a shape is unknown.


def _known(found: T | None) -> T:
    if found is None:
        raise ValueError("it is not known")
    return found


def _whole(value: Array | None) -> Array:
    """Return a value of which each element is known."""
    if _is_partial(_known(value)):
        raise ValueError("an element is not known")
    return _known(value)


def _sizes(value: Array | None) -> Shape:
    """Return the sizes that a value holds."""
    return tuple(max(size, -1) for size in _known(value).reshape(-1).tolist())


def _axes(value: Array | None, rank: int) -> list[int]:
    """Return the axes that a value holds, from the front."""
    return [range(rank)[axis] for axis in _whole(value).reshape(-1).tolist()]


def _ranked(shape: Shape | None, rank: int) -> Shape:
    """Return a shape that must have this rank."""
    if shape is None:
        return (-1,) * rank
    if len(shape) != rank:
        raise ValueError("it has another rank")
    return shape


def _one(sizes: Iterable[int]) -> int:
    """Return the size that several are which must be equal."""
    known = set(sizes) - {-1}
    if len(known) > 1:
        raise ValueError("the sizes differ")
    return known.pop() if known else -1


def _alike(shapes: InputShapes) -> Shape:
    """Return the shape that several are which must be equal."""
    ranked = [shape for shape in shapes if shape is not None]
    if not ranked:
        raise ValueError("no rank is known")
    return tuple(_one(sizes) for sizes in zip(*ranked, strict=True))


def _product(*sizes: int) -> int:
    return -1 if min(sizes) < 0 else math.prod(sizes)


def _sum(*sizes: int) -> int:
    return -1 if min(sizes) < 0 else sum(sizes)


def _part(size: int, parts: int) -> int:
    return -1 if size < 0 else size // parts


# The rules.


def _variable(node: Node, _: InputShapes, __: InputValues) -> Shape | None:
    shape: Shape | None = node.attr("shape")
    return shape or (shape if node.op == "VariableV2" else None)  # [] of a Variable: any shape


def _measure(_: Node, shapes: InputShapes, __: InputValues) -> Shape:
    return (-1 if shapes[0] is None else len(shapes[0]),)


def _convolution(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    rank = LAYER_OPS[node.op]
    image, (*window, read, given) = _ranked(shapes[0], rank), _ranked(shapes[1], rank)
    channels = _channel_axis(node, rank)
    window.insert(0, 1)
    window.insert(channels, 1)
    result = _slide(node, image, window)
    result[channels] = _product(read, given) if node.op == "DepthwiseConv2dNative" else given
    return tuple(result)


def _transposed_convolution(_: Node, __: InputShapes, values: InputValues) -> Shape:
    return _ranked(None if values[0] is None else _sizes(values[0]), 4)


def _pool(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    window = node.attr("ksize")
    return tuple(_slide(node, _ranked(shapes[0], len(window)), window))


def _slide(node: Node, shape: Shape, window: Sequence[int]) -> list[int]:
    """Return the sizes that a window leaves which slides along each axis."""
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
    if node.op == "MatMul":
        shapes = [_ranked(shape, 2) for shape in shapes]
    (*batch, rows, inner), (*other, inner_2, columns) = map(_known, shapes)
    if node.attr("transpose_a", False) or node.attr("adj_x", False):
        rows, inner = inner, rows
    if node.attr("transpose_b", False) or node.attr("adj_y", False):
        inner_2, columns = columns, inner_2
    _one((inner, inner_2))
    return (*_known(broadcast((batch, other))), rows, columns)


def _reshape(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    sizes = _sizes(values[1])
    rest = math.prod(size for size in sizes if size >= 0)
    whole = _if_full(shapes[0])
    if sizes.count(-1) != 1 or whole is None or rest == 0:
        return sizes
    return tuple(math.prod(whole) // rest if size < 0 else size for size in sizes)


def _reduction(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    shape = _known(shapes[0])
    axes = _axes(values[1], len(shape))
    if node.attr("keep_dims", False):
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _pad(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    pads = _known(values[1]).tolist()
    return tuple(_sum(size, *pad) for size, pad in zip(_known(shapes[0]), pads, strict=True))


def _resize(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    batch, *_image, channels = _ranked(shapes[0], 4)
    height, width = (-1, -1) if values[1] is None else _sizes(values[1])
    return batch, height, width, channels


def _space_to_batch(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    blocks, pads = (_whole(value).tolist() for value in values[1:])
    batch, *rest = _known(shapes[0])
    for axis, (block, pad) in enumerate(zip(blocks, pads, strict=True)):
        rest[axis] = _part(_sum(rest[axis], *pad), block)
    return (_product(batch, *blocks), *rest)


def _batch_to_space(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    blocks, crops = (_whole(value).tolist() for value in values[1:])
    batch, *rest = _known(shapes[0])
    for axis, (block, crop) in enumerate(zip(blocks, crops, strict=True)):
        rest[axis] = -1 if rest[axis] < 0 else rest[axis] * block - sum(crop)
    return (_part(batch, math.prod(blocks)), *rest)


def _depth_to_space(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    block, deep = node.attr("block_size"), node.op == "DepthToSpace"
    result = list(_ranked(shapes[0], 4))
    channels = _channel_axis(node, 4)
    for axis in {1, 2, 3} - {channels}:
        result[axis] = _product(result[axis], block) if deep else _part(result[axis], block)
    depth = result[channels]
    result[channels] = _part(depth, block**2) if deep else _product(depth, block**2)
    return tuple(result)


def _concat(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    place = 0 if node.op == "Concat" else -1
    parts = shapes[1:] if node.op == "Concat" else shapes[:-1]
    rank = _one(len(part) for part in parts if part is not None)
    (axis,) = _axes(values[place], rank)
    ranked = [_ranked(part, rank) for part in parts]
    result = _alike([(*part[:axis], -1, *part[axis + 1 :]) for part in ranked])
    return (*result[:axis], _sum(*(part[axis] for part in ranked)), *result[axis + 1 :])


def _pack(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    shape = _alike(shapes)
    axis = range(len(shape) + 1)[node.attr("axis", 0)]
    return (*shape[:axis], len(shapes), *shape[axis:])


def _unpack(node: Node, shapes: InputShapes, _: InputValues) -> Shape:
    result = list(_known(shapes[0]))
    del result[node.attr("axis", 0)]
    return tuple(result)


def _split(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    result = list(_known(shapes[1]))
    (axis,) = _axes(values[0], len(result))
    result[axis] = _part(result[axis], node.attr("num_split"))
    return tuple(result)


def _squeeze(node: Node, shapes: InputShapes, _: InputValues) -> Shape | None:
    shape = _known(shapes[0])
    axes = [range(len(shape))[axis] for axis in node.attr("squeeze_dims") or ()]
    if not axes and -1 in shape:
        return None
    return tuple(s for axis, s in enumerate(shape) if (axis not in axes if axes else s != 1))


def _expand_dims(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    shape = _known(shapes[0])
    (axis,) = _axes(values[1], len(shape) + 1)
    return (*shape[:axis], 1, *shape[axis:])


def _transpose(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    shape = _known(shapes[0])
    return tuple(shape[axis] for axis in _axes(values[1], len(shape)))


def _tile(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    times = _sizes(values[1])
    return tuple(_product(*pair) for pair in zip(_known(shapes[0]), times, strict=True))


def _gather(node: Node, shapes: InputShapes, values: InputValues) -> Shape | None:
    shape = _known(shapes[0])
    (axis,) = _axes(values[2], len(shape)) if node.op == "GatherV2" else (0,)
    if node.attr("batch_dims", 0):
        return None
    return (*shape[:axis], *_known(shapes[1]), *shape[axis + 1 :])


def _slice(_: Node, shapes: InputShapes, values: InputValues) -> Shape:
    begin, counts = _sizes(values[1]), _known(values[2]).tolist()
    result = []
    for size, low, count in zip(_known(shapes[0]), begin, counts, strict=True):
        to_the_end = size - low if min(size, low) >= 0 else -1
        result.append(to_the_end if count == -1 else max(count, -1))
    return tuple(result)


def _strided_slice(node: Node, shapes: InputShapes, values: InputValues) -> Shape:
    def has(mask: str, place: int) -> bool:
        return bool(node.attr(f"{mask}_mask", 0) >> place & 1)

    begin, end, strides = (_known(value).tolist() for value in values[1:])
    places = range(len(begin))
    rest = list(_known(shapes[0]))
    read = sum(not has("ellipsis", place) and not has("new_axis", place) for place in places)
    skipped = len(rest) - read  # the axes that an ellipsis stands for
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
                result.append(_steps(size, low, high, strides[place]))
    return (*result, *rest)


def _steps(size: int, low: int | None, high: int | None, stride: int) -> int:
    """Return how many elements a slice takes of so many."""
    if size < 0 or UNKNOWN in (low, high, stride):
        return -1
    return len(range(*slice(low, high, stride).indices(size)))


def _range(_: Node, __: InputShapes, values: InputValues) -> Shape:
    if any(value is None or _is_partial(value) or value.dtype.kind != "i" for value in values):
        return (-1,)
    return (len(range(*(_whole(value).item() for value in values))),)


def _table(*rules: tuple[Rule, str]) -> dict[str, Rule]:
    return {op: rule for rule, ops in rules for op in ops.split()}


RULES = _table(
    (lambda _, shapes, __: shapes[0], """
     Abs BatchNormWithGlobalNormalization BiasAdd BiasAddV1 Cast Ceil CheckNumerics ClipByValue
     Cos Cumsum Dequantize Elu Erf Exp FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
     FakeQuantWithMinMaxVarsPerChannel Floor FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
     Identity IdentityN Inv IsFinite IsNan LRN LeakyRelu Log Log1p LogSoftmax LogicalNot Neg
     OnesLike PreventGradient QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeV2
     Reciprocal Relu Relu6 Reverse ReverseV2 Rint Round Rsqrt Selu Sigmoid Sign Sin Snapshot
     Softmax Softplus Softsign Sqrt Square StopGradient Tan Tanh ZerosLike"""),
    (lambda _, shapes, __: broadcast(shapes), """
     Add AddN AddV2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
     LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv SelectV2
     SquaredDifference Sub TruncateDiv"""),
    (lambda node, _, __: node.shape, "Const"),
    (_variable, "Variable VariableV2"),
    (lambda *_: (), "Rank Size VarHandleOp"),
    (_measure, "Shape"),
    (_convolution, "Conv2D Conv3D DepthwiseConv2dNative"),
    (_transposed_convolution, "Conv2DBackpropInput"),
    (_pool, "AvgPool AvgPool3D MaxPool MaxPool3D"),
    (_matmul, "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul"),
    (_reshape, "Reshape"),
    (_reduction, "All Any Max Mean Min Prod Sum"),
    (_pad, "MirrorPad Pad PadV2"),
    (_resize, "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor"),
    (_space_to_batch, "SpaceToBatchND"),
    (_batch_to_space, "BatchToSpaceND"),
    (_depth_to_space, "DepthToSpace SpaceToDepth"),
    (_concat, "Concat ConcatV2"),
    (_pack, "Pack"),
    (_unpack, "Unpack"),
    (_split, "Split"),
    (lambda _, shapes, __: _alike(shapes[1:]), "Select"),
    (_squeeze, "Squeeze"),
    (_expand_dims, "ExpandDims"),
    (_transpose, "Transpose"),
    (_tile, "Tile"),
    (lambda _, __, values: _sizes(values[0]), "Fill"),
    (lambda _, __, values: _sizes(values[1]), "BroadcastTo"),
    (_gather, "Gather GatherV2"),
    (_slice, "Slice"),
    (_strided_slice, "StridedSlice"),
    (_range, "Range"),
)  # fmt: skip
