"""An axis: from which value to which, where its ticks lie and what they are called."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deploykit.reporting.charts.lettering import text_width
from deploykit.reporting.charts.style import SMALL

UNITS: dict[str, Sequence[tuple[float, str]]] = {
    "ms": ((1e-3, " µs"), (1, " ms"), (1e3, " s")),
    "us": ((1, " µs"), (1e3, " ms"), (1e6, " s")),
    "seconds": ((1e-6, " µs"), (1e-3, " ms"), (1, " s")),
    "count": ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")),
    "share": ((0.01, " %"),),
    "number": ((1, ""),),
    "plain": ((1, ""),),
}
"""By what a value is: the units that it is written in, smallest first; a number is whole."""
_LONG = 4  # from the least to the most: beyond it an axis is logarithmic
_TENTHS = (1, 1.5, 2, 3, 4, 5, 7)  # of a logarithmic axis that is short
_GAP = 8.0  # points between two labels in a row
_MOST = 7


@dataclass(frozen=True)
class Tick:
    """A label of an axis and where it stands, as a share of the axis."""

    share: float
    label: str


@dataclass(frozen=True)
class Scale:
    """From the least to the most value of an axis, which is logarithmic where that is far."""

    low: float
    high: float
    is_long: bool
    kind: str
    """One of UNITS."""

    @classmethod
    def over(cls, values: Sequence[float], kind: str, *, zero: bool = False) -> "Scale":
        """Return a scale that holds all values; from zero on, unless they span decades."""
        low, high = min(values), max(values)
        if high > _LONG * low > 0:
            room = (high / low) ** 0.04
            return cls(low / room, high * room, True, kind)
        if zero and low >= 0:
            return cls(0.0, 1.12 * high or 1.0, False, kind)
        return cls.even(values, kind)

    @classmethod
    def even(cls, values: Sequence[float], kind: str) -> "Scale":
        """Return a scale that holds all values and is never logarithmic."""
        low, high = min(values), max(values)
        room = max(0.04 * (high - low), 0.02 * abs(high)) or 1.0
        return cls(low - room, high + room, False, kind)

    def at(self, value: float) -> float:
        """Return where a value lies on the axis, from 0 to 1; what lies outside is at its end."""
        if self.is_long:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def label(self, value: float) -> str:
        """Return what a tick is called, with its unit."""
        of = abs(value) if self.is_long else max(abs(self.low), abs(self.high))
        units = UNITS[self.kind]
        factor, sign = max([each for each in units if each[0] <= of * 1.0001] or [units[0]])
        return f"{value / factor:.6g}{sign if value or self.kind == 'share' else ''}"

    def ticks_across(self, length: float, left: float, right: float) -> list[Tick]:
        """Return ticks of a horizontal axis whose labels keep apart.

        Args:
            length: of the axis, in points.
            left: the room beside its start, in points.
            right: the room beside its end.
        """

        def span(tick: Tick) -> tuple[float, float]:
            half, middle = text_width(tick.label, SMALL) / 2, tick.share * length
            return middle - half, middle + half

        def fitting(ticks: Sequence[Tick]) -> list[Tick]:
            spans = [(tick, *span(tick)) for tick in ticks]
            return [t for t, start, end in spans if start >= -left and end <= length + right]

        def apart(ticks: Sequence[Tick]) -> bool:
            spans = [span(tick) for tick in ticks]
            pairs = itertools.pairwise(spans)
            return all(after[0] - before[1] >= _GAP for before, after in pairs)

        return self._best(fitting, apart)

    def ticks_along(self, length: float) -> list[Tick]:
        """Return ticks of a vertical axis whose labels keep apart; its length is in points."""

        def apart(ticks: Sequence[Tick]) -> bool:
            places = [tick.share * length for tick in ticks]
            pairs = itertools.pairwise(places)
            return all(after - before >= 2 * SMALL for before, after in pairs)

        return self._best(list, apart)

    def _best(
        self, fitting: Callable[[list[Tick]], list[Tick]], apart: Callable[[list[Tick]], bool]
    ) -> list[Tick]:
        """Return the most ticks that keep apart, of those that do not stick out; else one."""
        ticks: list[Tick] = []
        for values in self._candidates():
            ticks = fitting([Tick(self.at(value), self.label(value)) for value in values])
            labels = {tick.label for tick in ticks}
            if 1 < len(ticks) == len(labels) <= _MOST and apart(ticks):
                return ticks
        return ticks[:1]

    def _candidates(self) -> Iterator[list[float]]:
        """Yield the values of ticks, first many, then few."""
        if self.is_long:
            yield from self._decades()
            return
        finest = math.floor(math.log10(self.high - self.low)) - 1
        for exponent in range(finest, finest + 3):
            for digit in (1, 2, 2.5, 5):
                step = digit * 10.0**exponent
                first, last = math.ceil(self.low / step), math.floor(self.high / step)
                if last - first < 4 * _MOST and not (self.kind == "number" and step % 1):
                    yield [number * step for number in range(first, last + 1)]
        middle = (self.low + self.high) / 2
        yield [
            value for value in (float(f"{middle:.3g}"), middle) if self.low <= value <= self.high
        ]

    def _decades(self) -> Iterator[list[float]]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for digits in (_TENTHS, (1, 2, 5), (1, 3), (1,)):
            yield self._inside(d * 10.0**e for e in range(first, last + 1) for d in digits)
        for stride in range(2, last - first + 1):
            yield self._inside(10.0**e for e in range(first, last + 1) if e % stride == 0)
        yield self._inside(10.0**e for e in range(first, last + 1))

    def _inside(self, values: Iterator[float]) -> list[float]:
        return [value for value in values if self.low <= value <= self.high]
