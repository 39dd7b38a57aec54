"""Check without TensorFlow that its importer accepts a graph."""

import logging
import math
from collections.abc import Callable, Sequence

from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.node_index import SHAPES
from deploykit.transforms.ir.ops import LAST_VERSION_WITHOUT_SCALARS, op_defs
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import channels_first
from deploykit.transforms.runtime.importing import ImportCheck, light_form
from deploykit.transforms.shapes.rules import EVERY_PORT, RULES, by_op
from deploykit.transforms.shapes.sizes import Shape, common_shape, if_full, require
from deploykit.transforms.untrusted.validate import GraphParts, validate

logger = logging.getLogger("deploykit")

Shapes = Sequence[Shape]  # of the inputs of a node; -1: TensorFlow does not know the size
Values = Sequence[Array | None]  # of the inputs; None: not a small Const
Rule = Callable[[Node, Shapes, Values], Shape | None]
Condition = Callable[[Node, Shapes, Values], bool]

_MAX_SIZES = 1024  # a Const with more elements contains no sizes
_MOST = 1 << 31  # larger sizes, strides and paddings could overflow
_UNCLEAR = (ArithmeticError, Error, IndexError, TypeError, ValueError)


def check_import(graph: Graph, *, is_validated: bool) -> None:
    """Raise LoadError or CrashError for a graph that TensorFlow cannot import.

    A child process with TensorFlow starts only if `validate` has not accepted the graph, or if the
    shapes do not prove that it can be imported.
    """
    try:
        if not is_validated:
            validate(graph)
        doubt = prove_import(graph)[1]
    except GraphError as error:
        doubt = str(error)
    if doubt:
        logger.debug("checking the import with TensorFlow; not proven: %s", doubt)
        with ImportCheck() as tensorflow:
            tensorflow.check(light_form(GraphParts.of(graph)))


def prove_import(graph: Graph) -> tuple[dict[str, Shape], str]:
    """Return the shape of each node's first output, and '' if TensorFlow can import the graph.

    If that is not proven, return the shapes found so far and the name of a node or function that
    TensorFlow may refuse. The graph must have passed `validate`.
    """
    shapes: dict[str, Shape] = {}
    if graph.library.function:
        return shapes, str(graph.library.function[0].signature.name)
    if unproven := graph.ops - PROVEN.keys():
        return shapes, next(node.name for node in graph if node.op in unproven)
    old = graph.versions.producer <= LAST_VERSION_WITHOUT_SCALARS
    for name in graph.order():
        node = graph[name]
        try:
            shape = _shape(graph, node, shapes)
            if SHAPES in node.attrs and shape is not None:
                shape = _merged(node, shape)
        except _UNCLEAR:
            return shapes, name
        if shape is None or not _is_safe(shape):
            return shapes, name
        if old and node.op == "Placeholder" and not shape:
            return shapes, name  # in old graphs, [] of a placeholder means any shape
        shapes[name] = shape
    return shapes, ""


def _shape(graph: Graph, node: Node, known: dict[str, Shape]) -> Shape | None:
    if node.op in _SAME_SHAPE and node.inputs[0] in known:
        return known[node.inputs[0]]
    tensors = node.data_inputs
    shapes = [known[t] if t in known else _of_port(graph, t, known) for t in tensors]
    sized = node.op in _SIZED
    values = [_small_value(graph, t) if sized else None for t in tensors]
    return PROVEN[node.op](node, shapes, values)


def _merged(node: Node, shape: Shape) -> Shape | None:
    """Return a shape merged with the node's `_output_shapes`; None: they may differ."""
    noted = node.attr(SHAPES)
    count = len(op_defs()[node.op].output_arg)
    if not isinstance(noted, list) or len(noted) != count or node.op in EVERY_PORT:
        return None
    if any(item is not None and not isinstance(item, tuple) for item in noted):
        return None
    if node.op in _BATCH_NORMS:
        channels = shape[1 if channels_first(node) else 3]
        if not {None, (-1,), (channels,)}.issuperset(noted[1:5]):
            return None
    return common_shape([shape, *noted[:1]])


def _of_port(graph: Graph, tensor: str, known: dict[str, Shape]) -> Shape:
    """Return the shape of an output after the first."""
    name, port = split(tensor)
    if port < 0 or graph[name].op not in EVERY_PORT:
        raise ValueError("no rule gives the shape of this output")
    return known[name]


