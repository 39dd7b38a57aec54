"""Limits of the kernels of the ops that transforms write, checked before an op is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import FLOATS, channels_first
from deploykit.transforms.shapes.sizes import Shape

InputShapes = Sequence[Shape | None]  # of a node's inputs; -1: unknown size


@dataclass(frozen=True)
class KernelLimits:
    """For each property of a node: the reason why the op does not support it, or ''."""

    types: frozenset[str] = frozenset({"float32"})
    gpu: str = ""
    channels_first: str = "takes only NHWC"
    dilations: str = "takes no dilations"
    explicit: str = "takes no explicit padding"
    strides: str = ""
    """Different strides for height and width."""
    windows: str = ""
    """Windows over the batch or the channels."""
    transposed: str = ""
    """A transposed first factor."""
    shapes: tuple[Callable[[str, Node, InputShapes], str], ...] = ()
    """Further checks that depend on the shapes of the inputs."""


def _groups(op: str, node: Node, shapes: InputShapes) -> str:
    image, weights = shapes[:2]
    channels = image[1 if channels_first(node) else -1] if image else -1
    read = weights[-2] if weights else -1
    if -1 in (channels, read):
        return f"{op} takes no groups, and the number of its input channels is unknown"
    return "" if channels == read else f"{op} takes no groups"


def _one_image(_: str, __: Node, shapes: InputShapes) -> str:
    if (shapes[0] or (-1,))[0] == 1:
        return ""
    reason = "TensorFlow runs the fused op correctly only for a batch of 1, and the batch is"
    return f"{reason} not known to be 1"


def _one_vector(op: str, node: Node, shapes: InputShapes) -> str:
    """Return why a kernel that broadcasts only a vector cannot take two shapes, or ''."""
    if node.data_inputs[0] == node.data_inputs[1]:
        return ""
    # without the leading axes of size 1
    parts = sorted(
        (tuple(dropwhile(lambda size: size == 1, s)) for s in shapes if s is not None), key=len
    )
    if parts and not parts[0]:
        return ""
    if len(parts) < 2:
        return f"the shapes of its inputs are unknown, and {op} takes few"
    short, long = parts
    tail = long[len(long) - len(short) :]
    if -1 in (short[0], tail[0]) and (len(short) == len(long) or tail[0] > 1):
        short, tail = short[1:], tail[1:]  # correct whether an unknown batch is 1 or not
    if short != tail or -1 in tail:
        return f"{op} cannot broadcast {shapes[0]} and {shapes[1]}"
    return ""


_FLOAT = KernelLimits(FLOATS, channels_first="", explicit="", dilations="")
_ALONE = "has dilations only under oneDNN"
_FUSED = KernelLimits(FLOATS, gpu="runs on CPUs", shapes=(_groups, _one_image))
_PRIVATE = KernelLimits(gpu="runs on CPUs", dilations="")
_PRODUCT = replace(_PRIVATE, transposed="does not transpose its input")
_POOL = KernelLimits(windows="pools only over height and width")
_SUM = KernelLimits(shapes=(_one_vector,))
_PLAIN = """
    QuantizedBiasAdd QuantizedMatMul QuantizedRelu QuantizedRelu6 QuantizedReshape
    QuantizedResizeBilinear
"""

LIMITS = {
    "Conv2D": _FLOAT,
    "Conv3D": replace(_FLOAT, explicit="takes no explicit padding", dilations=_ALONE),
    "DepthwiseConv2dNative": replace(
        _FLOAT,
        dilations=_ALONE,
        explicit="with explicit padding and a bias can crash TensorFlow under oneDNN",
    ),
    "MatMul": _FLOAT,
    "FusedPadConv2D": _FUSED,
    "FusedResizeAndPadConv2D": _FUSED,
    **dict.fromkeys(_PLAIN.split(), KernelLimits()),
    "QuantizedAdd": _SUM,
    "QuantizedAvgPool": _POOL,
    "QuantizedConcat": KernelLimits(
        shapes=(
            lambda op, node, _: f"{op} takes at least two tensors" * (len(node.data_inputs) < 3),
        )
    ),
    "QuantizedConv2D": KernelLimits(
        strides="takes one stride for height and width", shapes=(_groups,)
    ),
    "QuantizedMaxPool": _POOL,
    "QuantizedMul": _SUM,
    "_FusedQuantizedConv2D": replace(_PRIVATE, explicit="", shapes=(_groups,)),
    "_FusedQuantizedDepthwiseConv2D": _PRIVATE,
    "_MklLayerNorm": KernelLimits(gpu="runs on CPUs"),
    "_MklNativeFusedConv2D": replace(_PRIVATE, explicit=""),
    "_MklNativeFusedDepthwiseConv2dNative": _PRIVATE,
    "_MklNativeFusedMatMul": _PRODUCT,
    "_QuantizedMatMul": _PRODUCT,
}


def limit(op: str, node: Node, shapes: InputShapes | None = None) -> str:
    """Return why an op cannot replace a float node, or an empty string.

    `shapes` are the shapes of the node's inputs; without them, only its attributes are checked (and
    the shapes have to be checked before the op is written).
    """
    limits = LIMITS[op]
    if node.attr("T") not in limits.types:
        return f"its type is {node.attr('T')}, not {' or '.join(sorted(limits.types))}"
    if limits.gpu and "GPU" in node.device.upper():
        return f"it is placed on {node.device}, and {op} {limits.gpu}"
    if limits.channels_first and channels_first(node):
        return f"its data format is {node.attr('data_format')}; convert_layout makes it NHWC"
    for words, is_asked in (
        (limits.dilations, set(node.attr("dilations") or ()) - {1}),
        (limits.explicit, node.attr("padding") == "EXPLICIT"),
        (limits.transposed, node.attr("transpose_a", False)),
        (limits.windows, _windows(node)),
        (limits.strides, len(set((node.attr("strides") or ())[1:3])) > 1),
    ):
        if words and is_asked:
            return f"{op} {words}"
    checks = () if shapes is None else limits.shapes
    return next(filter(None, (check(op, node, shapes or ()) for check in checks)), "")


def _windows(node: Node) -> bool:
    """Return whether a window covers or skips more than one image or channel."""
    return any(size != 1 for name in ("ksize", "strides") for size in (node.attr(name) or ())[::3])
