"""The static shapes of a graph's tensors, as far as the ops of vision and dense nets tell them.

One pass in execution order, without TensorFlow. What is not known stays unknown: an op without a
rule gives none, so whoever asks has to do without.
"""

import math
from collections.abc import Callable, Iterable

from transforms.core.graph import Graph
from transforms.core.layers import channels_first
from transforms.core.node import Node, split
from transforms.core.tensors import Array

Shape = tuple[int, ...]  # -1: a size that is not known
Sizes = list[Shape | None]  # of the inputs of a node; None: a rank that is not known
Rule = Callable[["Shapes", Node, Sizes], Shape | None]

_LIKE_THE_FIRST = """
    Abs BiasAdd Cast CheckNumerics Dequantize Elu Erf Exp FakeQuantWithMinMaxArgs
    FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel Floor FusedBatchNorm FusedBatchNormV2
    FusedBatchNormV3 BatchNormWithGlobalNormalization Identity LRN LeakyRelu Log Neg QuantizeV2
    Reciprocal Relu Relu6 Round Rsqrt Selu Sigmoid Sin Softmax Softplus Softsign Sqrt Square
    StopGradient Tanh
"""
_BROADCASTING = "Add AddV2 Maximum Minimum Mul Pow RealDiv SquaredDifference Sub"
_LAST_VERSION_WITHOUT_SCALARS = 21  # up to here a placeholder's shape [] meant any shape
_EVERY_PORT = frozenset({"Split", "Unpack"})  # all of their outputs have one shape


class Shapes:
    """The shapes of a graph's tensors as it was when asked."""

    def __init__(self, graph: Graph) -> None:
        """Find them in one pass."""
        self._graph = graph
        self._known: dict[str, Shape] = {}
        self.has_scalars = graph.versions.producer > _LAST_VERSION_WITHOUT_SCALARS
        for name in graph.order():
            node = graph[name]
            rule = RULES.get(node.op)
            if rule is None:
                continue
            # a loop's NextIteration comes later: its shape is not known yet
            sizes = [self.shape(tensor) for tensor in node.data_inputs]
            try:
                shape = rule(self, node, sizes)
            except (ArithmeticError, IndexError, TypeError, ValueError):
                continue  # attributes that do not fit: TensorFlow will refuse the node
            if shape is not None:
                self._known[name] = shape

    def shape(self, tensor: str) -> Shape | None:
        """Return a tensor's shape, -1 for unknown sizes, or None where its rank is not known."""
        name, port = split(tensor)
        if port == 0 or (name in self._known and self._graph[name].op in _EVERY_PORT):
            return self._known.get(name)
        return None

    def constant(self, node: Node, place: int) -> Array | None:
        """Return the value of a node's input if it is a Const."""
        found = self._graph.constant(node.data_inputs[place])
        return None if found is None else found.value

    def sizes(self, tensor: str) -> Shape | None:
        """Return what a tensor that holds a shape says: a Const, or a Pack of numbers."""
        found = self._graph.constant(tensor)
        if found is not None:
            return tuple(found.value.reshape(-1).tolist())
        maker = self._graph.producer(tensor)
        if maker.op == "Pack":
            parts = [self._graph.constant(part) for part in maker.data_inputs]
            return tuple(-1 if part is None else int(part.value) for part in parts)
        length = self.shape(tensor)
        return (-1,) * length[0] if length and length[0] >= 0 else None


def broadcast(shapes: Iterable[Shape | None]) -> Shape | None:
    """Return the shape that several shapes broadcast to."""
    known = list(shapes)
    ranks = [len(shape) for shape in known if shape is not None]
    if len(ranks) < len(known):
        return None
    result = []
    for place in range(-max(ranks, default=0), 0):
        sizes = {shape[place] for shape in known if shape is not None and len(shape) >= -place}
        larger = {size for size in sizes if size > 1} or sizes - {1} or {1}
        result.append(larger.pop() if len(larger) == 1 else -1)
    return tuple(result)


def _placeholder(known: Shapes, node: Node, _: Sizes) -> Shape | None:
    shape: Shape | None = node.attr("shape")
    return shape if shape or known.has_scalars else None


def _const(_: Shapes, node: Node, __: Sizes) -> Shape:
    return node.shape


def _first(_: Shapes, __: Node, shapes: Sizes) -> Shape | None:
    return shapes[0]


def _broadcast(_: Shapes, __: Node, shapes: Sizes) -> Shape | None:
    return broadcast(shapes)


