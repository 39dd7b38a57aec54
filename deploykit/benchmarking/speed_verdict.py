"""The rule for every speed comparison: which candidate is faster, with what confidence."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.run_config import CONFIDENCE
from deploykit.benchmarking.statistics import Ratio, student
from deploykit.transforms.common.documents import Hidden, Written, document, written
from deploykit.transforms.ir.tensors import Array

DISTURBED = 1.25
RULE = (
    "a round is skipped where its wall time per CPU second is more than 1.25 times that of the "
    "least disturbed tenth of the compared rounds"
)
"""The rule for skipped rounds, as results state it. Measured beside four processes on two cores,
with calls of 70 ms: it reduces the error of wall time from 6 to 1.5 %."""
NARROW = 0.05
"""If the interval reaches further from 1, a difference cannot be excluded."""
DECIDED = 0.02
"""If the interval excludes a difference above this, the comparison is conclusive."""
LOOKS = (0.1, 0.25, 0.5)
"""Shares of the time after which a benchmark checks whether its comparisons are conclusive."""
LOOK_CONFIDENCE = 1 - (1 - CONFIDENCE) / (5 * len(LOOKS))
"""Confidence at a check: all checks together are wrong a fifth as often as the final verdict."""
FASTER, SLOWER, ALIKE, UNDECIDED = "faster", "slower", "no difference", "inconclusive"

Figure = Callable[[Measurement], Sequence[float]]
"""The compared metric: one value per round, lower is better."""


@dataclass(frozen=True)
class SpeedVerdict:
    """Comparison of two measurements: the speed of the second relative to the first."""

    wall: Hidden[Ratio]
    """Ratio by wall time; above 1, the second is faster."""
    cpu: Annotated[Ratio | None, Written("cpu_ratio")]
    """Ratio by CPU time; above 1, the second needs less. None: unknown or not meaningful."""
    busy: Hidden[str] = ""
    """Note on a loaded machine, in words; empty on an idle one."""
    drift: Hidden[float] = 0.0
    """Possible change of the machine's own speed between the two measurements, as a share."""

    @property
    @written("ratio")
    def _ratio(self) -> dict[str, Any]:
        return {**document(self.wall), "significant": self.significant}

    @property
    def kind(self) -> str:
        """FASTER, SLOWER, ALIKE or UNDECIDED."""
        if self.wall.low > 1 + self.drift:
            return FASTER
        if self.is_below(1):
            return SLOWER
        return ALIKE if self.wall.reach <= NARROW else UNDECIDED

    def is_below(self, speed: float) -> bool:
        """Return whether the second is significantly slower than `speed` times the first."""
        if self.wall.high < speed / (1 + self.drift):
            return True
        # Threads that wait for another one that has lost its core use CPU time without work, so on
        # a loaded machine more CPU time must agree with the wall clock.
        agrees = not self.busy or self.wall.value <= speed
        return self.cpu is not None and self.cpu.high < speed and agrees

    @property
    @written()
    def significant(self) -> bool:
        """Whether one is significantly faster."""
        return self.kind in (FASTER, SLOWER)

    @property
    def is_decided(self) -> bool:
        """Whether more time would not change the verdict in a way that matters."""
        return self.significant or self.wall.reach <= DECIDED

    @property
    @written()
    def verdict(self) -> str:
        """The verdict in words, including the load of the machine."""
        kind, times, work = self.kind, self.wall.in_words(), self._work()
        load = f", {self.busy}" if self.busy else ""
        if kind == FASTER or self.wall.high < 1 / (1 + self.drift):
            return f"{kind}: {times}{work}{load}"
        if kind == SLOWER:
            return f"{SLOWER}: {work[2:]}; wall time {times}{load}"
        if kind == ALIKE:
            return f"{ALIKE} above {_percent(self.wall.reach)} %{work}{load}"
        if math.isinf(self.wall.high):
            return f"{UNDECIDED}: too few sessions or rounds; measure longer"
        why = self.busy or "high variance"
        if self.drift and not self.wall.low < 1 < self.wall.high:
            why = f"a machine itself changes by up to {_percent(self.drift)} % between two results"
        return f"{UNDECIDED}: {why}; {times}{work}"

    def _work(self) -> str:
        """Return the difference in CPU time in words, if it is significant."""
        if self.cpu is None or not (self.cpu.high < 1 or self.cpu.low > 1):
            return ""
        shares = sorted(1 / item - 1 for item in (self.cpu.low, self.cpu.high))
        low, high = (_percent(abs(share)) for share in sorted(shares, key=abs))
        word = "more" if self.cpu.high < 1 else "less"
        return f", {_percent(abs(1 / self.cpu.value - 1))} % {word} CPU time ({low}-{high} %)"


