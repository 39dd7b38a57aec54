"""The service of one replica under load, measured at a real server, and the loads that it
sustained.
"""

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

MOST_FAILED = 0.01
"""Of the calls."""
MOST_LATE = 0.1
"""Of the calls; where a server shares its cores with the generator, some are."""


@dataclass(frozen=True)
class HeldLoads:
    """The loads of each round up to the first one that tells nothing."""

    count: int
    why: str
    """What went wrong in the next one, in words; empty where all were held."""


def held(rounds: Sequence[Sequence[Load]], needed: int) -> HeldLoads:
    """Return how many loads of each round were held, from the least on.

    One is not that failed in most rounds, and not as a machine was busy. VerificationError: it is
    one of the first `needed`, without which nothing is known.
    """
    loads = list(zip(*rounds, strict=True))
    for number, alike in enumerate(loads):
        why, way_out = _refused(alike) or _limited(alike) or ("", "")
        if why and number < needed:
            raise VerificationError("plan-impossible", reason=why, advice=way_out)
        if why:
            return HeldLoads(number, why)
    return HeldLoads(len(loads), "")


def calls_of(load: Load) -> int:
    """Return how many calls a load made."""
    return sum(load.statuses.values())


def _refused(alike: Sequence[Load]) -> tuple[str, str] | None:
    failing = [item for item in alike if item.failed > MOST_FAILED * calls_of(item)]
    if len(failing) <= len(alike) / 2:
        return None
    worst = max(failing, key=lambda item: item.failed)
    return (
        f"{worst.failed} of {calls_of(worst)} requests failed at {worst.name} "
        f"({failures(worst.statuses)})",
        "let the server answer them all first",
    )


def _limited(alike: Sequence[Load]) -> tuple[str, str] | None:
    limited = [item for item in alike if _is_limited(item)]
    if len(limited) <= len(alike) / 2:
        return None
    return (
        f"the generator was the limit at {limited[0].name}, not the server",
        "give it more processes (--processes) or another machine",
    )


def _is_limited(load: Load) -> bool:
    """Say whether a load was its generator's limit; of those at random, some may be late."""
    return load.sent_late > MOST_LATE * calls_of(load) if load.rate else load.generator_limited


ROUNDS = 5
"""All loads are measured so often in turn: what differs between rounds is the machine."""
RUNGS = (0.2, 0.4, 0.6, 0.8)
"""Loads that come at random, as shares of what the server can answer."""
_CLOSED = 2  # loads before them in a round, of callers that wait for their answers
STEPS = ROUNDS * (_CLOSED + len(RUNGS))
MOST_LOAD = 0.9
"""Of what a replica can answer; beyond it a small error of that changes everything."""
_PROBE_SECONDS = 1.0
_MOST_CALLERS = 64
_GAIN = 1.1  # twice the callers that bring less bring nothing
_CALLERS_A_SLOT = 4
_NEARLY = 0.35
_SOME_CALLS, _FEWEST_CALLS = 25, 5
MOST_OVERTAKEN = 0.03
"""Of the calls of a load, by others that came later and yet ended long before them."""
_LONG = 3.0  # times p99 of a lone caller
ALIKE = 1.5
"""Services differ no more than this, as a ratio, where calls do not overtake each other."""


@dataclass(frozen=True)
class Measured:
    """What is known of one replica."""

    lone_ms: tuple[float, float]
    """Of a lone caller's calls: p50 and p99."""
    order: Order
    capacity: float
    """Calls a second that it answers where it never waits for one."""
    front_end: float
    """By how many seconds a call that comes lengthens those in service."""
    rounds: Sequence[ServiceTimes]
    """What each round of the measurement tells."""
    source: str
    """Where it was measured, in words."""
    busy: float = 0.0
    """The share of a core that the generator took at most."""
    late: float = 0.0
    """The share of calls that it sent too late, at most."""
    most_load: float = MOST_LOAD
    """The share of the capacity that a replica is given at most."""
    limit: str = ""
    """Why it is less than MOST_LOAD, in words: what happened at the next load; else empty."""

    def with_rounds(self, traces: Sequence[Trace]) -> "Measured":
        """Return it with more loads that came at random, each a round by itself."""
        rounds = [
            ServiceTimes.of([trace], self.order, self.capacity, self.front_end) for trace in traces
        ]
        return replace(self, rounds=[*self.rounds, *rounds])

    @property
    def slots(self) -> int:
        """How many calls are computed at the same time."""
        return self.order.slots


def measure_server(
    generators: Generators, seconds: float, source: str, advance: Advance
) -> Measured:
    """Measure a server: a lone caller, several of them, and calls at random times.

    Each load lasts for so many seconds, in each of ROUNDS rounds. VerificationError: calls failed,
    or the generator was the limit, already at the least load.
    """
    slots = probed(generators, advance)
    rounds = [measured_round(generators, seconds, slots, turn, advance) for turn in range(ROUNDS)]
    return measured_of(rounds, source)


