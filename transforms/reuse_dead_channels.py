"""A channel that is always zero computes another one a second time, with other rounding errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.ranges import Ranges, TensorRange, load_ranges
from deploykit.transforms.core.layers.biases import lift
from deploykit.transforms.core.layers.fused_chain import Chain, chain
from deploykit.transforms.core.layers.layers import (
    WEIGHTS,
    channels_first,
    only_reader,
    weights_of,
    with_weights,
)
from deploykit.transforms.core.node import Node, normal
from deploykit.transforms.core.tensors import Array

_ENDS = {"Relu": np.inf, "Relu6": 6.0}
_LEVELS = 255  # steps of an int8 range
_SMALLEST_GAIN = 0.5  # a copy that is much smaller would have much larger errors


@dataclass(frozen=True)
class _Place:
    """A tensor with dead channels, and who reads it."""

    stages: tuple[Chain, ...]
    """The layer that makes it, and a depthwise layer that alone reads that one's result."""
    ranges: tuple[TensorRange, ...]
    """Of what each stage makes."""
    readers: tuple[Node, ...]
    """Conv2D and MatMul nodes that read the last result: each sums over the channels."""
    dead: Array
    """int [slots]: channels that are always zero."""


def reuse_dead_channels(graph: Graph, *, ranges: str) -> None:
    """Compute the channels with the largest int8 errors again in channels that are always zero.

    Trained nets have channels whose Relu never fires. Such a channel becomes a copy of the channel
    whose rounding to int8 disturbs the next layer most, scaled so that both are rounded at other
    places: by half a step where the channel has its mean. The next layer reads the mean of the two,
    so that their errors partly cancel. A depthwise layer between copies its channel as well. Shapes
    and ops stay the same. The result is the same in float32 within the ranges: a channel is dead if
    its weights and its bias keep it at zero for all inputs in their ranges, and a channel that
    reaches the upper end of Relu6 is not copied. Calibrate the graph again.

    Source: outlier channel splitting, Zhao et al. 2019 (https://arxiv.org/abs/1901.09504), section
    3.2, without additional channels.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
    """
    known = load_ranges(ranges)
    for node in list(graph):
        if _is_dense(graph, node):
            found = _place(graph, known, graph[node.name])
            copies = {} if found is None else _copies(graph, found)
            if found is not None and copies:
                _reuse(graph, found, copies)
            else:
                graph.skip(node, "no channel of its result is always zero, or none can be copied")


def _is_dense(graph: Graph, node: Node, tensor: str = "") -> bool:
    """Say whether a node is a layer that sums over all channels, of `tensor` where one is given."""
    if node.op not in ("Conv2D", "MatMul") or node.attr("transpose_a", False):
        return False
    return _is_layer(graph, node, tensor)


def _is_layer(graph: Graph, node: Node, tensor: str) -> bool:
    """Say whether a node has finite, constant float32 weights, and reads `tensor`, if given."""
    if node.attr("T") != "float32" or channels_first(node) or graph.is_input(node.name):
        return False
    if tensor and (node.data_inputs[0] != tensor or node.data_inputs[WEIGHTS] == tensor):
        return False
    const = weights_of(graph, node)
    return const is not None and bool(np.isfinite(const.value).all())


def _place(graph: Graph, known: Ranges, node: Node) -> _Place | None:
    """Return what a layer makes, if it has dead channels and its readers can take copies."""
    stages = [chain(graph, node, _ENDS, lambda _, __: False)]
    reader = only_reader(graph, stages[0].nodes[-1])
    if reader is not None and _is_depthwise(graph, reader, stages[0].nodes[-1].name):
        stages.append(chain(graph, reader, _ENDS, lambda _, __: False))
    tensors = [each.nodes[-1].name for each in stages]
    ranges = [known.tensors[tensor] for tensor in tensors if tensor in known.tensors]
    if len(ranges) < len(stages) or not all(s.bias and s.activation is not None for s in stages):
        return None
    weights = _weights(graph, node)
    if not all(len(r.channel_mean) == len(r.channel_max) == weights.shape[-1] for r in ranges):
        return None
    dead = _highest(graph, stages[0], known) <= 0
    for each in stages[1:]:
        dead &= _bias(graph, each) <= 0
    readers = tuple(graph.readers(tensors[-1]))
    if not dead.any() or graph.is_output(tensors[-1]) or graph.is_input(tensors[-1]):
        return None
    for other in readers:
        sums = _is_dense(graph, other, tensors[-1])
        if not sums or _weights(graph, other).shape[-2] != weights.shape[-1]:
            return None
    return _Place(tuple(stages), tuple(ranges), readers, np.flatnonzero(dead))


def _is_depthwise(graph: Graph, node: Node, tensor: str) -> bool:
    """Say whether a node has one filter for each channel of a tensor."""
    if node.op != "DepthwiseConv2dNative" or not _is_layer(graph, node, tensor):
        return False
    const = weights_of(graph, node)
    return const is not None and const.shape[-1] == 1


