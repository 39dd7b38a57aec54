"""Measurement of a server's service times under load, and of the loads that it sustains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.client.server_load import Advance, Generators, Load
from deploykit.planning.service_times import (
    Order,
    Services,
    ServiceTimes,
    Trace,
    front_end_of,
)
from deploykit.rendering.serving import failures
from deploykit.serving.client.load_generator import LoadStep
from deploykit.transforms.common.errors import VerificationError
from deploykit.transforms.ir.tensors import Array

MAX_FAILED = 0.01
"""Maximum share of failed requests."""
MAX_LATE = 0.1
"""Maximum share of late requests; some are late if the server shares cores with the generator."""


@dataclass(frozen=True)
class SustainedLoads:
    """Number of sustained loads per round, lightest first."""

    count: int
    why: str
    """Why the next load was not sustained, in words; empty if all were."""


def held(rounds: Sequence[Sequence[Load]], needed: int) -> SustainedLoads:
    """Return how many loads of each round were sustained, lightest first.

    A load is not sustained if it failed in most rounds; a single failure may be due to other load
    on the machine. VerificationError: one of the first `needed` loads was not sustained.
    """
    loads = list(zip(*rounds, strict=True))
    for number, alike in enumerate(loads):
        why, way_out = _refused(alike) or _limited(alike) or ("", "")
        if why and number < needed:
            raise VerificationError("plan-impossible", reason=why, advice=way_out)
        if why:
            return SustainedLoads(number, why)
    return SustainedLoads(len(loads), "")


def calls_of(load: Load) -> int:
    """Return the number of requests of a load."""
    return sum(load.statuses.values())


def _refused(alike: Sequence[Load]) -> tuple[str, str] | None:
    failing = [item for item in alike if item.failed > MAX_FAILED * calls_of(item)]
    if len(failing) <= len(alike) / 2:
        return None
    worst = max(failing, key=lambda item: item.failed)
    return (
        f"{worst.failed} of {calls_of(worst)} requests failed at {worst.name} "
        f"({failures(worst.statuses)})",
        "first make the server answer all requests",
    )


def _limited(alike: Sequence[Load]) -> tuple[str, str] | None:
    limited = [
        item
        for item in alike  # a few late random arrivals are tolerated
        if (item.sent_late > MAX_LATE * calls_of(item) if item.rate else item.generator_limited)
    ]
    if len(limited) <= len(alike) / 2:
        return None
    return (
        f"the generator was the limit at {limited[0].name}, not the server",
        "give it more processes (--processes) or another machine",
    )


ROUNDS = 5
"""Number of interleaved rounds of all loads; differences between them are due to the machine."""
RUNGS = (0.2, 0.4, 0.6, 0.8)
"""Loads with random arrivals, as shares of the server's capacity."""
_CLOSED = 2  # preceding loads in a round, with clients that wait for responses
STEPS = ROUNDS * (_CLOSED + len(RUNGS))
MAX_LOAD = 0.9
"""Highest planned share of a replica's capacity; above it, small errors have large effects."""
_PROBE_SECONDS = 1.0
_MAX_CALLERS = 64
_GAIN = 1.1  # minimum speedup from twice the clients
_CALLERS_A_SLOT = 4
_NEARLY = 0.35
_SOME_CALLS, _FEWEST_CALLS = 25, 5
MAX_OVERTAKEN = 0.03
"""Maximum share of requests that end long after a later one."""
_LONG = 3.0  # in units of unloaded p99
ALIKE = 1.5
"""Largest ratio of service times on a server where requests do not overtake each other."""


