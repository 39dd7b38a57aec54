"""Padding: the zeros that a convolution sees around its input, and the attributes that say so."""

from collections.abc import Mapping

from transforms.core.layers import LAYER_OPS, channels_first
from transforms.core.node import Node

Zeros = tuple[int, int]  # before and after, along one axis


def spatial_axes(layer: Node) -> range:
    """Return the axes of a convolution's input that its windows slide along."""
    rank = LAYER_OPS[layer.op]
    return range(2, rank) if channels_first(layer) else range(1, rank - 1)


def per_axis(layer: Node, attr: str) -> dict[int, int]:
    """Return a convolution's `strides` or `dilations` by spatial axis."""
    values = layer.attr(attr) or [1] * LAYER_OPS[layer.op]
    return {axis: values[axis] for axis in spatial_axes(layer)}


def zeros_around(layer: Node, kernel: tuple[int, ...]) -> dict[int, Zeros] | None:
    """Return the zeros that a convolution with this kernel sees before and after each spatial axis.

    None: they depend on the size of its input, as those of SAME do where the stride is not 1.
    """
    padding = layer.attr("padding")
    if padding == "VALID":
        return dict.fromkeys(spatial_axes(layer), (0, 0))
    if padding == "EXPLICIT":
        pairs = layer.attr("explicit_paddings") or [0] * (2 * LAYER_OPS[layer.op])
        return {axis: (pairs[2 * axis], pairs[2 * axis + 1]) for axis in spatial_axes(layer)}
    if set(per_axis(layer, "strides").values()) != {1}:
        return None
    return _same(layer, kernel)


def with_zeros_around(
    layer: Node, kernel: tuple[int, ...], zeros: Mapping[int, Zeros]
) -> Node | None:
    """Return the convolution with these zeros: VALID, SAME where it means them, or EXPLICIT.

    None: only EXPLICIT would do, and it is no Conv2D. Conv3D has no such padding, and with it a
    depthwise convolution that is followed by a BiasAdd ends TensorFlow under oneDNN.
    """
    explicit = None
    if not any(map(any, zeros.values())):
        padding = "VALID"
    elif set(per_axis(layer, "strides").values()) == {1} and zeros == _same(layer, kernel):
        padding = "SAME"
    elif layer.op == "Conv2D":
        padding, explicit = "EXPLICIT", [0] * (2 * LAYER_OPS[layer.op])
        for axis, pair in zeros.items():
            explicit[2 * axis : 2 * axis + 2] = pair
    else:
        return None
    has_attr = explicit is not None or "explicit_paddings" in layer.attrs
    return layer.with_attrs(
        padding=padding, explicit_paddings=(explicit or []) if has_attr else None
    )


def _same(layer: Node, kernel: tuple[int, ...]) -> dict[int, Zeros]:
    """Return what SAME means at stride 1: one zero less than the window is wide, split evenly."""
    result = {}
    for size, (axis, dilation) in zip(kernel, per_axis(layer, "dilations").items(), strict=False):
        total = (size - 1) * dilation
        result[axis] = (total // 2, total - total // 2)
    return result