def _small_value(graph: Graph, tensor: str) -> Array | None:
    node = graph.producer(tensor)
    if node.op != "Const" or math.prod(node.shape) > _MAX_SIZES:
        return None
    return node.value


def _is_safe(shape: Shape) -> bool:
    """Return whether no product of sizes overflows."""
    return max(shape, default=0) < _MOST and math.prod([max(size, 1) for size in shape]) < 1 << 62


def _where(holds: Condition, op: str, slides: bool = False) -> Rule:
    """Return the shape rule of an op, limited to nodes that satisfy a condition.

    With `slides`, also to windows that fit into the image.
    """
    rule = RULES[op]

    def shape(node: Node, shapes: Shapes, values: Values) -> Shape | None:
        result = rule(node, shapes, values) if holds(node, shapes, values) else None
        return None if slides and 0 in (result or ()) else result

    return shape


def _window(node: Node, *lists: str) -> bool:
    """Return whether a window of rank 4 slides only along the image's height and width."""
    if node.attr("data_format", "NHWC") not in ("NHWC", "NCHW") or node.attr("explicit_paddings"):
        return False
    if node.attr("padding") not in ("SAME", "VALID"):
        return False
    channels = 1 if channels_first(node) else 3
    for name in lists:
        steps = node.attr(name, [1, 1, 1, 1])
        if len(steps) != 4 or steps[0] != 1 or steps[channels] != 1:
            return False
        if not all(1 <= step < _MOST for step in steps):
            return False
    return True


def _convolves(node: Node, shapes: Shapes, _: Values) -> bool:
    if len(shapes[0]) != 4 or len(shapes[1]) != 4 or not _window(node, "strides", "dilations"):
        return False
    channels = shapes[0][1 if channels_first(node) else 3]
    *_window_sizes, read, given = shapes[1]
    if channels < 1 or min(shapes[1]) < 1:
        return False
    if node.op == "DepthwiseConv2dNative":
        return channels == read
    return channels % read == 0 and given % (channels // read) == 0


def _pools(node: Node, shapes: Shapes, _: Values) -> bool:
    return len(shapes[0]) == 4 and _window(node, "ksize", "strides")


def _adds_bias(node: Node, shapes: Shapes, _: Values) -> bool:
    image, bias = shapes
    if channels_first(node):
        return len(image) == 4 and image[1] >= 0 and bias == (image[1],)
    return len(image) >= 2 and image[-1] >= 0 and bias == (image[-1],)


def _normalizes(node: Node, shapes: Shapes, _: Values) -> bool:
    if node.attr("is_training", True) or node.attr("data_format", "NHWC") not in ("NHWC", "NCHW"):
        return False
    channels = shapes[0][1 if channels_first(node) else 3]
    return len(shapes[0]) == 4 and channels >= 0 and set(shapes[1:]) == {(channels,)}


def _pads(_: Node, shapes: Shapes, values: Values) -> bool:
    pads = require(values[1])
    if pads.shape != (len(shapes[0]), 2) or any(shapes[2:]):
        return False
    return not pads.size or bool(pads.min() >= 0 and pads.max() < _MOST)


def _squeezes(node: Node, shapes: Shapes, _: Values) -> bool:
    axes = node.attr("squeeze_dims") or ()
    if not axes:
        return if_full(shapes[0]) is not None
    return all(-len(shapes[0]) <= axis and shapes[0][axis] == 1 for axis in axes)


def _splits(node: Node, shapes: Shapes, values: Values) -> bool:
    axis = require(values[0])
    size = shapes[1][axis.item()] if axis.ndim == 0 else -1
    return size >= 0 and size % node.attr("num_split") == 0


def _slices(_: Node, shapes: Shapes, values: Values) -> bool:
    begin, counts = require(values[1]), require(values[2])
    if not begin.shape == counts.shape == (len(shapes[0]),):
        return False
    parts = zip(shapes[0], begin.tolist(), counts.tolist(), strict=True)
    return all(
        low >= 0 and count >= -1 and (size >= low + max(count, 0) or (size < 0 and low == 0))
        for size, low, count in parts
    )


def _reshape(_: Node, shapes: Shapes, values: Values) -> Shape | None:
    sizes = require(values[1])
    result = sizes.tolist()
    if sizes.ndim != 1 or min(result, default=0) < -1 or result.count(-1) > 1:
        return None
    read, made = (math.prod(s for s in item if s >= 0) for item in (shapes[0], result))
    unknown = shapes[0].count(-1)
    if unknown > 1 or (unknown and -1 in result):
        return tuple(result)
    if unknown:  # the unknown size results from the others
        return tuple(result) if read > 0 and made % read == 0 else None
    if -1 not in result:
        return tuple(result) if read == made else None
    if made == 0 or read % made:
        return None
    return tuple(read // made if size < 0 else size for size in result)


def _arg_extreme(_: Node, shapes: Shapes, values: Values) -> Shape | None:
    value = require(values[1])
    if value.ndim:
        return None
    axis = range(len(shapes[0]))[value.item()]
    return (*shapes[0][:axis], *shapes[0][axis + 1 :])


_SAME_SHAPE_OPS = """
    Abs Cast Ceil CheckNumerics Cos Elu Erf Erfc Exp Floor Identity Inv IsFinite IsNan LeakyRelu
    Log Log1p LogicalNot Neg OnesLike PreventGradient Reciprocal Relu Relu6 Rint Round Rsqrt Selu
    Sigmoid Sign Sin Snapshot Softplus Softsign Sqrt Square StopGradient Tan Tanh ZerosLike
"""
_SAME_SHAPE = frozenset(_SAME_SHAPE_OPS.split())
_BATCH_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})