def measured_of(rounds: Sequence[Sequence[tuple[Load, Trace]]], source: str) -> Measured:
    """Return what rounds tell, each as `measured_round` gave it. VerificationError: too little."""
    reported = held([[load for load, _ in round_] for round_ in rounds], _CLOSED + 1)
    rounds = [round_[: reported.count] for round_ in rounds]
    lone = [round_[0][1] for round_ in rounds]
    traces = [[trace for _, trace in round_[1:]] for round_ in rounds]
    capacities = [capacity_in(round_) for round_ in rounds]
    pairs = zip(lone, capacities, strict=True)  # of one time, as a machine's speed drifts
    slots = int(np.median([slots_of(float(item.latencies.mean()), rate) for item, rate in pairs]))
    order = order_of(slots, [item.latencies for item in lone])
    _check_one_queue(order, lone, [trace[-1] for trace in traces])
    result = summed_up(order, lone, traces, capacities, source)
    loads = [load for round_ in rounds for load, _ in round_]
    busy = max(load.generator_busy for load in loads)
    late = max(load.sent_late / calls_of(load) for load in loads)
    most = RUNGS[reported.count - _CLOSED - 1] if reported.why else MOST_LOAD
    return replace(result, busy=busy, late=late, most_load=most, limit=reported.why)


def measured_round(
    generators: Generators,
    seconds: float,
    slots: int,
    turn: int,
    advance: Advance,
    capacity: float | None = None,
) -> list[tuple[Load, Trace]]:
    """Return each load of a round and its calls: of a lone caller, of several, and at random.

    `slots` is what `probed` found, and `capacity` what the loads at random are shares of; None:
    what the server answers in this round. VerificationError: as `traced`.
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
    """Return how many calls a second a server answered in a round, of callers that never wait."""
    return loads[1][0].throughput


def at_random(seconds: float, rate: float, seed: int) -> LoadStep:
    """Return a load that comes at random, for so long, or until there are some calls."""
    return LoadStep(max(seconds, _SOME_CALLS / rate), rate=rate, seed=seed)


def _check_one_queue(order: Order, lone: Sequence[Trace], traces: Sequence[Trace]) -> None:
    """Raise VerificationError where calls wait in several queues, each for a place of its own.

    A call that waits in one queue begins before all that came after it, so none of these ends
    earlier than it by more than what it takes itself. `lone` and `traces` are those of a lone
    caller and of the largest load, of each round.
    """
    pairs = zip(lone, traces, strict=True)
    share = float(np.median([overtaken(item, _LONG * alone.p99()) for alone, item in pairs]))
    if order.slots > 1 and share > MOST_OVERTAKEN:
        raise VerificationError("plan-several-queues", percent=100 * share)


def overtaken(trace: Trace, seconds: float) -> float:
    """Return the share of calls that ended so many seconds after another one that came later."""
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
    """Return what the traces of rounds tell of a server that takes its calls in an order."""
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
    """Return what a load measured, and its calls.

    VerificationError: too few were answered.
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
    """Return how calls are taken, of which those of a lone caller took so many seconds, by round.

    Where these are much alike, so are all, and one that ends before another that came first has
    merely had more of a core. From one round to the next it is the machine that differs. One at a
    time, none overtakes another.
    """
    ratios = [slow / quick for quick, slow in (np.percentile(item, (10, 90)) for item in lone)]
    return Order(slots, overtaking=slots > 1 and bool(np.median(ratios) > ALIKE))


def slots_of(lone_seconds: float, capacity: float) -> int:
    """Return how many calls a server computes at once: so many lone callers keep it busy.

    What it does before and after it computes makes that a little more than it is. Calls that share
    a core count as one: they bring no more than one after another.
    """
    return max(1, int(capacity * lone_seconds + _NEARLY))


def probed(generators: Generators, advance: Advance) -> int:
    """Return about how many calls are computed at once."""
    advance("a first look", 0)
    lone = generators.measure(LoadStep(_PROBE_SECONDS, callers=1), advance)
    best, callers = lone.throughput, 1
    while callers < _MOST_CALLERS:
        callers *= 2
        more = generators.measure(LoadStep(_PROBE_SECONDS, callers=callers), advance)
        if more.throughput < _GAIN * best:
            best = max(best, more.throughput)
            break
        best = more.throughput
    if not (lone.latency_ms and best):
        raise VerificationError("plan-no-answer", failures=failures(lone.statuses))
    return slots_of(lone.latency_ms["mean"] / 1e3, best)
