"""A convolution between SpaceToBatchND and BatchToSpaceND is a convolution with dilations."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.pattern import Any, Const, Match, Op, needed_elsewhere
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS as LAYER_RANKS
from deploykit.transforms.layers.layers import weights_of, with_weights
from deploykit.transforms.layers.padding import (
    Zeros,
    per_axis,
    spatial_axes,
    with_zeros_around,
    zeros_around,
)
from deploykit.transforms.runtime.constants import Constants

SPLIT = Op("SpaceToBatchND", Any("image"), Const("block"), Const("paddings"), name="split")
LAYER_OPS = "Conv2D|Conv3D|DepthwiseConv2dNative"
LAYER = Op(LAYER_OPS, SPLIT, Any(), name="layer")
EXPANDED = Op("ExpandDims", SPLIT, Const("axis"), name="expand")  # as TensorFlow writes Conv1D
LAYER_1D = Op("Squeeze", Op("Conv2D", EXPANDED, Any(), name="layer"), name="squeeze")
ATROUS = tuple(
    Op("BatchToSpaceND", layer, Const("block_after"), Const("crops"), name="merge")
    for layer in (LAYER, LAYER_1D)
)


@dataclass(frozen=True)
class Atrous:
    """A layer between SpaceToBatchND and BatchToSpaceND, and their combined effect by axis."""

    match: Match
    layer: Node
    kernel: tuple[int, ...]
    rates: dict[int, int]
    zeros: dict[int, Zeros]


def fuse_dilations(graph: Graph) -> None:
    """Fuse SpaceToBatchND, Conv2D and BatchToSpaceND into one Conv2D with dilations.

    TensorFlow writes a dilated Conv1D in this form, and older versions a dilated Conv2D. Depthwise
    and 3-D convolutions are not changed, as only oneDNN runs their dilations.
    """
    for atrous in atrous_layers(graph):
        layer = atrous.layer
        dilations = list(layer.attr("dilations") or [1] * LAYER_RANKS[layer.op])
        for axis, rate in atrous.rates.items():
            dilations[axis] *= rate
        dilated = layer.with_attrs(dilations=dilations)
        if not graph.skip(layer, limit(layer.op, dilated)):
            replace_atrous(graph, atrous, dilated, atrous.kernel)


def atrous_layers(graph: Graph) -> list[Atrous]:
    """Return the layers between SpaceToBatchND and BatchToSpaceND that are one convolution."""
    constants = Constants(graph)
    result = []
    for pattern in ATROUS:
        for match in graph.match(pattern):
            value = _atrous(graph, constants, match)
            if isinstance(value, str):
                graph.skip(match["merge"], value)
            else:
                result.append(value)
    return result


def _atrous(graph: Graph, constants: Constants, match: Match) -> Atrous | str:
    """Return the dilated layer of a match, or why it is not a single convolution."""
    layer = match["layer"]
    chain = [match.nodes.get(n) for n in ("split", "expand", "layer", "squeeze", "merge")]
    if reason := needed_elsewhere(graph, [node for node in chain if node is not None]):
        return reason
    weights = constants.value(layer.data_inputs[1])
    block, paddings, crops = (match[n].value for n in ("block", "paddings", "crops"))
    if weights is None:
        return "the weights are not constant"
    if not np.array_equal(block, match["block_after"].value):
        return "it merges other blocks than were split"
    if set(per_axis(layer, "strides").values()) != {1}:
        return "the layer has strides"
    axes = _axes(match, len(block.reshape(-1)))
    known = zeros_around(layer, weights.shape)
    if axes is None or known is None:
        return "the layer's axes are not those that were split"
    rates, zeros = dict.fromkeys(spatial_axes(layer), 1), dict(known)
    for axis, rate, padded, cropped in zip(axes, block.tolist(), paddings, crops, strict=True):
        if axis not in rates:
            if rate != 1 or padded.any() or cropped.any():
                return "it splits the channels"
            continue
        before, after = (np.array(zeros[axis]) * rate + padded - cropped).tolist()
        if before < 0 or after < 0:
            return "it crops more than was padded"
        rates[axis], zeros[axis] = rate, (before, after)
    return Atrous(match, layer, weights.shape, rates, zeros)


def _axes(match: Match, count: int) -> list[int] | None:
    """Return the axes of the layer's input that were split; None: they cannot be determined."""
    axes = list(range(1, count + 1))
    if "expand" not in match.nodes:
        return axes
    new = int(match["axis"].value.reshape(())) % 4
    squeezed = match["squeeze"].attr("squeeze_dims") or []
    if [axis % 4 for axis in squeezed] != [new]:
        return None
    return [axis + (axis >= new) for axis in axes]


def replace_atrous(
    graph: Graph, atrous: Atrous, layer: Node, kernel: tuple[int, ...], weights: Array | None = None
) -> None:
    """Replace the three nodes by the layer with this kernel and the matching padding."""
    match = atrous.match
    padded = with_zeros_around(layer, kernel, atrous.zeros)
    if padded is None:
        graph.skip(layer, f"{layer.op} has no padding {sorted(atrous.zeros.values())}")
        return
    old = weights_of(graph, layer)
    if weights is not None and old is not None:
        padded = with_weights(graph, padded, old, weights)
    split, merge, image = match["split"], match["merge"], match.tensor("image")
    if "expand" in match.nodes:
        squeeze, expand = match["squeeze"], match["expand"]
        reads = expand.with_data_inputs(image, *expand.data_inputs[1:])
        graph.absorb([split, expand], into=reads)
        graph.replace(layer, padded)
        graph.absorb([squeeze, merge], into=squeeze.with_name(merge.name))
    else:
        reads = padded.with_data_inputs(image, *padded.data_inputs[1:])
        graph.absorb([split, layer, merge], into=reads.with_name(merge.name))
