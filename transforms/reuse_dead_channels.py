"""A channel that is always zero can compute another channel again, with other rounding errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.int8.ranges import Ranges, TensorRange, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import set_bias
from deploykit.transforms.layers.fused_ops import Chain, chain
from deploykit.transforms.layers.layers import (
    has_weights,
    matrix_of,
    only_reader,
    rename,
    set_matrix,
    weights_of,
)
from deploykit.transforms.shapes.sizes import require

_UPPER_LIMITS = {"Relu": np.inf, "Relu6": 6.0}
_LEVELS = 255  # steps of an int8 range
_ROOM = 1.1  # other samples may exceed the range by this factor
_MAX_COPIES = 3  # of one channel: each copy makes its weights smaller relative to the int8 step
_FEWEST_STEPS = 4  # of a reader's weights, on average: smaller ones are lost in rounding
_LARGEST = 127  # int8 weight
_TINY = np.finfo(np.float32).tiny
_SMALLEST_GAIN = 0.5  # a copy that is much smaller would have much larger errors


@dataclass(frozen=True)
class _Source:
    """A tensor with dead channels, and its readers."""

    stages: tuple[Chain, ...]
    """The layer, and the depthwise layer that is its only reader, if there is one."""
    ranges: tuple[TensorRange, ...]
    """Range of the result of each stage."""
    readers: tuple[Node, ...]
    """Conv2D and MatMul nodes that read the last result: each sums over the channels."""
    dead: Array
    """int [slots]: channels that are always zero."""


def reuse_dead_channels(graph: Graph, *, ranges: str) -> None:
    """Compute the channels with the largest int8 errors again in channels that are always zero.

    Trained networks have channels whose Relu never fires. Such a channel becomes a copy of the
    channel whose rounding to int8 adds most noise to the next layer. The copy is scaled so that at
    the mean of the channel the two are rounded half a step apart. The next layer reads their mean,
    so that their errors partly cancel. A depthwise layer between copies its channel as well. Shapes
    and ops stay the same. The result is the same in float32 for values within 1.1x of the ranges: a
    channel is dead if its weights and its bias keep it at zero for all of them. A channel that
    comes near the upper end of Relu6 is not scaled. The transform renames a changed tensor to
    NAME_reused, so calibrate the graph again. Choose the weights by output error afterwards, as
    `deploykit quantize` does: rounded to the nearest int8 value, copies repeat each other's error.

    Source: outlier channel splitting, Zhao et al. 2019 (https://arxiv.org/abs/1901.09504), section
    3.2, without additional channels.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
    """
    known, original, changed = load_ranges(ranges), graph.copy(), list[str]()
    for node in original:
        if not _is_dense(graph, node):
            continue
        result = _source(graph, original, known, graph[node.name])
        if isinstance(result, str):
            graph.skip(node, result)
            continue
        copies = _copies(graph, result)
        if not copies:
            graph.skip(node, "no channel can be copied")
            continue
        _reuse(graph, result, copies)
        changed += [stage.nodes[-1].name for stage in result.stages]
    rename(graph, changed, "_reused")


def _is_dense(graph: Graph, node: Node, tensor: str = "") -> bool:
    """Return whether a node is a layer that sums over all channels, of `tensor` if it is given."""
    if node.op not in ("Conv2D", "MatMul") or node.attr("transpose_a", False):
        return False
    return has_weights(graph, node, tensor)


def _source(graph: Graph, original: Graph, known: Ranges, node: Node) -> _Source | str:
    """Return the result of a layer, if it has dead channels and its readers can take copies.

    Otherwise, return the reason. `original` is the graph that `known` was measured on.
    """
    stages = [chain(graph, node, _UPPER_LIMITS)]
    reader = only_reader(graph, stages[0].nodes[-1])
    if reader is not None and _is_depthwise(graph, reader, stages[0].nodes[-1].name):
        stages.append(chain(graph, reader, _UPPER_LIMITS))
    tensors = [stage.nodes[-1].name for stage in stages]
    if not all(stage.bias and stage.activation is not None for stage in stages):
        return "no bias with Relu or Relu6 follows it"
    ranges = [known.tensors[tensor] for tensor in tensors if tensor in known.tensors]
    weights = matrix_of(graph, node)
    if len(ranges) < len(stages):
        return f"the ranges do not contain '{tensors[-1]}'"
    if not all(len(r.channel_mean) == len(r.channel_max) == weights.shape[-1] for r in ranges):
        return f"the ranges contain no mean and maximum per channel of '{tensors[-1]}'"
    dead = _upper_bounds(original, chain(original, original[node.name]), known) <= 0
    for item in stages[1:]:
        dead &= _bias(graph, item) <= 0
    if not dead.any() or not all(np.isfinite(_bias(graph, stage)).all() for stage in stages):
        return "no channel of its result is always zero"
    readers = tuple(graph.readers(tensors[-1]))
    if graph.is_output(tensors[-1]) or graph.is_input(tensors[-1]):
        return f"'{tensors[-1]}' is an input or output of the graph"
    for other in readers:
        sums = _is_dense(graph, other, tensors[-1])
        if not sums or matrix_of(graph, other).shape[-2] != weights.shape[-1]:
            return f"'{other.name}' ({other.op}) does not sum over the channels"
    return _Source(tuple(stages), tuple(ranges), readers, np.flatnonzero(dead))


def _is_depthwise(graph: Graph, node: Node, tensor: str) -> bool:
    """Return whether a node has one filter for each channel of a tensor."""
    if node.op != "DepthwiseConv2dNative" or not has_weights(graph, node, tensor):
        return False
    const = weights_of(graph, node)
    return const is not None and const.shape[-1] == 1


def _bias(graph: Graph, layer: Chain) -> Array:
    """Return the bias as float64 [output channels]."""
    bias: Array = require(graph.constant(layer.bias)).value.astype(np.float64)
    return bias


def _upper_bounds(graph: Graph, layer: Chain, known: Ranges) -> Array:
    """Return float64 [out]: the largest possible value of each channel before its activation.

    The bound is infinite where the ranges lack a channel of its input. A grouped convolution reads
    more channels than its weights have.
    """
    weights = matrix_of(graph, layer.nodes[0])
    read = known.tensors.get(normal(layer.nodes[0].data_inputs[0]))
    if read is None or not len(read.channel_min) == len(read.channel_max) == weights.shape[-2]:
        return np.full(weights.shape[-1], np.inf)
    least = _ROOM * np.minimum(read.channel_min, 0)[:, np.newaxis]  # padding is zero
    most = _ROOM * np.maximum(read.channel_max, 0)[:, np.newaxis]
    sums = np.maximum(weights * least, weights * most).sum(tuple(range(weights.ndim - 1)))
    result: Array = sums + _bias(graph, layer)
    return result


def _copies(graph: Graph, source: _Source) -> dict[int, list[int]]:
    """Return the channels to be copied, each with the dead channels that become its copies.

    Each dead channel goes to the channel whose next copy reduces the noise of the readers most, if
    the errors of copies are independent.
    """
    noise = np.zeros(len(source.ranges[0].channel_max))
    for index, (stage, result) in enumerate(zip(source.stages, source.ranges, strict=True)):
        if index:
            noise *= np.square(matrix_of(graph, stage.nodes[0])).sum((0, 1))
        noise += _step(result) ** 2 * _fits(source, index)
    power, limits = np.zeros(len(noise)), np.full(len(noise), _MAX_COPIES)
    for reader in source.readers:
        weights = matrix_of(graph, reader)
        axes = (*range(weights.ndim - 2), -1)
        steps = np.abs(weights).max((*range(weights.ndim - 1),)) / _LARGEST
        power += np.square(weights).sum(axes)
        size = np.square(weights).mean(axes) / max(np.square(steps).mean(), _TINY)
        limits = np.minimum(limits, np.sqrt(size) / _FEWEST_STEPS - 1)
    counts, copies = np.zeros(len(noise)), dict[int, list[int]]()
    for slot in source.dead.tolist():
        gained = noise * power / (counts + 1) / (counts + 2) * (counts + 1 <= limits)
        channel = int(gained.argmax())
        if not gained[channel] > 0:
            break
        counts[channel] += 1
        copies.setdefault(channel, []).append(slot)
    return copies


def _step(tensor_range: TensorRange) -> float:
    return (tensor_range.max - tensor_range.min) / _LEVELS


def _fits(source: _Source, index: int) -> Array:
    """Return which channels can be scaled down, as the activation does not clip them."""
    range_ = source.ranges[index]
    limit = _UPPER_LIMITS[source.stages[index].activation_op]
    fits: Array = (np.array(range_.channel_mean) > 0) & (
        _ROOM * np.array(range_.channel_max) < limit
    )
    return fits


def _gain(source: _Source, index: int, channel: int, offset: float) -> float:
    """Return the factor that lowers a channel's mean by `offset` steps; 1 if no factor fits."""
    if not _fits(source, index)[channel]:
        return 1.0
    range_ = source.ranges[index]
    return max(1 - offset * _step(range_) / range_.channel_mean[channel], _SMALLEST_GAIN)


def _reuse(graph: Graph, source: _Source, copies: Mapping[int, Sequence[int]]) -> None:
    """Make dead channels copies; `copies` maps a channel to the channels that copy it."""
    gains = {slot: 1.0 for slots in copies.values() for slot in slots}
    for index, stage in enumerate(source.stages):
        layer = graph[stage.nodes[0].name]
        weights, bias = matrix_of(graph, layer), _bias(graph, stage)
        for channel, slots in copies.items():
            for number, slot in enumerate(slots, 1):
                gain = _gain(source, index, channel, number / (len(slots) + 1))
                weights[..., slot] = weights[..., channel] * gain / gains[slot]
                bias[slot] = bias[channel] * gain
                gains[slot] = gain
        set_matrix(graph, layer, weights)
        set_bias(graph, stage, bias)
    for reader in source.readers:
        weights = matrix_of(graph, reader)
        for channel, slots in copies.items():
            weights[..., channel, :] /= len(slots) + 1
            for slot in slots:
                weights[..., slot, :] = weights[..., channel, :] / gains[slot]
        set_matrix(graph, graph[reader.name], weights)
