"""Padding: the zeros around the input of a convolution, and the attributes that define them."""

from collections.abc import Mapping

from deploykit.transforms.ir.kernel_limits import LIMITS
from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import LAYER_OPS, channels_first
from deploykit.transforms.shapes.sizes import Shape

Zeros = tuple[int, int]  # before and after, along one axis
ZerosByAxis = Mapping[int, Zeros]


def spatial_axes(layer: Node) -> range:
    """Return the axes of a convolution's input that its windows slide along."""
    rank = LAYER_OPS[layer.op]
    return range(2, rank) if channels_first(layer) else range(1, rank - 1)


def per_axis(layer: Node, attr: str) -> dict[int, int]:
    """Return a convolution's `strides` or `dilations` by spatial axis."""
    values = layer.attr(attr) or [1] * LAYER_OPS[layer.op]
    return {axis: values[axis] for axis in spatial_axes(layer)}


def zeros_around(layer: Node, kernel: Shape, image: Shape | None = None) -> ZerosByAxis | None:
    """Return the zeros before and after each spatial axis for a convolution with this kernel.

    None: they depend on the size of the image, which is not given.
    """
    padding = layer.attr("padding")
    if padding == "VALID":
        return dict.fromkeys(spatial_axes(layer), (0, 0))
    if padding == "EXPLICIT":
        pairs = layer.attr("explicit_paddings") or [0] * (2 * LAYER_OPS[layer.op])
        return {axis: (pairs[2 * axis], pairs[2 * axis + 1]) for axis in spatial_axes(layer)}
    return _same(layer, kernel, image)


def with_zeros_around(
    layer: Node, kernel: Shape, zeros: ZerosByAxis, image: Shape | None = None
) -> Node | None:
    """Return the convolution with these zeros: VALID, SAME if equivalent, or EXPLICIT.

    None: it would need EXPLICIT, which the op does not support.
    """
    explicit: list[int] = []
    if not any(map(any, zeros.values())):
        padding = "VALID"
    elif zeros == _same(layer, kernel, image):
        padding = "SAME"
    elif not LIMITS[layer.op].explicit:
        padding, explicit = "EXPLICIT", [0] * (2 * LAYER_OPS[layer.op])
        for axis, pair in zeros.items():
            explicit[2 * axis : 2 * axis + 2] = pair
    else:
        return None
    has_attr = explicit or "explicit_paddings" in layer.attrs
    return layer.with_attrs(padding=padding, explicit_paddings=explicit if has_attr else None)


def _same(layer: Node, kernel: Shape, image: Shape | None) -> ZerosByAxis | None:
    """Return the zeros of SAME, half of them before, or None if they depend on an unknown size."""
    strides, result = per_axis(layer, "strides"), {}
    for size, (axis, dilation) in zip(kernel, per_axis(layer, "dilations").items(), strict=False):
        total = (size - 1) * dilation
        if total and strides[axis] > 1:
            if image is None or image[axis] < 1:
                return None
            past_last = (image[axis] - 1) % strides[axis]  # pixels after the last window's start
            total = max(total - past_last, 0)
        result[axis] = (total // 2, total - total // 2)
    return result
