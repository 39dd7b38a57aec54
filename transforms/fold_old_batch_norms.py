"""A batch norm op in inference mode after a layer can be part of the layer's weights."""

import math
from dataclasses import dataclass

from deploykit.transforms.fold_batch_norms import fold_steps, only_port_0
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.pattern import Any, Op
from deploykit.transforms.layers.affine import BATCH_NORM_OPS, BIAS_OPS, read_step
from deploykit.transforms.layers.layers import LAYER_OPS, channel_shape, channels_first, weights_of
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.shapes.sizes import require

LAYERS = frozenset(op for op, rank in LAYER_OPS.items() if rank == 4)
CHANNEL_AXIS = 3
JOIN = Op("BatchToSpaceND|Concat|ConcatV2", name="join")
JOINED_NORM = Op("|".join(BATCH_NORM_OPS), JOIN, Any(), Any(), Any(), Any(), name="norm")


def fold_old_batch_norms(graph: Graph) -> None:
    """Fold batch norm ops, as the Graph Transform Tool does for old files.

    It folds FusedBatchNorm v1 to V3 and BatchNormWithGlobalNormalization, also where BatchToSpaceND
    or a concatenation joins layers before it. `fold_batch_norms` folds these ops directly after a
    layer, and the forms made of single ops.
    """
    constants = Constants(graph)
    for match in graph.match(JOINED_NORM):
        join, norm = match["join"], match["norm"]
        parts = _parts(graph, constants, join, norm)
        if isinstance(parts, str):
            graph.skip(norm, parts)
        else:
            _move_before_join(graph, constants, join, norm, parts)
    fold_steps(graph, BATCH_NORM_OPS | BIAS_OPS, needed=BATCH_NORM_OPS)


@dataclass(frozen=True)
class _Part:
    """A layer before a join, the name of its separate batch norm, and its slice of the channels."""

    layer: str
    name: str
    channels: slice


def _parts(graph: Graph, constants: Constants, join: Node, norm: Node) -> list[_Part] | str:
    """Return the layers before a join, or the reason why the batch norm stays after it.

    A join moves values without mixing channels, so the batch norm can come before it.
    """
    reason = "it is fed" if graph.is_input(norm.name) else only_port_0(graph, norm)
    if reason:
        return reason
    if not graph.feeds_only(join, norm) or graph.consumers(join.name) != [norm]:
        return f"'{join.name}' is used elsewhere too"
    if join.op == "BatchToSpaceND":
        block = constants.value(join.data_inputs[1])
        if block is None or block.size > CHANNEL_AXIS - 1:
            return f"'{join.name}' may move channels"
        layers, axis, names = join.data_inputs[:1], 0, [f"{join.data_inputs[0]}/biasadd"]
    else:
        place = 0 if join.op == "Concat" else -1
        value = constants.value(join.data_inputs[place])
        if value is None:
            return f"the axis of '{join.name}' is not constant"
        axis = int(value) % (CHANNEL_AXIS + 1)
        layers = join.data_inputs[1:] if join.op == "Concat" else join.data_inputs[:-1]
        names = [f"{join.name}_bn_in{number}" for number in range(len(layers))]
    parts, end = [], 0
    for tensor, name in zip(layers, names, strict=True):
        count = _channels(graph, tensor, join)
        if isinstance(count, str):
            return count
        start, end = (end, end + count) if axis == CHANNEL_AXIS else (0, count)
        parts.append(_Part(tensor, name, slice(start, end)))
    step = read_step(constants, graph[layers[0]], end, norm, join.name)
    return parts if not isinstance(step, str) else step


def _channels(graph: Graph, tensor: str, join: Node) -> int | str:
    """Return the number of channels of a joined layer, or why it cannot take the batch norm."""
    layer = graph.producer(tensor)
    weights = weights_of(graph, layer) if layer.op in LAYERS else None
    if weights is None or channels_first(layer) or layer.name != tensor:
        return f"'{tensor}' before '{join.name}' is not a layer with constant weights"
    if not graph.feeds_only(layer, join) or join.data_inputs.count(tensor) > 1:
        return f"'{tensor}' before '{join.name}' is used elsewhere too"
    return math.prod(channel_shape(layer, weights.shape))


def _move_before_join(
    graph: Graph, constants: Constants, join: Node, norm: Node, parts: list[_Part]
) -> None:
    moved: dict[str, str] = {}
    for part in parts:
        name = graph.unique_name(part.name)
        inputs = [part.layer]
        for number, tensor in enumerate(norm.data_inputs[1:], 1):
            value = require(constants.value(tensor))[part.channels]
            const = graph.constant_beside(norm, value, f"{name}/{number}", norm.attr("U"))
            inputs.append(const.name)
        own = Node(name, norm.op, tuple(inputs), norm.attrs, norm.device)
        moved[part.layer] = graph.add(own).name
    inputs = [moved.get(tensor, tensor) for tensor in join.data_inputs]
    graph.absorb([join, norm], into=join.with_name(norm.name).with_data_inputs(*inputs))
