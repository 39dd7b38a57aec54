"""The layers to run in int8 for the least total time, found exactly by a minimum cut."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.benchmarking.speed_verdict import DECIDED
from deploykit.quantization.timing.layer_times import LayerTimes, Times
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.ir.graph import Graph

FLOAT = ""
"""Stands for what is float whatever is chosen: inputs, outputs, ops without an 8-bit form."""
NEVER = 1 << 60  # ns; more than all times together


@dataclass(frozen=True)
class Part:
    """What can compute in float or in 8 bits. Times are in whole nanoseconds."""

    float_ns: int
    int8_ns: int


@dataclass(frozen=True)
class Border:
    """A tensor, who makes it, who could read it in 8 bits, and what conversions cost (ns)."""

    producer: str
    """A part, or FLOAT."""
    readers: tuple[str, ...]
    """Parts, and FLOAT where somebody reads it in float in any case."""
    quantize_ns: int
    dequantize_ns: int

    def crossed(self, int8: Collection[str]) -> tuple[bool, bool]:
        """Say whether it is quantized, and whether dequantized, with these parts in 8 bits."""
        reads_codes = {reader in int8 for reader in self.readers}
        is_made_in_8_bits = self.producer in int8
        return (
            True in reads_codes and not is_made_in_8_bits,
            False in reads_codes and is_made_in_8_bits,
        )


@dataclass(frozen=True)
class Costs:
    """What a minimum cut goes by."""

    parts: Mapping[str, Part]
    """By name; none is named FLOAT."""
    borders: Sequence[Border]
    """The tensors between them."""

    def total(self, int8: Collection[str]) -> int:
        """Return the nanoseconds of all parts and borders, when these parts compute in 8 bits."""
        parts = self.parts.items()
        time = sum(part.int8_ns if name in int8 else part.float_ns for name, part in parts)
        for border in self.borders:
            quantized, dequantized = border.crossed(int8)
            time += border.quantize_ns * quantized + border.dequantize_ns * dequantized
        return time

    def cheapest(
        self, stay_float: Collection[str] = (), forced: Collection[str] = ()
    ) -> frozenset[str]:
        """Return the parts in 8 bits for the least total; of equal choices the smallest.

        Args:
            stay_float: parts that are float whatever it costs.
            forced: parts that are in 8 bits whatever it costs.
        """
        source, sink = object(), FLOAT
        network = _Network()
        for name, part in self.parts.items():
            network.add(source, name, NEVER if name in forced else part.float_ns)
            network.add(name, sink, NEVER if name in stay_float else part.int8_ns)
        for number, border in enumerate(self.borders):
            quantized, dequantized = (number, "quantized"), (number, "dequantized")
            network.add(quantized, border.producer, border.quantize_ns)
            network.add(border.producer, dequantized, border.dequantize_ns)
            for reader in border.readers:
                network.add(reader, quantized, NEVER)
                network.add(dequantized, reader, NEVER)
        cut_off = network.source_side(source, sink)
        return frozenset(name for name in self.parts if name in cut_off)

    def cheaper(
        self, int8: frozenset[str], stay_float: Collection[str], by: float
    ) -> frozenset[str]:
        """Return the cheapest, or the parts given where it gains no more than such a share."""
        result = self.cheapest(stay_float)
        before = self.total(int8)
        return result if before - self.total(result) > by * before else int8

    def with_other_rest(self, other: "Costs", int8: Collection[str], times: float) -> "Costs":
        """Return these costs of what there is with some parts in 8 bits.

        What there would be in its place has the other costs, so many times.
        """

        def more(ns: int) -> int:
            return min(round(times * ns), NEVER)

        parts = {
            name: Part(more(other.parts[name].float_ns), part.int8_ns)
            if name in int8
            else Part(part.float_ns, more(other.parts[name].int8_ns))
            for name, part in self.parts.items()
        }
        borders = []
        for own, theirs in zip(self.borders, other.borders, strict=True):
            quantized, dequantized = own.crossed(int8)
            borders.append(
                replace(
                    own,
                    quantize_ns=own.quantize_ns if quantized else more(theirs.quantize_ns),
                    dequantize_ns=own.dequantize_ns if dequantized else more(theirs.dequantize_ns),
                )
            )
        return Costs(parts, borders)


class _Network:
    """Edges with what can still flow along them."""

    def __init__(self) -> None:
        self._room: dict[object, dict[object, int]] = {}

    def add(self, start: object, end: object, room: int) -> None:
        """Add an edge; what flows along it can flow back."""
        edges = self._room.setdefault(start, {})
        edges[end] = edges.get(end, 0) + room
        self._room.setdefault(end, {}).setdefault(start, 0)

    def source_side(self, source: object, sink: object) -> set[object]:
        """Let all flow that can, always along a shortest path, and return what is cut off.

        Source: J. Edmonds and R. Karp, Theoretical improvements in algorithmic efficiency, 1972.
        """
        while True:
            came_from: dict[object, object] = {source: source}
            waiting = deque([source])
            while waiting and sink not in came_from:
                place = waiting.popleft()
                for end, room in self._room.get(place, {}).items():
                    if room and end not in came_from:
                        came_from[end] = place
                        waiting.append(end)
            if sink not in came_from:
                return set(came_from)
            path, end = [], sink
            while end != source:
                path.append((came_from[end], end))
                end = came_from[end]
            flow = min(self._room[start][end] for start, end in path)
            for start, end in path:
                self._room[start][end] -= flow
                self._room[end][start] += flow


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
    usual, least = (_costs(graph, plan, item) for item in (times.usual, times.least))
    layers = plan.chains.keys()
    most = least.cheapest(stay_float, layers - set(stay_float))
    result, likely = (
        item.cheaper(most, stay_float, by=DECIDED)
        for item in (least.with_other_rest(usual, most, CLEAR), usual)
    )
    return Int8Choice(
        int8=result & layers,
        stay_float=frozenset(layers - result),
        undecided=(result - likely) & layers,
        ns=usual.total(result),
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
    parts = {name: Part(times.float_ns(name), item.int8) for name, item in times.parts.items()}
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
        results = set(by_node.values())
        name = graph.producer(tensor).name
        if graph.is_output(name) or {node.name for node in graph.readers(name)} - by_node.keys():
            results.add(FLOAT)
        quantize, dequantize = times.quantize_ns(tensor), times.dequantize_ns(tensor)
        yield Border(producer, tuple(sorted(results)), quantize, dequantize)
        passing = tuple(sorted(results & plan.passing))
        if passing:  # these ops are in 8 bits only where what they read is
            yield Border(producer, passing, NEVER, 0)
