"""The layers that compute in 8 bits for the least total time: a minimum cut, so exact.

Each part (a layer with its chain, or an op that hands codes on) has a time in float and one in
8 bits. A tensor that crosses a border is converted once, however many parts read it: quantized if
it is made in float and read in 8 bits, dequantized the other way. Parts on the side of the source
compute in 8 bits; each edge that is cut costs the time that stands on it. Source: J. Picard and
H. Ratliff, Minimum cuts and related problems, 1975.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

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
        found = self.cheapest(stay_float)
        before = self.total(int8)
        return found if before - self.total(found) > by * before else int8

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
