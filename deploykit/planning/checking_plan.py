"""Check of a plan on the measured server: predicted against measured p99.

Prediction and measurement use the same arrivals, so that chance does not affect the comparison.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from deploykit.client.server_load import Advance, Generators
from deploykit.planning.measuring import MAX_FAILED, RUNGS, Measured, at_random, traced
from deploykit.planning.plan_options import PlanOptions
from deploykit.planning.service_times import Trace
from deploykit.planning.sizing import P99, Forecast, Size, sized
from deploykit.transforms.common.documents import Hidden, Written, written

TRIES, RUNS = 3, 3
BAR, TINY_BAR = 1.25, 1.35
TINY_MS = 2.0
"""Requests with a latency below this are affected more by other load on the machine."""
_LONGER = 2.0  # duration relative to a load of the measurement
_SEED = 1000


@dataclass(frozen=True)
class PlanCheck:
    """A load as the plan assigns it to one replica, run on the server."""

    rate: Annotated[float, Written(digits=4)]
    calls: int
    """Number of successful requests."""
    failed: int
    seen_ms: Hidden[Sequence[float]]
    """Measured p99 of each run, in milliseconds."""
    predicted: Hidden[Sequence[P99]]
    """Predicted p99 for the same arrivals, for each run."""
    bar: float
    """Tolerance: the largest accepted ratio of prediction and measurement."""

    @property
    @written("runs", digits=3)
    def _runs(self) -> list[dict[str, float]]:
        return [
            {"p99_ms": seen, "predicted_ms": item.ms, "predicted_low_ms": item.low_ms,
             "predicted_high_ms": item.high_ms}
            for seen, item in zip(self.seen_ms, self.predicted, strict=True)
        ]  # fmt: skip

    @property
    @written(digits=3)
    def p99_ms(self) -> float:
        """Median of the measured p99 over the runs."""
        return statistics.median(self.seen_ms)

    @property
    @written(digits=3)
    def predicted_ms(self) -> float:
        """Median of the predicted p99 over the runs."""
        return statistics.median(item.ms for item in self.predicted)

    @property
    @written(digits=3)
    def ratio(self) -> float:
        """Predicted p99 divided by the measured one."""
        return self.predicted_ms / self.p99_ms

    @property
    @written()
    def passed(self) -> bool:
        """Whether the server performs as predicted.

        It does not if requests fail, or if all runs are outside their range by more than the
        tolerance, in the same direction.
        """
        runs = list(zip(self.seen_ms, self.predicted, strict=True))
        slower = all(seen > self.bar * item.high_ms for seen, item in runs)
        quicker = all(self.bar * seen < item.low_ms for seen, item in runs)
        return not (slower or quicker or self.failed > MAX_FAILED * self.calls)


def bar_for(unloaded_ms: float) -> float:
    """Return the tolerance for a server with this unloaded latency in milliseconds."""
    return TINY_BAR if unloaded_ms < TINY_MS else BAR


def judged(traces: Sequence[Trace], failed: int, forecast: Forecast) -> PlanCheck:
    """Compare runs at one rate with a forecast."""
    return PlanCheck(
        traces[0].rate,
        sum(len(trace.calls) for trace in traces),
        failed,
        [1e3 * trace.p99() for trace in traces],
        [forecast.replayed(trace.rate, trace.calls[:, 0] - trace.calls[0, 0]) for trace in traces],
        bar_for(forecast.measured.unloaded_ms[0]),
    )


def tried(
    generators: Generators, measured: Measured, how: PlanOptions, advance: Advance
) -> tuple[Forecast, Size, PlanCheck | None]:
    """Return a forecast, the plan, and its check on the server.

    If the check fails, its runs are added to the measurement, and the plan is made again, as shared
    machines change within a minute. After TRIES failures, the last plan is returned with its check.
    VerificationError: as in `traced`.
    """
    check = None
    for attempt in range(TRIES):
        advance("simulating", 0)
        forecast = Forecast(measured)
        size = sized(forecast, how)
        # Requests that never overlap would not test the queue.
        rate = max((how.rate or 0.0) / size.replicas, RUNGS[0] * measured.capacity)
        if forecast.p99(rate) is None or not size.bears:
            return forecast, size, None
        traces, failed = [], 0
        for number in range(RUNS):
            advance(f"testing {rate:.4g} requests/s", TRIES * RUNS)
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
