"""Chooses the int8 layers for the least total time, exactly, by a minimum cut."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.benchmarking.speed_verdict import DECIDED
from deploykit.quantization.timing.layer_times import LayerTimes, Times
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.ir.graph import Graph

FLOAT = ""
"""The name for everything that is always float32: inputs, outputs, ops without an int8 form."""
NEVER = 1 << 60  # ns; more than all times together


@dataclass(frozen=True)
class Part:
    """A layer or op that can run in float32 or int8. Times are integers in nanoseconds."""

    float_ns: int
    int8_ns: int


@dataclass(frozen=True)
class Border:
    """A tensor, its producer, its possible int8 readers, and the cost of conversions (ns)."""

    producer: str
    """The producing part, or FLOAT."""
    readers: tuple[str, ...]
    """The reading parts, and FLOAT if a node always reads the tensor in float32."""
    quantize_ns: int
    dequantize_ns: int

    def crossed(self, int8: Collection[str]) -> tuple[bool, bool]:
        """Return whether the tensor is quantized and dequantized if these parts are int8."""
        reads_codes = {reader in int8 for reader in self.readers}
        is_made_in_8_bits = self.producer in int8
        return (
            True in reads_codes and not is_made_in_8_bits,
            False in reads_codes and is_made_in_8_bits,
        )


@dataclass(frozen=True)
class Costs:
    """The costs for a minimum cut."""

    parts: Mapping[str, Part]
    """Parts by name; the name FLOAT is reserved."""
    borders: Sequence[Border]
    """The tensors between the parts."""

    def total(self, int8: Collection[str]) -> int:
        """Return the time of all parts and borders in nanoseconds if these parts are int8."""
        parts = self.parts.items()
        time = sum(part.int8_ns if name in int8 else part.float_ns for name, part in parts)
        for border in self.borders:
            quantized, dequantized = border.crossed(int8)
            time += border.quantize_ns * quantized + border.dequantize_ns * dequantized
        return time

    def cheapest(
        self, stay_float: Collection[str] = (), forced: Collection[str] = ()
    ) -> frozenset[str]:
        """Return the int8 parts for the least total time; of equal choices the smallest set.

        Args:
            stay_float: parts that are always float32.
            forced: parts that are always int8.
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
        """Return the cheapest choice, or `int8` if its relative gain is not more than `by`."""
        result = self.cheapest(stay_float)
        before = self.total(int8)
        return result if before - self.total(result) > by * before else int8

    def with_other_rest(self, other: "Costs", int8: Collection[str], times: float) -> "Costs":
        """Return these costs for a choice of int8 parts, with other costs for all alternatives.

        Every alternative to `int8`, a part or a conversion, costs `times` its cost in `other`.
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
    """A flow network: edges with their residual capacity."""

    def __init__(self) -> None:
        self._room: dict[object, dict[object, int]] = {}

    def add(self, start: object, end: object, room: int) -> None:
        """Add an edge with a capacity, and its reverse edge with capacity 0."""
        edges = self._room.setdefault(start, {})
        edges[end] = edges.get(end, 0) + room
        self._room.setdefault(end, {}).setdefault(start, 0)

    def source_side(self, source: object, sink: object) -> set[object]:
        """Find the maximum flow by shortest paths; return the nodes on the source side of the cut.

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
"""Factor on the times of alternatives, so that no layer changes for a negligible gain."""


@dataclass(frozen=True)
class Int8Choice:
    """The choice of int8 layers, and the total time of all planned parts."""

    int8: frozenset[str]
    stay_float: frozenset[str]
    """Layers that could be int8, but are kept in float32."""
    undecided: frozenset[str]
    """Layers in int8 that may be faster in float32, but not significantly."""
    ns: int
    """Median total time with this choice, in nanoseconds."""
    float_ns: int
    """Median total time without int8 layers, in nanoseconds."""
    int8_ns: int
    """Median total time with all possible int8 layers, in nanoseconds."""


def choose(
    graph: Graph, plan: Plan, times: LayerTimes, stay_float: Collection[str] = ()
) -> Int8Choice:
    """Choose the int8 layers: all possible ones, except those that are faster in float32.

    System load adds to times, unevenly across layers. So int8 counts with its least time, and
    float32 with its median plus a margin. A layer is kept in float32 only if that is still faster,
    by more than a negligible total. If only the medians are in favor of float32, the layer is int8
    and the result inconclusive.

    `stay_float`: layers that must be float32 for accuracy.
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
    """Return by layer how many nanoseconds the total grows if only this layer is float32.

    The least disturbed runs are used, as load adds to some. Conversions around it are included.
    """
    costs = _costs(graph, plan, times.least)
    every = frozenset(costs.parts)
    most = costs.total(every)
    return {layer: costs.total(every - {layer}) - most for layer in plan.chains}


def _costs(graph: Graph, plan: Plan, times: Times) -> Costs:
    parts = {name: Part(times.float_ns(name), item.int8) for name, item in times.parts.items()}
    return Costs(parts, list(borders(graph, plan, times)))


def borders(graph: Graph, plan: Plan, times: Times) -> Iterator[Border]:
    """Yield the tensors that parts of a plan read or produce in int8."""
    producers = {chain.nodes[-1].name: layer for layer, chain in plan.chains.items()}
    producers |= {name: name for name in plan.passing}
    readers: dict[str, dict[str, str]] = {tensor: {} for tensor in plan.forms}
    for layer, chain in plan.chains.items():  # tensor: reading node: part
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
        if passing:  # these ops can only be int8 if their inputs are
            yield Border(producer, passing, NEVER, 0)
