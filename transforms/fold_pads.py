"""Padding an image with the zeros of SAME, then convolving, equals a convolution with SAME."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.pattern import Any, Const, Match, Op
from deploykit.transforms.layers.padding import per_axis, with_zeros_around, zeros_around
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import static_shapes

LAYER_OPS = "Conv2D|Conv3D|DepthwiseConv2dNative"
PAD = Op("Pad", Any("image"), Const("paddings"), name="pad")
PAD_V2 = Op("PadV2", Any("image"), Const("paddings"), Const("value"), name="pad")
PADDED_LAYERS = tuple(Op(LAYER_OPS, pad, Any(), name="layer") for pad in (PAD, PAD_V2))


def fold_pads(graph: Graph) -> None:
    """Fold a Pad into the next convolution where SAME padding adds the same zeros.

    Keras adds such a Pad before depthwise convolutions with strides. Other zeros stay in their Pad:
    explicit padding is not faster, and can crash TensorFlow in a depthwise convolution.
    """
    constants = Constants(graph)
    matches = [match for pattern in PADDED_LAYERS for match in graph.match(pattern)]
    strided = {
        m.tensor("image") for m in matches if max(per_axis(m["layer"], "strides").values()) > 1
    }
    shapes = static_shapes(graph, strided)
    for match in matches:
        weights = constants.value(match["layer"].data_inputs[1])
        kernel = None if weights is None else weights.shape
        folded = _folded(graph, match, kernel, shapes.get(match.tensor("image")))
        if isinstance(folded, str):
            graph.skip(match["layer"], folded)
            continue
        reads = folded.with_data_inputs(match.tensor("image"), *folded.data_inputs[1:])
        graph.absorb([match["pad"], match["layer"]], into=reads)


def _folded(graph: Graph, match: Match, kernel: Shape | None, image: Shape | None) -> Node | str:
    """Return the layer with the new padding, or the reason why it keeps its Pad."""
    layer, pad = match["layer"], match["pad"]
    if graph.is_input(pad.name) or graph.is_input(layer.name):
        return "it or its Pad is fed"
    if "value" in match.nodes and match["value"].value.any():
        return f"'{pad.name}' pads with other than zeros"
    if kernel is None:
        return "its weights are not constant"
    own = zeros_around(layer, kernel)
    if own is None:
        return "its padding depends on the size of the image"
    zeros = {}
    for axis, (before, after) in enumerate(match["paddings"].value.tolist()):
        if axis in own:
            zeros[axis] = (own[axis][0] + before, own[axis][1] + after)
        elif before or after:
            return f"'{pad.name}' pads the batch or the channels"
    folded = with_zeros_around(layer, kernel, zeros, image)
    if folded is None or folded.attr("padding") == "EXPLICIT":
        return f"SAME is not known to set the zeros of '{pad.name}'"
    return folded