@dataclass(frozen=True)
class Measured:
    """The measured capacity, latencies and service times of one replica."""

    unloaded_ms: tuple[float, float]
    """p50 and p99 latency of unloaded requests, in milliseconds."""
    order: Order
    capacity: float
    """Throughput in requests per second when the server is never idle."""
    front_end: float
    """Seconds by which an arriving request delays the running ones."""
    rounds: Sequence[ServiceTimes]
    """Service times of each round of the measurement."""
    source: str
    """Description of the measured server."""
    busy: float = 0.0
    """Largest CPU use of the generator, as a share of a core."""
    late: float = 0.0
    """Largest share of requests that the generator sent late."""
    most_load: float = MAX_LOAD
    """Highest planned share of the capacity."""
    limit: str = ""
    """Why `most_load` is below MAX_LOAD: what failed at the next load, in words; otherwise
    empty."""

    def with_rounds(self, traces: Sequence[Trace]) -> "Measured":
        """Return a copy with more loads of random arrivals, each as a separate round."""
        rounds = [
            ServiceTimes.of([trace], self.order, self.capacity, self.front_end) for trace in traces
        ]
        return replace(self, rounds=[*self.rounds, *rounds])

    @property
    def slots(self) -> int:
        """Number of requests that the server runs concurrently."""
        return self.order.slots


def measure_server(
    generators: Generators, seconds: float, source: str, advance: Advance
) -> Measured:
    """Measure a server with one client, with several clients, and with random arrivals.

    Each load lasts for `seconds` in each of ROUNDS rounds. VerificationError: requests failed, or
    the generator was the limit, already at the lightest load.
    """
    slots = probed(generators, advance)
    rounds = [measured_round(generators, seconds, slots, turn, advance) for turn in range(ROUNDS)]
    return measured_of(rounds, source)


def measured_of(rounds: Sequence[Sequence[tuple[Load, Trace]]], source: str) -> Measured:
    """Return the measurement from the rounds of `measured_round`. VerificationError: too little
    data.
    """
    reported = held([[load for load, _ in round_] for round_ in rounds], _CLOSED + 1)
    rounds = [round_[: reported.count] for round_ in rounds]
    lone = [round_[0][1] for round_ in rounds]
    traces = [[trace for _, trace in round_[1:]] for round_ in rounds]
    capacities = [capacity_in(round_) for round_ in rounds]
    pairs = zip(lone, capacities, strict=True)  # by round, as a machine's speed drifts
    slots = int(np.median([slots_of(float(item.latencies.mean()), rate) for item, rate in pairs]))
    order = order_of(slots, [item.latencies for item in lone])
    _check_one_queue(order, lone, [trace[-1] for trace in traces])
    result = summed_up(order, lone, traces, capacities, source)
    loads = [load for round_ in rounds for load, _ in round_]
    busy = max(load.generator_busy for load in loads)
    late = max(load.sent_late / calls_of(load) for load in loads)
    most = RUNGS[reported.count - _CLOSED - 1] if reported.why else MAX_LOAD
    return replace(result, busy=busy, late=late, most_load=most, limit=reported.why)


def measured_round(
    generators: Generators,
    seconds: float,
    slots: int,
    turn: int,
    advance: Advance,
    capacity: float | None = None,
) -> list[tuple[Load, Trace]]:
    """Run a round of loads with one client, several clients and random arrivals; return them.

    `slots` is the result of `probed`. Random arrivals are shares of `capacity`; None: the
    throughput in this round. VerificationError: as in `traced`.
    """
    results = []
    for callers in (1, _CALLERS_A_SLOT * slots):
        advance("measuring", STEPS)
        results.append(traced(generators, LoadStep(seconds, callers=callers), advance))
    capacity = capacity or capacity_in(results)
    for number, share in enumerate(RUNGS):
        advance("measuring", STEPS)
        step = at_random(seconds, share * capacity, 1 + turn * len(RUNGS) + number)
        results.append(traced(generators, step, advance))
    return results


def capacity_in(loads: Sequence[tuple[Load, Trace]]) -> float:
    """Return the throughput of a round in requests per second, with clients that never pause."""
    return loads[1][0].throughput


def at_random(seconds: float, rate: float, seed: int) -> LoadStep:
    """Return a load of random arrivals that lasts for `seconds`, or longer for enough requests."""
    return LoadStep(max(seconds, _SOME_CALLS / rate), rate=rate, seed=seed)


