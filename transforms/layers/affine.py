"""Scales, shifts and biases per channel, and the ops that pass them on unchanged."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.pattern import Op
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.fused_ops import ADD_OPS, Chain, chain
from deploykit.transforms.layers.layers import (
    LAYER_OPS,
    bias_add,
    channels_first,
    per_channel,
    weights_of,
)
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.shapes.sizes import require

ARITHMETIC_OPS = frozenset({"Add", "AddV2", "Sub", "Mul", "RealDiv"})
BIAS_OPS = frozenset({"BiasAdd"})
FUSED_BATCH_NORM_OPS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
GLOBAL_BATCH_NORM_OPS = frozenset({"BatchNormWithGlobalNormalization"})
BATCH_NORM_OPS = FUSED_BATCH_NORM_OPS | GLOBAL_BATCH_NORM_OPS


@dataclass(frozen=True)
class Affine:
    """y = scale * x + offset per output channel, in float64; None means scale 1 or offset 0."""

    scale: Array | None = None
    offset: Array | None = None

    def then(self, other: "Affine") -> "Affine":
        """Return this step followed by another one, as a single step."""
        offset = self.offset
        if offset is not None and other.scale is not None:
            offset = offset * other.scale
        return Affine(_combined(np.multiply, self.scale, other.scale),
                      _combined(np.add, offset, other.offset))  # fmt: skip

    @property
    def finite(self) -> bool:
        """Return whether all scales and offsets are finite."""
        return all(v is None or bool(np.isfinite(v).all()) for v in (self.scale, self.offset))


def _combined(function: np.ufunc, a: Array | None, b: Array | None) -> Array | None:
    return function(a, b) if a is not None and b is not None else b if a is None else a


def read_step(
    constants: Constants,
    layer: Node,
    channels: int,
    step: Node,
    tensor: str,
    scalars: bool = False,
) -> Affine | str:
    """Return the effect of `step` on the layer's output `tensor`, or why it is not affine.

    With `scalars`, scaling by a single number counts; shifting by one always does. `tensor` may
    also be an input of the layer.
    """
    inputs = step.data_inputs
    if inputs.count(tensor) != 1:
        return f"{step.op} reads the layer more than once or at another port"
    if step.op in BATCH_NORM_OPS and inputs[0] == tensor:
        return _batch_norm(constants, layer, channels, step)
    other = next(i for i in inputs if i != tensor)
    vector = _vector(constants, layer, channels, other, step, scalars)
    if isinstance(vector, str):
        return vector
    if step.op in ("Add", "AddV2", "BiasAdd"):
        return Affine(None, vector)
    if step.op == "Mul":
        return Affine(vector)
    if step.op == "Sub":
        left = inputs[0] == tensor
        return Affine(None, -vector) if left else Affine(np.full(channels, -1.0), vector)
    if inputs[0] != tensor:
        return "it divides a constant by the layer"
    with np.errstate(divide="ignore"):
        return Affine(1 / vector)


def _vector(
    constants: Constants, layer: Node, channels: int, tensor: str, step: Node, scalars: bool
) -> Array | str:
    value = constants.value(tensor)
    if value is None:
        return f"'{producer_name(tensor)}' is not constant"
    if step.op in BIAS_OPS:
        if value.shape != (channels,) or not _same_channels(layer, step):
            return "its bias is not along the layer's output channels"
        return value.astype(np.float64)
    takes_one = scalars or step.op in ("Add", "AddV2", "Sub")
    if takes_one and value.size == 1 and value.ndim <= LAYER_OPS[layer.op]:
        return np.full(channels, value.reshape(()), np.float64)
    vector = per_channel(layer, value, channels)
    if vector is None:
        return f"its constant of shape {list(value.shape)} is not one value per output channel"
    return vector.astype(np.float64)


def _same_channels(layer: Node, step: Node) -> bool:
    return LAYER_OPS[layer.op] == 2 or channels_first(layer) == channels_first(step)


def _batch_norm(constants: Constants, layer: Node, channels: int, step: Node) -> Affine | str:
    if not _same_channels(layer, step):
        return "the batch norm is not along the layer's output channels"
    result = read_batch_norm(constants, step)
    if isinstance(result, Affine) and require(result.scale).shape != (channels,):
        return "a parameter of the batch norm is not one value per output channel"
    return result


def read_batch_norm(constants: Constants, step: Node) -> Affine | str:
    """Return the effect of a batch norm on each channel, or why it is unknown."""
    if step.op in FUSED_BATCH_NORM_OPS:
        if step.attr("is_training", True):
            return "the batch norm is in training mode"
        order, epsilon, scaled = (1, 2, 3, 4), step.attr("epsilon", 1e-4), True
    else:  # inputs: x, mean, variance, beta, gamma
        order, epsilon = (4, 3, 1, 2), step.attr("variance_epsilon")
        scaled = step.attr("scale_after_normalization")
    values = [constants.value(step.data_inputs[i]) for i in order]
    if any(value is None for value in values) or epsilon is None:
        return "a parameter of the batch norm is not constant"
    gamma, beta, mean, variance = (np.asarray(v, np.float64) for v in values)
    if mean.ndim != 1 or any(v.shape != mean.shape for v in (gamma, beta, variance)):
        return "a parameter of the batch norm is not one value per output channel"
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = (gamma if scaled else 1.0) / np.sqrt(variance + epsilon)
    return Affine(scale, beta - mean * scale)


def lift(graph: Graph, layer: str, change: Array, is_shifted: bool = False) -> None:
    """Add a value per channel to the bias of a layer; with `is_shifted`, rename its result."""
    if not change.any():
        return
    moves: dict[str, str] = {}
    change_bias(graph, chain(graph, graph[layer]), change, moves, is_shifted)
    graph.supersede(moves)


def set_bias(graph: Graph, item: Chain, bias: Array) -> None:
    """Replace the bias of a layer, one value per channel."""
    biased = item.nodes[1]
    add = bias_add(graph, biased.name, graph[item.nodes[0].name], bias, "/new_bias")
    graph.absorb([biased], into=add)


def through(graph: Graph, layer: Node, offset: Array) -> Array:
    """Return the offset of each output channel of a layer, given one per input channel.

    `mean_output` must accept the layer.
    """
    return require(mean_output(layer, require(weights_of(graph, layer)).value, offset))


def mean_output(layer: Node, weights: Array, means: Array) -> Array | None:
    """Return a layer's mean output for an input with these means, one per channel: float64.

    Weights are [h, w, in / groups, out], [h, w, in, multiplier] (depthwise) or [in, out]; each
    group of output channels reads only its input channels. None: the means have other channels than
    the weights.
    """
    if layer.attr("transpose_a", False):
        return None
    if layer.op == "MatMul":
        matrix = weights.T if layer.attr("transpose_b", False) else weights
    else:
        matrix = weights.sum((0, 1), dtype=np.float64)
    if layer.op == "DepthwiseConv2dNative":
        return (matrix * means[:, np.newaxis]).reshape(-1) if len(means) == len(matrix) else None
    inputs, outputs = matrix.shape
    groups, rest = divmod(len(means), inputs)
    if rest or not groups or outputs % groups or (groups > 1 and layer.op == "MatMul"):
        return None
    by_group = matrix.astype(np.float64).reshape(inputs, groups, outputs // groups)
    result: Array = np.einsum("igo,gi->go", by_group, means.reshape(groups, inputs))
    return result.reshape(outputs)


def change_bias(
    graph: Graph, item: Chain, change: Array, moves: dict[str, str], is_shifted: bool
) -> None:
    """Put a BiasAdd with another bias after a layer; under a new name if its value changes."""
    layer = biased = item.nodes[0]
    bias = change
    if item.bias:
        biased = item.nodes[1]
        bias = require(graph.constant(item.bias)).value.astype(np.float64) + change
    else:
        layer = graph.add_copy(layer, f"{layer.name}_unbiased")
    add = bias_add(graph, biased.name, layer, bias, "/shifted_bias")
    add = graph.absorb([biased], into=add)
    if is_shifted:
        moves[biased.name] = shifted_copy(graph, add)


def shifted_copy(graph: Graph, node: Node) -> str:
    """Add a node that returns the shifted value after its inputs moved; return its name."""
    return graph.add_copy(node, f"{node.name}_shifted").name


LAYER = Op("Conv2D|DepthwiseConv2dNative|MatMul", name="layer")
SameShape = Callable[[str, str], bool]


def linear_chains(graph: Graph, same_shape: SameShape) -> dict[str, Chain]:
    """Return layers with their biases and sums, by the last node; a sum belongs to one layer."""
    chains: dict[str, Chain] = {}
    summands: set[str] = set()

    def free_sum(tensor: str, other: str) -> bool:
        return tensor not in summands and same_shape(tensor, other)

    for match in graph.match(LAYER):
        layer = match["layer"]
        if graph.skip(layer, _reason(graph, layer)):
            continue
        result = chain(graph, layer, same_shape=free_sum)
        summands.add(result.summand)
        chains[result.nodes[-1].name] = result
    return chains


def _reason(graph: Graph, layer: Node) -> str:
    if layer.attr("T") != "float32":
        return f"its type is {layer.attr('T')}, not float32"
    if weights_of(graph, layer) is None:
        return "its weights are not constant"
    if graph.is_input(layer.name):
        return "it is fed"
    if channels_first(layer):
        return "its data format is NCHW; convert_layout makes it NHWC"
    return limit(layer.op, layer.with_attrs(dilations=None))  # its dilations run already


def passes_on(node: Node, same_shape: SameShape, zeros_matter: bool = True) -> bool:
    """Return whether offsets of the inputs of a node add up to the offset of its output.

    Without `zeros_matter`: whether factors of the inputs are the factors of its output.
    """
    if node.op in ADD_OPS:
        return same_shape(*node.data_inputs)
    if node.op in ("MaxPool", "AvgPool"):
        within_channels = not channels_first(node) and node.attr("ksize")[-1] == 1
        keeps_zeros = node.op == "MaxPool" or node.attr("padding") == "VALID"
        return within_channels and (keeps_zeros or not zeros_matter)
    return node.op == "Identity"