def latency(measurement: Measurement) -> list[float]:
    """Return the median latency of each round."""
    return [float(np.median(item)) for item in measurement.rounds_ms]


def seconds_an_item(measurement: Measurement) -> list[float]:
    """Return the seconds per item of each round."""
    pairs = zip(measurement.rounds_seconds, measurement.rounds_ms, strict=True)
    return [seconds / (measurement.samples * len(calls)) for seconds, calls in pairs]


def cpu_time(measurement: Measurement) -> list[float]:
    """Return the CPU milliseconds per item of each round."""
    pairs = zip(measurement.turns, measurement.rounds_ms, strict=True)
    return [turn.cpu_ms / (measurement.samples * len(calls)) for turn, calls in pairs]


_OF_PROCESSES: dict[Figure, float] = {
    latency: 0.013,
    seconds_an_item: 0.013,
    cpu_time: 0.0065,
}
"""Standard deviation between processes of one model, from four processes on a loaded machine. Other
figures, such as a p99, have no known one."""
_KNOWN_DEGREES = 4


def judge(
    a: Measurement,
    b: Measurement,
    *,
    figure: Figure = latency,
    confidence: float = CONFIDENCE,
    busy: str = "",
) -> SpeedVerdict:
    """Compare two interleaved measurements.

    `figure` is the metric for wall time; `busy` is the note on a loaded machine.
    """
    wall = _compare(a, b, figure, confidence)
    known = all(item.turns and item.settings.device == "cpu" for item in (a, b))
    return SpeedVerdict(wall, _compare(a, b, cpu_time, confidence) if known else None, busy)


def partners(measurements: Sequence[Measurement]) -> list[Measurement | None]:
    """Return the measurement to compare each with: the first with the same batch and concurrency.

    None: it is that first one.
    """
    firsts: dict[tuple[int, int], Measurement] = {}
    results = []
    for measurement in measurements:
        key = measurement.samples, measurement.settings.concurrency
        first = firsts.setdefault(key, measurement)
        results.append(None if first is measurement else first)
    return results


def inconclusive_against_first(measurements: Sequence[Measurement]) -> set[int]:
    """Return the indices of measurements without a conclusive verdict, and of their partners.

    Measurements without a partner run as long as any other.
    """
    places = {id(item): place for place, item in enumerate(measurements)}
    pairs = [
        (first, item)
        for first, item in zip(partners(measurements), measurements, strict=True)
        if first is not None
    ]
    results = {
        places[id(side)]
        for pair in pairs
        if not judge(*pair, confidence=LOOK_CONFIDENCE).is_decided
        for side in pair
    }
    alone = {*places.values()} - {places[id(side)] for pair in pairs for side in pair}
    return results | alone if results or not pairs else set()


DRIFT = 0.10
"""Drift of a shared machine from one minute to the next: the same calls took 8 % longer."""


