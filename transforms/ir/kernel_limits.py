"""Limits of the kernels of the ops that transforms write, checked before an op is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import FLOATS, channels_first
from deploykit.transforms.shapes.sizes import Shape

InputShapes = Sequence[Shape | None]  # of what a node reads; -1: a size that is not known


@dataclass(frozen=True)
class KernelLimits:
    """For each thing that a node may ask for: what the op does instead, or '' where it can."""

    types: frozenset[str] = frozenset({"float32"})
    gpu: str = ""
    channels_first: str = "takes NHWC alone"
    dilations: str = "takes no dilations"
    explicit: str = "takes no explicit padding"
    strides: str = ""
    """Other strides along the height than along the width."""
    windows: str = ""
    """Windows over the batch or the channels."""
    transposed: str = ""
    """A first factor that is transposed."""
    shapes: tuple[Callable[[str, Node, InputShapes], str], ...] = ()
    """What else depends on the shapes of what the node reads."""


def _groups(op: str, node: Node, shapes: InputShapes) -> str:
    image, weights = shapes[:2]
    channels = image[1 if channels_first(node) else -1] if image else -1
    read = weights[-2] if weights else -1
    if -1 in (channels, read):
        return f"{op} takes no groups, and how many channels it reads is not known"
    return "" if channels == read else f"{op} takes no groups"


def _one_image(_: str, __: Node, shapes: InputShapes) -> str:
    if (shapes[0] or (-1,))[0] == 1:
        return ""
    reason = "TensorFlow computes the fused op right for a batch of 1 only, and the batch is"
    return f"{reason} not known to be 1"


def _at_least_two(op: str, node: Node, _: InputShapes) -> str:
    return f"{op} takes at least two tensors" if len(node.data_inputs) < 3 else ""


def _one_vector(op: str, node: Node, shapes: InputShapes) -> str:
    """Return why two shapes are too much for a kernel that repeats a vector and nothing else."""
    if node.data_inputs[0] == node.data_inputs[1]:
        return ""
    parts = sorted((_without_leading_ones(s) for s in shapes if s is not None), key=len)
    if parts and not parts[0]:
        return ""
    if len(parts) < 2:
        return f"the shapes of what it reads are not known, and {op} takes few"
    short, long = parts
    tail = long[len(long) - len(short) :]
    if -1 in (short[0], tail[0]) and (len(short) == len(long) or tail[0] > 1):
        short, tail = short[1:], tail[1:]  # an open batch may be 1 or not: it is right either way
    if short != tail or -1 in tail:
        return f"{op} cannot broadcast {shapes[0]} and {shapes[1]}"
    return ""


def _without_leading_ones(shape: Shape) -> Shape:
    start = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[start:]


_FLOAT = KernelLimits(FLOATS, channels_first="", explicit="", dilations="")
_ALONE = "has dilations under oneDNN alone"
_FUSED = KernelLimits(FLOATS, gpu="runs on CPUs", shapes=(_groups, _one_image))
_PRIVATE = KernelLimits(gpu="runs on CPUs", dilations="")
_PRODUCT = replace(_PRIVATE, transposed="does not transpose its input")
_POOL = KernelLimits(windows="pools over height and width alone")
_SUM = KernelLimits(shapes=(_one_vector,))

LIMITS = {
    "Conv2D": _FLOAT,
    "Conv3D": replace(_FLOAT, explicit="takes no explicit padding", dilations=_ALONE),
    "DepthwiseConv2dNative": replace(
        _FLOAT,
        dilations=_ALONE,
        explicit="with explicit padding and a bias can end TensorFlow under oneDNN",
    ),
    "MatMul": _FLOAT,
    "FusedPadConv2D": _FUSED,
    "FusedResizeAndPadConv2D": _FUSED,
    "QuantizedAdd": _SUM,
    "QuantizedAvgPool": _POOL,
    "QuantizedBiasAdd": KernelLimits(),
    "QuantizedConcat": KernelLimits(shapes=(_at_least_two,)),
    "QuantizedConv2D": KernelLimits(
        strides="takes one stride for height and width", shapes=(_groups,)
    ),
    "QuantizedMatMul": KernelLimits(),
    "QuantizedMaxPool": _POOL,
    "QuantizedMul": _SUM,
    "QuantizedRelu": KernelLimits(),
    "QuantizedRelu6": KernelLimits(),
    "QuantizedReshape": KernelLimits(),
    "QuantizedResizeBilinear": KernelLimits(),
    "_FusedQuantizedConv2D": replace(_PRIVATE, explicit="", shapes=(_groups,)),
    "_FusedQuantizedDepthwiseConv2D": _PRIVATE,
    "_MklLayerNorm": KernelLimits(gpu="runs on CPUs"),
    "_MklNativeFusedConv2D": replace(_PRIVATE, explicit=""),
    "_MklNativeFusedDepthwiseConv2dNative": _PRIVATE,
    "_MklNativeFusedMatMul": _PRODUCT,
    "_QuantizedMatMul": _PRODUCT,
}


def limit(op: str, node: Node, shapes: InputShapes | None = None) -> str:
    """Return why an op cannot do what a float node asks for, or an empty string.

    `shapes` are those of what the node reads; without them, only what its attributes ask for counts
    (and the shapes are still to be judged before the op is written).
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


def takes_explicit_padding(op: str) -> bool:
    """Say whether a convolution may have other zeros around it than SAME and VALID set."""
    return not LIMITS[op].explicit


def _windows(node: Node) -> bool:
    """Say whether a window covers or skips more than one image or channel."""
    return any(size != 1 for name in ("ksize", "strides") for size in (node.attr(name) or ())[::3])
