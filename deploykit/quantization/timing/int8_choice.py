"""Which layers are to compute in 8 bits, as far as their times tell."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from deploykit.benchmarking.comparison.speed_verdict import DECIDED
from deploykit.quantization.timing.layer_times import LayerTimes, Times
from deploykit.quantization.timing.min_cut import FLOAT, NEVER, Border, Costs, Part
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import Plan

CLEAR = 1.05
"""So many times as long counts what would be new, so that no layer changes for next to nothing."""


@dataclass(frozen=True)
class Int8Choice:
    """Which layers are to compute in 8 bits, and what all planned parts would take then."""

    int8: frozenset[str]
    stay_float: frozenset[str]
    """Layers that could be in 8 bits, but are not to be."""
    undecided: frozenset[str]
    """Layers in 8 bits that may be faster in float, as far as their times tell."""
    ns: int
    """In the median, like all times here."""
    float_ns: int
    """If none were in 8 bits."""
    int8_ns: int
    """If all layers were that may be."""


def choose(
    graph: Graph, plan: Plan, times: LayerTimes, stay_float: Collection[str] = ()
) -> Int8Choice:
    """Return the layers that compute in 8 bits: all that may, but for those faster in float.

    Load adds to times, to those of one layer more than to those of another. So 8 bits count at
    their least, and what would take their place at its median and a little more: a layer is float
    only where even that is less, and by more in all than can be neglected. Where it is less by the
    medians alone, the layer is in 8 bits, and undecided.

    `stay_float`: layers that must be float, as accuracy has it.
    """
    usual, least = (_costs(graph, plan, each) for each in (times.usual, times.least))
    layers = plan.chains.keys()
    most = least.cheapest(stay_float, layers - set(stay_float))
    found, likely = (
        each.cheaper(most, stay_float, by=DECIDED)
        for each in (least.with_other_rest(usual, most, CLEAR), usual)
    )
    return Int8Choice(
        int8=found & layers,
        stay_float=frozenset(layers - found),
        undecided=(found - likely) & layers,
        ns=usual.total(found),
        float_ns=usual.total(()),
        int8_ns=usual.total(most),
    )


def time_gained(graph: Graph, plan: Plan, times: LayerTimes) -> dict[str, int]:
    """Return by layer how many nanoseconds more all would take, if it alone were in float.

    The least disturbed calls count, as load adds to some, and the conversions around it.
    """
    costs = _costs(graph, plan, times.least)
    every = frozenset(costs.parts)
    most = costs.total(every)
    return {layer: costs.total(every - {layer}) - most for layer in plan.chains}


def _costs(graph: Graph, plan: Plan, times: Times) -> Costs:
    parts = {name: Part(times.float_ns(name), each.int8) for name, each in times.parts.items()}
    return Costs(parts, list(borders(graph, plan, times)))


def borders(graph: Graph, plan: Plan, times: Times) -> Iterator[Border]:
    """Yield the tensors that parts of a plan read in 8 bits or make in 8 bits."""
    producers = {chain.nodes[-1].name: layer for layer, chain in plan.chains.items()}
    producers |= {name: name for name in plan.passing}
    readers: dict[str, dict[str, str]] = {tensor: {} for tensor in plan.forms}
    for layer, chain in plan.chains.items():  # which part reads a tensor, and by which node
        readers.setdefault(graph[layer].data_inputs[0], {})[layer] = layer
        if chain.summand:
            for node in chain.nodes:
                if chain.summand in node.inputs:
                    readers.setdefault(chain.summand, {})[node.name] = layer
    for name in plan.passing:
        for tensor in graph[name].data_inputs:
            if tensor in plan.forms:
                readers[tensor][name] = name
    for tensor, by_node in readers.items():
        producer = producers.get(tensor, FLOAT) if tensor in plan.forms else FLOAT
        found = set(by_node.values())
        name = graph.producer(tensor).name
        if graph.is_output(name) or {node.name for node in graph.readers(name)} - by_node.keys():
            found.add(FLOAT)
        quantize, dequantize = times.quantize_ns(tensor), times.dequantize_ns(tensor)
        yield Border(producer, tuple(sorted(found)), quantize, dequantize)
        passing = tuple(sorted(found & plan.passing))
        if passing:  # these ops are in 8 bits only where what they read is
            yield Border(producer, passing, NEVER, 0)