def compare_apart(
    a: Measurement,
    b: Measurement,
    *,
    slower: float = 1.0,
    confidence: float = CONFIDENCE,
    busy: str = "",
) -> SpeedVerdict:
    """Compare two measurements from different times.

    `slower` is the ratio of the machine's reference times, b over a. How much of it affected the
    model is unknown, so the intervals include both extremes: none and all.
    """
    known = all(item.turns and item.settings.device == "cpu" for item in (a, b))
    ratios = []
    for figure in (latency, cpu_time) if known else (latency,):
        difference, error, degrees = _between_processes(
            levels(a, figure), levels(b, figure), figure
        )
        reach = student(confidence, degrees) * error if degrees else math.inf
        result = Ratio.around(difference, reach, confidence)
        low, high = result.low * min(1.0, slower), result.high * max(1.0, slower)
        ratios.append(Ratio(result.value, low, high, confidence))
    return SpeedVerdict(ratios[0], ratios[1] if known else None, busy, DRIFT)


@dataclass(frozen=True)
class Level:
    """Level of a session: the median of its rounds, as a logarithm."""

    process: int
    value: float


def levels(measurement: Measurement, figure: Figure = latency) -> list[Level]:
    """Return the level of each session, from its undisturbed rounds."""
    values, turns = np.log(figure(measurement)), who(measurement)
    retained = undisturbed(measurement)
    triples = zip(values, turns, retained, strict=True)
    return _by_session((float(value), turn) for value, turn, keep in triples if keep)


def _by_session(values: Iterable[tuple[float, Turn]]) -> list[Level]:
    """Return the level of each session from the values of its rounds."""
    result: dict[tuple[int, int], list[float]] = {}
    for value, turn in values:
        result.setdefault((turn.process, turn.session), []).append(value)
    return [Level(process, float(np.median(item))) for (process, _), item in result.items()]


def who(measurement: Measurement) -> Sequence[Turn]:
    """Return the metadata of each round; if unknown, each round counts as a session."""
    return measurement.turns or [
        Turn(number, 0, number, 0.0, 0, 0) for number in range(len(measurement.rounds_ms))
    ]


def undisturbed(measurement: Measurement, other: Measurement | None = None) -> Array:
    """Return a mask of the rounds that count by RULE; all count if a session would lose all.

    Two measurements with the same threads share one threshold. With few undisturbed rounds,
    separate thresholds would favour the luckier one.
    """
    everyone = np.ones(len(measurement.rounds_ms), bool)
    stretched = _stretched(measurement)
    if stretched is None:
        return everyone
    pool, others = stretched, None if other is None else _stretched(other)
    if other is not None and others is not None:
        first, second = (replace(item.settings, batch=None) for item in (measurement, other))
        if first == second:  # the same number of cores, as far as settings determine it
            pool = np.concatenate([stretched, others])
    retained: Array = stretched <= DISTURBED * np.quantile(pool, 0.1)
    sessions = {turn.session for turn in measurement.turns}
    left = {turn.session for turn, keep in zip(measurement.turns, retained, strict=True) if keep}
    return retained if left == sessions else everyone


def _stretched(measurement: Measurement) -> Array | None:
    """Return the wall time per CPU second of each round; None: unknown."""
    if not measurement.turns or measurement.settings.device != "cpu":
        return None
    cpu = np.array([max(turn.cpu_ms, 1e-6) for turn in measurement.turns])
    return np.asarray(1e3 * np.array(measurement.rounds_seconds) / cpu)


def _compare(a: Measurement, b: Measurement, figure: Figure, confidence: float) -> Ratio:
    """Return the ratio of a metric and its interval."""
    centred = _centred(a, b, figure)
    if {item.process for item in centred[0]} & {item.process for item in centred[1]}:
        difference, error, degrees = _within_processes(*centred)
    else:
        difference, error, degrees = _between_processes(*centred, figure)
    if math.isnan(difference):  # an interruption left no block in common
        difference = float(np.median(np.log(figure(a))) - np.median(np.log(figure(b))))
    reach = student(confidence, degrees) * error if degrees else math.inf
    return Ratio.around(difference, reach, confidence)