def _check_one_queue(order: Order, lone: Sequence[Trace], traces: Sequence[Trace]) -> None:
    """Raise VerificationError if requests wait in several queues, one per worker.

    With a single queue, a waiting request starts before all later ones. So none of these ends
    earlier by more than its service time. `lone` and `traces` are the unloaded and the heaviest
    load of each round.
    """
    pairs = zip(lone, traces, strict=True)
    share = float(np.median([overtaken(item, _LONG * alone.p99()) for alone, item in pairs]))
    if order.slots > 1 and share > MAX_OVERTAKEN:
        raise VerificationError("plan-several-queues", percent=100 * share)


def overtaken(trace: Trace, seconds: float) -> float:
    """Return the share of requests that end more than `seconds` after a later one."""
    ended = trace.calls[:, 1]
    first_later = np.minimum.accumulate(ended[::-1])[::-1]
    return float(np.mean(ended - first_later > seconds))


def summed_up(
    order: Order,
    lone: Sequence[Trace],
    rounds: Sequence[Sequence[Trace]],
    capacities: Sequence[float],
    source: str,
) -> Measured:
    """Return a measurement from the traces of rounds, for a server with this order."""
    services = [
        Services.of(trace, order.slots, order.overtaking)
        for traces in rounds
        for trace in traces
        if trace.open
    ]
    front_end = front_end_of(services)
    alone = 1e3 * np.concatenate([item.latencies for item in lone])
    return Measured(
        (float(np.percentile(alone, 50)), float(np.percentile(alone, 99))),
        order,
        float(np.median(capacities)),
        front_end,
        [
            ServiceTimes.of(traces, order, capacity, front_end)
            for traces, capacity in zip(rounds, capacities, strict=True)
        ],
        source,
    )


def traced(generators: Generators, step: LoadStep, advance: Advance) -> tuple[Load, Trace]:
    """Run a load; return its result and its requests.

    VerificationError: too few requests were answered.
    """
    load, calls = generators.trace(step, advance)
    if len(calls) < _FEWEST_CALLS:
        failed = f" ({failures(load.statuses)})" if load.failed else ""
        raise VerificationError(
            "plan-too-few-answers",
            load=load.name,
            count=len(calls),
            seconds=step.seconds,
            failed=failed,
            least=_FEWEST_CALLS,
        )
    return load, Trace(step.rate or load.throughput, calls, open=not step.callers)


def order_of(slots: int, lone: Sequence[Array]) -> Order:
    """Return the order of requests, from unloaded latencies in seconds by round.

    Similar latencies mean similar service times; a request that then ends before an earlier one
    merely got more CPU time. Rounds are compared separately, as the machine changes between them.
    With one slot, no request overtakes another.
    """
    ratios = [slow / quick for quick, slow in (np.percentile(item, (10, 90)) for item in lone)]
    return Order(slots, overtaking=slots > 1 and bool(np.median(ratios) > ALIKE))


def slots_of(unloaded_seconds: float, capacity: float) -> int:
    """Return the number of concurrent requests of a server: the clients that use its capacity.

    Work before and after the model raises the estimate a little. Requests that share a core count
    as one, as they gain nothing over sequential requests.
    """
    return max(1, int(capacity * unloaded_seconds + _NEARLY))


def probed(generators: Generators, advance: Advance) -> int:
    """Return an estimate of the number of requests that the server runs concurrently."""
    advance("probing", 0)
    lone = generators.measure(LoadStep(_PROBE_SECONDS, callers=1), advance)
    best, callers = lone.throughput, 1
    while callers < _MAX_CALLERS:
        callers *= 2
        more = generators.measure(LoadStep(_PROBE_SECONDS, callers=callers), advance)
        if more.throughput < _GAIN * best:
            best = max(best, more.throughput)
            break
        best = more.throughput
    if not (lone.latency_ms and best):
        raise VerificationError("plan-no-answer", failures=failures(lone.statuses))
    return slots_of(lone.latency_ms["mean"] / 1e3, best)
