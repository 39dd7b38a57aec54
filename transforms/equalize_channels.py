"""Dividing the weights of the readers undoes a scale per channel of a tensor."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, TensorGroups, TensorRange, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import SameShape, linear_chains, passes_on
from deploykit.transforms.layers.fused_ops import Chain, channel_count, shape_comparison
from deploykit.transforms.layers.layers import (
    WEIGHTS,
    channel_shape,
    rename,
    scaled,
    weights_of,
    with_weights,
)
from deploykit.transforms.shapes.sizes import require

LARGEST_FACTOR = 4.0
"""A consumer's weights share one step per output channel: unequal factors make them coarser.

The factors of EfficientNet-Lite0 are at most 2.7, and int8 gains 0.8 dB. MobileNetV2 with random
weights reaches the limit: it loses 0.4 dB with weights rounded to the nearest, and gains 1.5 dB
with weights rounded by output error, as `deploykit quantize` does.
"""


def equalize_channels(graph: Graph, *, ranges: str) -> None:
    """Scale the channels of tensors between linear layers so that int8 resolves each of them.

    The channels of a tensor share one int8 step, which the widest channel determines. A layer
    without activation multiplies its weights and its bias by a positive factor per output channel.
    The layers that read the tensor divide their weights by it. Residual sums, Identity, MaxPool and
    AvgPool keep the factors: all the tensors that they connect share them. The result is the same
    in float32, up to rounding. A tensor is not changed if one of its readers cannot divide (an
    activation, a layer without constant weights) or if it is an output. The transform renames a
    scaled tensor to NAME_equalized, so calibrate the graph again.

    Source: cross-layer equalization, Nagel et al. 2019 (https://arxiv.org/abs/1906.04721), section
    4.1, for the ranges of activations.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
    """
    known = load_ranges(ranges)
    same_shape = shape_comparison(graph)
    chains = linear_chains(graph, same_shape)
    layers = {chain.nodes[0].name for chain in chains.values()}
    groups = []
    for group in _groups(graph, chains, same_shape):
        if reason := _obstacle(graph, group, chains, layers):
            _skip(graph, group, chains, reason)
        else:
            groups.append(group)
    if groups and known.tensors.keys().isdisjoint(itertools.chain(*groups)):
        raise GraphError(
            "ranges-lack-tensors", source=ranges, action="scaled", example=groups[0][0]
        )
    produced: dict[str, Array] = {}  # factors by layer
    consumed: dict[str, Array] = {}
    renamed: list[str] = []
    for group in groups:
        if reason := _unknown(group, known):
            _skip(graph, group, chains, reason)
            continue
        made = [chains[name].nodes[0] for name in group if name in chains]
        try:
            count = channel_count(graph, made[0])
            room = np.min([_room(known.of(name, count)) for name in group], axis=0)
        except GraphError as error:
            raise error.within(ranges) from None
        factors = np.minimum(room, LARGEST_FACTOR)  # widens no tensor of the group
        if (factors != 1).any():
            produced |= dict.fromkeys((layer.name for layer in made), factors)
            readers = {r.name for name in group for r in graph.readers(name)} & layers
            consumed |= dict.fromkeys(readers, factors)
            renamed += group
    _scale(graph, chains, produced, consumed)
    rename(graph, renamed, "_equalized")


def _skip(graph: Graph, group: Iterable[str], chains: Mapping[str, Chain], reason: str) -> None:
    for name in group:
        if name in chains:
            graph.skip(chains[name].nodes[0], reason)


def _groups(graph: Graph, chains: Mapping[str, Chain], same_shape: SameShape) -> list[list[str]]:
    """Return the groups of tensors that must share their factors, in execution order."""
    members = TensorGroups()
    for name in graph.order():
        if name in chains or passes_on(graph[name], same_shape, False):
            members.add(name)
    for name in members:
        for tensor in _passed(graph, name, chains):
            if tensor in members:
                members.join(tensor, name)
    groups: dict[str, list[str]] = {}
    for name in members:
        groups.setdefault(members.leader(name), []).append(name)
    return [group for group in groups.values() if any(name in chains for name in group)]


def _passed(graph: Graph, name: str, chains: Mapping[str, Chain]) -> Iterable[str]:
    """Return the tensors that must have the same factors as a tensor."""
    if name not in chains:
        return graph[name].data_inputs
    return [chains[name].summand] if chains[name].summand else []


def _obstacle(
    graph: Graph,
    group: list[str],
    chains: Mapping[str, Chain],
    layers: set[str],
) -> str:
    members = set(group)
    for name in group:
        if graph.is_output(name):
            return f"'{name}' is an output of the graph"
        if graph.is_input(name):
            return f"'{name}' is fed"
        for tensor in _passed(graph, name, chains):
            if tensor not in members:
                return f"'{name}' adds or passes on '{tensor}', which has no layer to scale it"
        for reader in graph.readers(name):
            if reader.name not in members and not _can_divide(graph, reader, name, layers):
                return f"'{reader.name}' ({reader.op}) cannot divide by the factors"
    if len({channel_count(graph, chains[name].nodes[0]) for name in group if name in chains}) > 1:
        return "the tensors that it shares factors with have other numbers of channels"
    return ""


def _unknown(group: Iterable[str], known: Ranges) -> str:
    """Return what the ranges lack for a group, or an empty string."""
    for name in group:
        if name not in known.tensors:
            return f"the ranges do not contain '{name}'"
        if not known.tensors[name].channel_max:
            return f"the ranges do not contain the channel_max of '{name}'; calibrate again"
    return ""


def _can_divide(graph: Graph, reader: Node, tensor: str, layers: set[str]) -> bool:
    """Return whether a reader is a layer whose weights have an axis for the tensor's channels."""
    inputs = reader.data_inputs
    if reader.name not in layers or inputs[0] != tensor or inputs[WEIGHTS] == tensor:
        return False
    return not (reader.op == "MatMul" and reader.attr("transpose_a", False))


def _room(tensor_range: TensorRange) -> Array:
    """Return the factor by which each channel could grow within the range of the whole tensor."""
    low, high = np.array(tensor_range.channel_min), np.array(tensor_range.channel_max)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(high > 0, high.max() / high, np.inf)
        below = np.where(low < 0, low.min() / low, np.inf)
    room: Array = np.minimum(above, below)
    return np.where(np.isfinite(room), room, 1.0)  # Inf or NaN for a channel of zeros


def _scale(
    graph: Graph,
    chains: Mapping[str, Chain],
    produced: Mapping[str, Array],
    consumed: Mapping[str, Array],
) -> None:
    """Multiply and divide the weights and biases of the layers, each once."""
    for chain in chains.values():
        layer = chain.nodes[0]
        if layer.name not in produced and layer.name not in consumed:
            continue
        const = require(weights_of(graph, layer))
        weights = const.value
        scale = np.ones(weights.shape)
        if layer.name in produced:
            scale *= produced[layer.name].reshape(channel_shape(layer, weights.shape))
        if layer.name in consumed:
            scale /= _by_input(layer, weights.shape, consumed[layer.name])
        graph.replace(layer, with_weights(graph, layer, const, scaled(weights, scale)))
        if chain.bias and layer.name in produced:
            _scale_bias(graph, chain, produced[layer.name])


def _by_input(layer: Node, shape: tuple[int, ...], factors: Array) -> Array:
    """Return the factors of input channels in a shape that broadcasts against the weights.

    Weights are [h, w, in / groups, out], [h, w, in, multiplier] (depthwise) or [in, out].
    """
    if layer.op == "MatMul":
        return factors[np.newaxis] if layer.attr("transpose_b", False) else factors[:, np.newaxis]
    if layer.op == "DepthwiseConv2dNative":
        return factors[:, np.newaxis]
    inputs, outputs = shape[2:]
    groups = len(factors) // inputs
    by_group = factors.reshape(groups, inputs).T
    return np.repeat(by_group, outputs // groups, axis=1)


def _scale_bias(graph: Graph, chain: Chain, factors: Array) -> None:
    add = graph[chain.nodes[1].name]
    const = require(graph.constant(chain.bias))
    value = scaled(const.value, factors)
    new = graph.constant_beside(const, value, f"{add.name}/equalized_bias", const.attr("dtype"))
    graph.replace(add, add.reading({chain.bias: new.name}))
