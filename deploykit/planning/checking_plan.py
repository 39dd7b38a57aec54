"""Whether a plan is true of the server that it was made from: what was foreseen beside what is.

Both are for the same arrivals, so that what is left between them is not luck.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from deploykit.client.server_load import Advance, Generators
from deploykit.planning.measuring import MOST_FAILED, RUNGS, Measured, at_random, traced
from deploykit.planning.plan_options import PlanOptions
from deploykit.planning.service_times import Trace
from deploykit.planning.sizing import P99, Forecast, Size, sized
from deploykit.transforms.common.documents import Hidden, Written, written

TRIES, RUNS = 3, 3
BAR, TINY_BAR = 1.25, 1.35
TINY_MS = 2.0
"""Of calls that are quicker than this, what else a machine does is a larger part."""
_LONGER = 2.0  # than a load while the server is measured
_SEED = 1000


@dataclass(frozen=True)
class PlanCheck:
    """A load that the plan gives to one replica, on the server itself."""

    rate: Annotated[float, Written(digits=4)]
    calls: int
    """That were answered."""
    failed: int
    seen_ms: Hidden[Sequence[float]]
    """P99 of each run."""
    foreseen: Hidden[Sequence[P99]]
    """The same for the very arrivals of each run."""
    bar: float
    """How far both may be apart, as a ratio."""

    @property
    @written("runs", digits=3)
    def _runs(self) -> list[dict[str, float]]:
        return [
            {"p99_ms": seen, "foreseen_ms": item.ms, "foreseen_low_ms": item.low_ms,
             "foreseen_high_ms": item.high_ms}
            for seen, item in zip(self.seen_ms, self.foreseen, strict=True)
        ]  # fmt: skip

    @property
    @written(digits=3)
    def p99_ms(self) -> float:
        """What was seen in the run in the middle."""
        return statistics.median(self.seen_ms)

    @property
    @written(digits=3)
    def foreseen_ms(self) -> float:
        """What was foreseen of the runs, in the middle."""
        return statistics.median(item.ms for item in self.foreseen)

    @property
    @written(digits=3)
    def ratio(self) -> float:
        """What was foreseen over what was seen."""
        return self.foreseen_ms / self.p99_ms

    @property
    @written()
    def passed(self) -> bool:
        """Whether the server does what was foreseen.

        It does not where calls fail, or where not one run is within the bar of its range, and all
        are on the same side of it.
        """
        runs = list(zip(self.seen_ms, self.foreseen, strict=True))
        slower = all(seen > self.bar * item.high_ms for seen, item in runs)
        quicker = all(self.bar * seen < item.low_ms for seen, item in runs)
        return not (slower or quicker or self.failed > MOST_FAILED * self.calls)


def bar_for(lone_ms: float) -> float:
    """Return how far what is seen may be from what was foreseen, for calls that take so long."""
    return TINY_BAR if lone_ms < TINY_MS else BAR


def judged(traces: Sequence[Trace], failed: int, forecast: Forecast) -> PlanCheck:
    """Return what runs at one rate say of a forecast."""
    return PlanCheck(
        traces[0].rate,
        sum(len(trace.calls) for trace in traces),
        failed,
        [1e3 * trace.p99() for trace in traces],
        [forecast.replayed(trace.rate, trace.calls[:, 0] - trace.calls[0, 0]) for trace in traces],
        bar_for(forecast.measured.lone_ms[0]),
    )


def tried(
    generators: Generators, measured: Measured, how: PlanOptions, advance: Advance
) -> tuple[Forecast, Size, PlanCheck | None]:
    """Return a plan that was tried on the server, with what it rests on.

    Where the server does something else than was foreseen, what it did is added to what is known of
    it, and the plan made anew: machines that are shared change within a minute. What does not hold
    after TRIES of them is returned as it is. VerificationError: as `traced`.
    """
    check = None
    for attempt in range(TRIES):
        advance("simulating", 0)
        forecast = Forecast(measured)
        size = sized(forecast, how)
        # So few calls that they never meet would say nothing.
        rate = max((how.rate or 0.0) / size.replicas, RUNGS[0] * measured.capacity)
        if forecast.p99(rate) is None or not size.bears:
            return forecast, size, None
        traces, failed = [], 0
        for number in range(RUNS):
            advance(f"trying {rate:.4g} calls/s", TRIES * RUNS)
            seed = _SEED + attempt * RUNS + number
            step = at_random(_LONGER * how.seconds, rate, seed)
            load, trace = traced(generators, step, advance)
            traces.append(trace)
            failed += load.failed
        advance("comparing", 0)
        check = judged(traces, failed, forecast)
        if check.passed:
            break
        measured = measured.with_rounds(traces)
    return forecast, size, check