_CONDITIONS: dict[str, Condition] = by_op(
    (lambda *_: True, _SAME_SHAPE_OPS),
    (lambda *_: True, """
     Add AddV2 BatchMatMulV2 BatchMatMulV3 Const Div DivNoNan FloorDiv FloorMod Greater GreaterEqual
     Less LessEqual LogicalAnd LogicalOr MatMul Maximum Minimum Mod Mul MulNoNan Pack Pow RealDiv
     SquaredDifference Sub TruncateDiv"""),
    (lambda node, *_: bool(node.attr("incompatible_shape_error", True)), "Equal NotEqual"),
    (lambda _, shapes, __: len(shapes[0]) >= 1, "LogSoftmax Softmax"),
    (lambda _, shapes, __: len(shapes[0]) == 4, "LRN"),
    (lambda _, shapes, __: not any(shapes[1:]),
     "ClipByValue FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars"),
    (_adds_bias, "BiasAdd"),
    (_normalizes, " ".join(_BATCH_NORMS)),
    (_pads, "MirrorPad Pad PadV2"),
    (lambda _, __, values: require(values[1]).ndim <= 1, "All Any Max Mean Min Prod Sum"),
    (lambda _, __, values: require(values[0]).ndim == 0, "Concat"),
    (lambda _, __, values: require(values[-1]).ndim == 0, "ConcatV2 ExpandDims"),
    (lambda _, shapes, values: require(values[1]).ndim == 1
     and sorted(require(values[1]).tolist()) == list(range(len(shapes[0]))), "Transpose"),
    (_squeezes, "Squeeze"),
    (_splits, "Split"),
    (lambda node, shapes, _: bool(shapes[0][node.attr("axis", 0)] == node.attr("num")), "Unpack"),
    (lambda node, shapes, values:
     bool(shapes[0]) and (node.op == "Gather" or require(values[2]).ndim == 0), "Gather GatherV2"),
    (_slices, "Slice"),
    (lambda _, shapes, values: len(shapes[0]) == 4 and require(values[1]).shape == (2,)
     and bool(require(values[1]).min() >= 1), "ResizeBilinear ResizeNearestNeighbor"),
)  # fmt: skip
_SIZED_OPS = """
    All Any ArgMax ArgMin Concat ConcatV2 ExpandDims GatherV2 Max Mean Min MirrorPad Pad PadV2 Prod
    Reshape ResizeBilinear ResizeNearestNeighbor Slice Split Sum Transpose
"""
_SIZED = frozenset(_SIZED_OPS.split())  # they read sizes or axes

PROVEN: dict[str, Rule] = {
    **{op: _where(holds, op) for op, holds in _CONDITIONS.items()},
    **{op: _where(_convolves, op, slides=True) for op in ("Conv2D", "DepthwiseConv2dNative")},
    **{op: _where(_pools, op, slides=True) for op in ("AvgPool", "MaxPool")},
    "AddN": lambda _, shapes, __: common_shape(shapes),
    "ArgMax": _arg_extreme,
    "ArgMin": _arg_extreme,
    "NoOp": lambda *_: (),
    "Placeholder": lambda node, _, __: node.attr("shape"),
    "Reshape": _reshape,
}
"""For each op: the rule that returns the shape of its first output, or None: not proven."""