def _bias(graph: Graph, layer: Chain) -> Array:
    """Return float64 [output channels]."""
    const = graph.constant(layer.bias)
    assert const is not None
    bias: Array = const.value.astype(np.float64)
    return bias


def _weights(graph: Graph, layer: Node) -> Array:
    """Return weights as float64 [..., in, out], or [h, w, channels] of a depthwise layer."""
    const = weights_of(graph, layer)
    assert const is not None
    weights: Array = const.value.astype(np.float64)
    if layer.op == "DepthwiseConv2dNative":
        return weights[..., 0]
    return weights.T if layer.attr("transpose_b", False) else weights


def _set_weights(graph: Graph, layer: Node, weights: Array) -> None:
    """Give a layer weights in the form in which `_weights` returns them."""
    const = weights_of(graph, layer)
    assert const is not None
    value = weights.T if layer.attr("transpose_b", False) else weights
    value = np.ascontiguousarray(value.reshape(const.shape), np.float32)
    graph.replace(layer, with_weights(graph, layer, const, value))


def _highest(graph: Graph, layer: Chain, known: Ranges) -> Array:
    """Return what each output channel is at most before its activation, float64 [out].

    That is infinite where the ranges do not say what each channel of its input is. A grouped
    convolution reads more channels than its weights have.
    """
    weights = _weights(graph, layer.nodes[0])
    read = known.tensors.get(normal(layer.nodes[0].data_inputs[0]))
    if read is None or not len(read.channel_min) == len(read.channel_max) == weights.shape[-2]:
        return np.full(weights.shape[-1], np.inf)
    least = np.minimum(read.channel_min, 0)[:, np.newaxis]  # padding is zero
    most = np.maximum(read.channel_max, 0)[:, np.newaxis]
    sums = np.maximum(weights * least, weights * most).sum(tuple(range(weights.ndim - 1)))
    result: Array = sums + _bias(graph, layer)
    return result


def _copies(graph: Graph, place: _Place) -> dict[int, list[int]]:
    """Return the channels to be copied, each with the dead channels that become its copies.

    The next dead channel goes where it takes most off the noise that the readers get.
    """
    noise = np.zeros(len(place.ranges[0].channel_max))
    for number, (stage, found) in enumerate(zip(place.stages, place.ranges, strict=True)):
        if number:
            noise *= np.square(_weights(graph, stage.nodes[0])).sum((0, 1))
        noise += _step(found) ** 2 * _fits(place, number)
    power = np.zeros(len(noise))
    for reader in place.readers:
        weights = _weights(graph, reader)
        power += np.square(weights).sum((*range(weights.ndim - 2), -1))
    counts, copies = np.ones(len(noise)), dict[int, list[int]]()
    for slot in place.dead.tolist():
        gained = noise * power * (1 / counts**2 - 1 / (counts + 1) ** 2)
        source = int(gained.argmax())
        if not gained[source] > 0:
            break
        counts[source] += 1
        copies.setdefault(source, []).append(slot)
    return copies


def _step(found: TensorRange) -> float:
    return (found.max - found.min) / _LEVELS


def _fits(place: _Place, number: int) -> Array:
    """Return which channels of a stage can be scaled down: none that its activation cuts off."""
    found = place.ranges[number]
    end = _ENDS[place.stages[number].activation_op]
    fits: Array = (np.array(found.channel_mean) > 0) & (np.array(found.channel_max) < end)
    return fits


def _gain(place: _Place, number: int, source: int, offset: float) -> float:
    """Return the factor with which a channel's mean lies `offset` steps lower; 1 if none does."""
    if not _fits(place, number)[source]:
        return 1.0
    found = place.ranges[number]
    return max(1 - offset * _step(found) / found.channel_mean[source], _SMALLEST_GAIN)


def _reuse(graph: Graph, place: _Place, copies: Mapping[int, Sequence[int]]) -> None:
    """Turn dead channels into copies, given by the channel that they copy."""
    gains = {slot: 1.0 for slots in copies.values() for slot in slots}
    for number, stage in enumerate(place.stages):
        layer, old = stage.nodes[0], _bias(graph, stage)
        weights, bias = _weights(graph, layer), np.zeros(len(old))
        for source, slots in copies.items():
            for place_in, slot in enumerate(slots, 1):
                gain = _gain(place, number, source, place_in / (len(slots) + 1))
                weights[..., slot] = weights[..., source] * gain / gains[slot]
                bias[slot] = old[source] * gain - old[slot]
                gains[slot] = gain
        _set_weights(graph, layer, weights)
        lift(graph, layer.name, bias)
    for reader in place.readers:
        weights = _weights(graph, reader)
        for source, slots in copies.items():
            weights[..., source, :] /= len(slots) + 1
            for slot in slots:
                weights[..., slot, :] = weights[..., source, :] / gains[slot]
        _set_weights(graph, reader, weights)