def _window(node: Node, shape: Shape | None, window: Shape, channels: int) -> Shape:
    """Return the shape after a convolution or pool; `channels` -1 keeps those of the input."""
    first = channels_first(node)
    places = (2, 3) if first else (1, 2)
    shape = shape if shape is not None and len(shape) == 4 else (-1,) * 4
    result = list(shape)
    strides, dilations = node.attr("strides"), node.attr("dilations") or [1] * 4
    explicit = node.attr("explicit_paddings") or [0] * 8
    for place, size in zip(places, window, strict=True):
        around = shape[place]
        if around >= 0 and size >= 0:
            if node.attr("padding") != "SAME":
                around += sum(explicit[2 * place : 2 * place + 2]) - (size - 1) * dilations[place]
            around = max(-(-around // strides[place]), 0)
        elif node.attr("padding") != "SAME" or around < 0:
            around = -1
        result[place] = around
    result[1 if first else 3] = channels if channels >= 0 else shape[1 if first else 3]
    return tuple(result)


def _convolution(_: Shapes, node: Node, shapes: Sizes) -> Shape:
    weights = shapes[1] if shapes[1] is not None and len(shapes[1]) == 4 else (-1,) * 4
    channels = weights[3]
    if node.op == "DepthwiseConv2dNative":
        channels = weights[2] * weights[3] if min(weights[2:]) >= 0 else -1
    shape = _window(node, shapes[0], weights[:2], channels)
    if channels >= 0:
        return shape
    return (*shape[:1], -1, *shape[2:]) if channels_first(node) else (*shape[:3], -1)


def _pool(_: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    ksize = node.attr("ksize")
    return _window(node, shapes[0], tuple(ksize[2:] if channels_first(node) else ksize[1:3]), -1)


def _matmul(_: Shapes, node: Node, shapes: Sizes) -> Shape:
    rows, columns = -1, -1
    if shapes[0] is not None and len(shapes[0]) == 2:
        rows = shapes[0][1 if node.attr("transpose_a", False) else 0]
    if shapes[1] is not None and len(shapes[1]) == 2:
        columns = shapes[1][0 if node.attr("transpose_b", False) else 1]
    return rows, columns


def _reshape(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    sizes = known.sizes(node.data_inputs[1])
    if sizes is None or sizes.count(-1) != 1 or shapes[0] is None or min(shapes[0], default=0) < 0:
        return sizes
    rest = -math.prod(sizes)
    missing = math.prod(shapes[0]) // rest if rest > 0 else -1
    return tuple(missing if size == -1 else size for size in sizes)


def _reduction(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    axes = known.constant(node, 1)
    if axes is None or shapes[0] is None:
        return None
    gone = {int(axis) % len(shapes[0]) for axis in axes.reshape(-1)} if shapes[0] else set()
    if node.attr("keep_dims", False):
        return tuple(1 if axis in gone else size for axis, size in enumerate(shapes[0]))
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in gone)


def _pad(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    pads = known.constant(node, 1)
    if pads is None or shapes[0] is None or len(pads) != len(shapes[0]):
        return None
    around = [int(pad) for pad in pads.sum(1)]
    return tuple(
        size if size < 0 else size + pad for size, pad in zip(shapes[0], around, strict=True)
    )


def _concat(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    place = 0 if node.op == "Concat" else len(shapes) - 1
    axis = known.constant(node, place)
    parts = shapes[1:] if node.op == "Concat" else shapes[:-1]
    ranked = [part for part in parts if part is not None]
    if axis is None or not ranked or not -len(ranked[0]) <= int(axis) < len(ranked[0]):
        return None
    result = list(ranked[0])
    along = [-1 if part is None else part[int(axis)] for part in parts]
    result[int(axis)] = sum(along) if min(along) >= 0 else -1
    return tuple(result)


def _squeeze(_: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    if shapes[0] is None:
        return None
    dims = {axis % len(shapes[0]) for axis in node.attr("squeeze_dims") or [] if shapes[0]}
    if not dims and -1 in shapes[0]:
        return None
    return tuple(s for axis, s in enumerate(shapes[0]) if (axis not in dims if dims else s != 1))


def _expand_dims(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    axis = known.constant(node, 1)
    if axis is None or shapes[0] is None:
        return None
    place = int(axis.reshape(-1)[0]) % (len(shapes[0]) + 1)
    return (*shapes[0][:place], 1, *shapes[0][place:])


def _transpose(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    order = known.constant(node, 1)
    if order is None or shapes[0] is None or len(order) != len(shapes[0]):
        return None
    return tuple(shapes[0][int(axis)] for axis in order)


def _resize(known: Shapes, node: Node, shapes: Sizes) -> Shape:
    shape = shapes[0] if shapes[0] is not None and len(shapes[0]) == 4 else (-1,) * 4
    size = known.sizes(node.data_inputs[1])
    height, width = size if size is not None and len(size) == 2 else (-1, -1)
    return (shape[0], height, width, shape[3])


def _split(known: Shapes, node: Node, shapes: Sizes) -> Shape | None:
    axis = known.constant(node, 0)
    if axis is None or not shapes[1]:
        return None
    result = list(shapes[1])
    place = int(axis) % len(result)
    result[place] = -1 if result[place] < 0 else result[place] // node.attr("num_split")
    return tuple(result)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_LIKE_THE_FIRST.split(), _first),
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), _convolution),
    **dict.fromkeys(("AvgPool", "MaxPool"), _pool),
    **dict.fromkeys(("Max", "Mean", "Min", "Prod", "Sum"), _reduction),
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _pad),
    **dict.fromkeys(("Concat", "ConcatV2"), _concat),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor"), _resize),
    "Const": _const,
    "ExpandDims": _expand_dims,
    "MatMul": _matmul,
    "Placeholder": _placeholder,
    "Reshape": _reshape,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
}
