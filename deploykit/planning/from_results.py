"""Service times of one replica, from a result of `load-test` or `benchmark --scenario server`."""

import itertools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import result_of
from deploykit.benchmarking.run_config import SERVER
from deploykit.benchmarking.scenario_load import SEED
from deploykit.client.server_load import Advance, Generators
from deploykit.planning.measuring import (
    ALIKE,
    MAX_FAILED,
    RUNGS,
    Measured,
    at_random,
    order_of,
    slots_of,
    summed_up,
    traced,
)
from deploykit.planning.plan_options import PlanOptions
from deploykit.planning.service_times import (
    RESTS,
    STATES,
    Order,
    Services,
    ServiceTimes,
    ServiceTimesOfLoad,
    Trace,
)
from deploykit.planning.sizing import P99, Forecast, Size, sized
from deploykit.rendering.serving import load_name
from deploykit.serving.client.load_generator import poisson
from deploykit.transforms.common.documents import Hidden, Written, written
from deploykit.transforms.common.errors import GraphError, nearest, unknown_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import read_json

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


_MADE = 2000  # samples that represent a distribution with known percentiles
_QUANTILES = (0, 50, 90, 99, 99.9, 100)
_VARIES = (0.95, 1.0, 1.05)  # assumed variation of a single measurement
_PIECES = 5
_LIGHT = 0.3  # share of the capacity at which requests rarely overlap
_FEWEST = 100
_LUCKS = 8


@dataclass(frozen=True)
class RecordedLoad:
    """A load of random arrivals in a result."""

    rate: float
    calls: int
    p99_ms: float
    due: Array | None = None
    """Scheduled times in seconds; None: unknown."""


@dataclass(frozen=True)
class Recorded:
    """Metadata of one replica from a result file."""

    measured: Measured
    loads: Sequence[RecordedLoad]
    note: str
    """What the file does not contain, in words."""
    model: str

    def check(self, forecast: Forecast, rate: float) -> PlanCheck | None:
        """Compare the prediction with the recorded load whose rate is nearest."""
        loads = [load for load in self.loads if forecast.allows(load.rate)]
        if not loads:
            return None
        near = min(loads, key=lambda item: abs(item.rate - rate))
        bar = bar_for(self.measured.unloaded_ms[0])
        predicted = _predicted(forecast, near)
        return PlanCheck(near.rate, near.calls, 0, [near.p99_ms], [predicted], bar)


def _predicted(forecast: Forecast, load: RecordedLoad) -> P99:
    """Return the predicted p99 of a load; for unknown arrivals, over several random ones."""
    if load.due is not None:
        return forecast.replayed(load.rate, load.due)
    results = []
    for seed in range(_LUCKS):
        due = itertools.islice(poisson(load.rate, math.inf, seed), load.calls)
        results.append(forecast.replayed(load.rate, np.array(list(due))))
    return P99(
        statistics.median(result.ms for result in results),
        min(result.low_ms for result in results),
        max(result.high_ms for result in results),
    )


def recorded(path: str | os.PathLike[str], model: str | None) -> Recorded:
    """Read a result file. GraphError: not such a result, or it lacks data."""
    document = read_json(path, "result of load-test or benchmark")
    kind = document.get("kind", document.get("command")) if isinstance(document, dict) else None
    try:
        if kind == "load-test":
            return _from_load_test(document, path, model)
        if kind == "benchmark":
            return _from_benchmark(document, path, model)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(
            "not-a", source=path, what=f"a result of deploykit {kind}", reason=repr(error)
        ) from None
    raise GraphError("plan-not-a-result", source=path, kind=kind)


def _from_load_test(
    document: Mapping[str, Any], path: str | os.PathLike[str], model: str | None
) -> Recorded:
    name = str(document["model"])
    _check_model(path, model, [name])
    loads = [item for item in document["loads"] if item["latency_ms"]]
    for entry in loads:
        if entry["generator_limited"]:
            raise GraphError(
                "plan-generator-limited",
                source=path,
                load=load_name(entry["callers"], entry["rate"]),
            )
    several = [float(load["throughput"]) for load in loads if load["callers"] > 1]
    if not several:
        raise GraphError(
            "plan-wanted",
            source=path,
            reason=_wanted("the throughput with several clients"),
        )
    capacity = max(several)
    lone = [load for load in loads if load["callers"] == 1]
    light = [load for load in loads if 0 < load["rate"] <= _LIGHT * capacity]
    if not lone + light:
        raise GraphError(
            "plan-wanted", source=path, reason=_wanted("the latency of an unloaded request")
        )
    latency = (lone + light)[0]["latency_ms"]
    alone = _like(latency)
    slots = slots_of(float(latency["mean"]) / 1e3, capacity)
    spread = float(latency["p90"]) > ALIKE * float(latency["p50"])
    measured = Measured(
        (float(latency["p50"]), float(latency["p99"])),
        Order(slots, overtaking=slots > 1 and spread),
        capacity,
        0.0,
        [_made(alone, slots, factor * capacity) for factor in _VARIES],
        f"the server at {document['address']} ({path})",
    )
    at_random = [
        RecordedLoad(
            float(load["rate"]), int(load["statuses"]["OK"]), float(load["latency_ms"]["p99"])
        )
        for load in loads
        if load["rate"] and not load["failed"]
    ]
    note = (
        "a load test does not show how idle periods and queues change the latency; to include "
        "that, measure the server itself (plan ADDRESS MODEL)"
    )
    return Recorded(measured, at_random, note, name)