def _centred(a: Measurement, b: Measurement, figure: Figure) -> tuple[list[Level], list[Level]]:
    """Return the levels of sessions after subtracting the level of each block."""
    sides = []
    masks = [undisturbed(a, b), undisturbed(b, a)]
    if any(retained.all() for retained in masks):  # if one cannot skip any, neither may
        masks = [np.ones_like(retained) for retained in masks]
    for item, remaining in zip((a, b), masks, strict=True):
        values = np.log(figure(item))
        triples = zip(values, who(item), remaining, strict=True)
        sides.append([(float(value), turn) for value, turn, keep in triples if keep])
    of_block: list[dict[int, list[float]]] = [{}, {}]
    for side, by_block in zip(sides, of_block, strict=True):
        for value, turn in side:
            by_block.setdefault(turn.block, []).append(value)
    middle = {
        block: (np.median(values) + np.median(of_block[1][block])) / 2
        for block, values in of_block[0].items()
        if block in of_block[1]
    }
    first, second = (
        _by_session((value - middle[t.block], t) for value, t in side if t.block in middle)
        for side in sides
    )
    return first, second


def _within_processes(a: Sequence[Level], b: Sequence[Level]) -> tuple[float, float, int]:
    """Return the difference of levels, its error and degrees of freedom, over sessions.

    Effects of a process cancel, as both measurements have sessions in it.
    """
    processes = sorted({item.process for item in a} & {item.process for item in b})
    differences, squares, weights, degrees = [], 0.0, [], 0
    for process in processes:
        x, y = (np.array([e.value for e in side if e.process == process]) for side in (a, b))
        differences.append(np.mean(x) - np.mean(y))
        weights.append(1 / (1 / len(x) + 1 / len(y)))
        squares += float(np.sum((x - np.mean(x)) ** 2) + np.sum((y - np.mean(y)) ** 2))
        degrees += len(x) + len(y) - 2 if min(len(x), len(y)) > 1 else 0
    if not processes:
        return math.nan, math.inf, 0
    difference = float(np.average(differences, weights=weights))
    if degrees:
        return difference, math.sqrt(squares / degrees / sum(weights)), degrees
    degrees = len(processes) - 1  # one session each per process: pairs
    scatter = float(np.std(differences, ddof=1)) if degrees else 0.0
    return difference, scatter / math.sqrt(len(processes)), degrees


def _between_processes(
    a: Sequence[Level], b: Sequence[Level], figure: Figure
) -> tuple[float, float, int]:
    """Return the difference of levels, its error and degrees of freedom, over processes.

    Processes are few, so a known spread counts as additional degrees of freedom. Source: G. Smyth,
    Linear models and empirical Bayes methods, 2004, section 3 (a moderated t).
    """
    means, rest = [], 0.0
    for side in (a, b):
        by_process: dict[int, list[float]] = {}
        for entry in side:
            by_process.setdefault(entry.process, []).append(entry.value)
        means.append(np.array([np.mean(item) for item in by_process.values()]))
        if len(by_process) == 1:  # then the spread of its sessions counts
            if len(side) < 2:
                return float(means[0].mean() - means[-1].mean()), math.inf, 0
            rest += float(np.var([item.value for item in side], ddof=1)) / len(side)
    x, y = means
    if not len(x) or not len(y):
        return math.nan, math.inf, 0
    known = _OF_PROCESSES.get(figure, 0.0)
    added = _KNOWN_DEGREES if known else 0
    degrees = len(x) + len(y) - 2 + added
    if not degrees:
        return float(x.mean() - y.mean()), math.inf, 0
    squares = float(np.sum((x - x.mean()) ** 2) + np.sum((y - y.mean()) ** 2))
    spread = (squares + added * known**2) / degrees
    error = math.sqrt(spread * (1 / len(x) + 1 / len(y)) + rest)
    return float(x.mean() - y.mean()), error, degrees


def _percent(share: float) -> str:
    """Return a share in percent, with two significant digits."""
    return f"{100 * share:.2g}" if share < 0.995 else f"{100 * share:.0f}"
