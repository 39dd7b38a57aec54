"""A neuron with a large range can be the sum of several neurons with smaller ranges."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.affine import lift
from deploykit.transforms.layers.fused_ops import Chain, chain
from deploykit.transforms.layers.layers import (
    is_product,
    matrix_of,
    only_reader,
    set_matrix,
    weights_of,
)
from deploykit.transforms.shapes.sizes import require

_MOST = 1 / 32  # of a layer's neurons may be replaced by copies
_ROOM = 1.03  # other samples may exceed the range by this factor
_SATURATES = 1.2  # a neuron that exceeds the limit by less than this factor is clipped
_STEP = 1.05  # from one limit that is tried to the next
_LOST = 0.5  # of the bound of the lost power: roughly the actual loss
_CODES = 255
_NEGLIGIBLE = 1e-3  # share of the power that the replaced neurons may have


@dataclass(frozen=True)
class _Neurons:
    """A product, its GELU, and the product that reads it."""

    before: Chain
    after: Node
    low: Array
    high: Array
    mean: Array


def split_large_neurons(graph: Graph, *, ranges: str, limit: float = 4.5) -> None:
    """Split neurons with very large GELU outputs into copies with smaller ranges.

    GELU of a large value is that value. So a neuron is the sum of its value up to a limit and of
    copies whose biases are lower by one, two, ... limits; a Minimum ends each at the limit, which
    the int8 range does without an op. Copies replace the least important neurons, so all shapes are
    kept; a bias adds the mean of the replaced ones. The result is not exact: a copy adds GELU's dip
    of up to 0.17 below its start, and the replaced neurons are lost. Each layer gets the limit with
    the lowest estimated noise: a lower one has a smaller int8 step and loses more neurons. A layer
    is not changed if more than 1/1000 of its power would be lost. Calibrate the graph again.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
        limit: lowest limit to try.
    """
    if not 3 <= limit < float("inf"):
        raise GraphError("out-of-range", name="limit", expected="a number of at least 3", got=limit)
    known = load_ranges(ranges)
    for node in list(graph):
        if node.op != "MatMul" or node.name not in graph:
            continue
        result = _neurons(graph, known, graph[node.name])
        if result is not None and not _split(graph, result, limit):
            graph.skip(node, "no neuron reaches beyond the limit, or others matter too much")


def _neurons(graph: Graph, known: Ranges, layer: Node) -> _Neurons | None:
    """Return a product with a bias, a GELU and one product that reads it, or None."""
    if not is_product(graph, layer):
        return None
    before = chain(graph, layer, {"Gelu"})
    if not (before.gelu and before.bias):
        return None
    last = before.nodes[-1]
    after = only_reader(graph, last)
    tensor = last.name
    while after is not None and after.op == "Reshape" and after.data_inputs[0] == tensor:
        tensor, after = after.name, only_reader(graph, after)
    if after is None or not is_product(graph, after, tensor):
        return None
    seen = known.tensors.get(last.name)
    count = require(weights_of(graph, after)).shape[1 if after.attr("transpose_b", False) else 0]
    if seen is None or not len(seen.channel_mean) == len(seen.channel_max) == count:
        return None
    lists = (seen.channel_min, seen.channel_max, seen.channel_mean)
    return _Neurons(before, after, *map(np.array, lists))


def _split(graph: Graph, neurons: _Neurons, limit: float) -> bool:
    """Replace the least important neurons; return whether the layer changed."""
    layer, after = neurons.before.nodes[0], neurons.after
    inner, outer = matrix_of(graph, layer), matrix_of(graph, after)
    weight = np.square(outer).sum(1)
    # the largest variance that is possible with these ends and this mean
    power = (neurons.high - neurons.mean) * (neurons.mean - neurons.low) * weight
    end, copies, lost = _chosen(neurons, limit, power, weight.sum())
    if not lost.size or power[lost].sum() > _NEGLIGIBLE * power.sum():
        return False
    bias = np.zeros(neurons.high.size)
    old = require(graph.constant(neurons.before.bias)).value.astype(np.float64)
    means = neurons.mean[lost] @ outer[lost]
    sources = np.repeat(np.arange(copies.size), copies)
    number = np.concatenate([np.arange(1, count + 1) for count in copies])
    inner[:, lost], outer[lost] = inner[:, sources], outer[sources]
    bias[lost] = old[sources] - number * end - old[lost]
    set_matrix(graph, layer, inner)
    lift(graph, layer.name, bias)
    set_matrix(graph, after, outer)
    lift(graph, after.name, means)
    _end_at(graph, graph[neurons.before.nodes[-1].name], end)
    return True


def _chosen(
    neurons: _Neurons, limit: float, power: Array, weight: float
) -> tuple[float, Array, Array]:
    """Return the limit with the lowest noise, the copies of each neuron, and the replaced neurons.

    The noise is the rounding noise, which a smaller range reduces, plus that of the neurons that
    the copies replace. `power`, float64 [neurons], is an upper bound of what the next product loses
    without each; `weight` is the sum of the squares of that product's weights.
    """
    best: tuple[float, float, Array, Array] = (np.inf, 0.0, np.zeros(0), np.zeros(0))
    lowest, highest = float(neurons.low.min()), float(neurons.high.max())
    end = limit / _STEP
    while end < highest:
        end *= _STEP
        copies = _copies(neurons.high, end)
        if copies.sum() > _MOST * copies.size:
            continue
        lost = np.argsort(np.where(copies > 0, np.inf, power))[: copies.sum()]
        step = (min(end, highest) - lowest) / _CODES
        noise = step**2 / 12 * weight + _LOST * power[lost].sum()
        if noise < best[0]:
            best = noise, end, copies, lost
    return best[1:]


def _copies(high: Array, end: float) -> Array:
    """Return the number of copies that each neuron needs."""
    counts = np.minimum(np.ceil(_ROOM * high / end) - 1, high.size).astype(int)
    return np.where(high > _SATURATES * end, counts, 0)


def _end_at(graph: Graph, gelu: Node, limit: float) -> None:
    name = graph.unique_name(f"{gelu.name}_ended")
    const = graph.constant_beside(gelu, np.array(limit, np.float32), f"{name}/limit")
    readers = list(graph.readers(gelu.name))
    graph.put(name, "Minimum", gelu.name, const.name, like=gelu, T=DType("float32"))
    for reader in readers:
        graph.replace(reader, reader.reading({gelu.name: name}))