def _made(alone: Array, slots: int, capacity: float) -> ServiceTimes:
    """Return service times with the spread of unloaded requests, scaled to a capacity."""
    busy = alone * (slots / capacity / alone.mean())
    states = [alone if state < len(RESTS) else busy for state in range(STATES)]
    return ServiceTimes(slots, capacity, 0.0, [ServiceTimesOfLoad(1.0, states)])


def _like(latency: Mapping[str, Any]) -> Array:
    """Return latencies in seconds with these percentiles, which are in milliseconds.

    The distribution is assumed symmetric around p50, up to p90.
    """
    p50, p90 = float(latency["p50"]), float(latency["p90"])
    known = [max(2 * p50 - p90, p50 / 2), p50, p90, *map(float, (latency["p99"],
             latency["p99.9"], latency["max"]))]  # fmt: skip
    shares = (np.arange(_MADE) + 0.5) / _MADE * 100
    return np.asarray(np.interp(shares, _QUANTILES, known) / 1e3)


def _from_benchmark(
    document: Mapping[str, Any], path: str | os.PathLike[str], model: str | None
) -> Recorded:
    results = [
        measurement
        for measurement in result_of(document, path).measurements
        if measurement.scenario is not None and measurement.scenario.name == SERVER
    ]
    if not results:
        raise GraphError("plan-no-server-scenario", source=path)
    _check_model(path, model, [result.name for result in results])
    if model is None and len(results) > 1:
        names = [result.name for result in results]
        raise GraphError("plan-several-models", source=path, names=names)
    chosen = next(result for result in results if model in (None, result.name))
    trace = _replayed(chosen, path)
    slots = chosen.settings.concurrency
    capacity = slots / float(Services.of(trace, slots).seconds.mean())
    ended = np.maximum.accumulate(trace.calls[:, 1])
    alone = np.concatenate([[True], trace.calls[1:, 0] > ended[:-1]])
    lone = Trace(trace.rate, trace.calls[alone])
    pieces = [
        Trace(trace.rate, item) for item in np.array_split(trace.calls, _PIECES) if len(item) > 1
    ]
    measured = summed_up(
        order_of(slots, [lone.latencies]),
        [lone],
        [[piece] for piece in pieces],
        [capacity] * len(pieces),
        f"one process, without a server ({path})",
    )
    load = RecordedLoad(trace.rate, len(trace.calls), 1e3 * trace.p99(), trace.calls[:, 0])
    note = "what a server adds to a request is not part of a benchmark of one process"
    return Recorded(measured, [load], note, chosen.name)


def _replayed(measurement: Measurement, path: str | os.PathLike[str]) -> Trace:
    """Return the arrivals, which the seed determines, and the end of each request."""
    scenario, latencies = measurement.scenario, np.array(measurement.latencies_ms) / 1e3
    assert scenario is not None
    rate = scenario.rate_asked or 0.0
    arrivals = poisson(rate, scenario.seconds + 1.0, SEED)
    due = np.array(list(itertools.islice(arrivals, len(latencies))))
    if len(due) < len(latencies) or len(due) < _FEWEST:
        raise GraphError(
            "plan-too-few-calls",
            source=path,
            name=measurement.name,
            count=len(latencies),
            least=_FEWEST,
        )
    return Trace(rate, np.stack([due, due + latencies], axis=1))


def _check_model(path: str | os.PathLike[str], model: str | None, names: Sequence[str]) -> None:
    if model is not None and model not in names:
        raise unknown_name(
            "measurement of model", model, names, nearest(model, list(names))
        ).within(path)


def _wanted(what: str) -> str:
    return (
        f"it lacks {what}; run deploykit load-test --concurrency 1,2,4,8 -o FILE, or measure the "
        "server with deploykit plan ADDRESS MODEL"
    )
