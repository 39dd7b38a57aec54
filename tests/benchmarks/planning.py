"""What `deploykit plan` foresees of p99 beside what long loads on the same server bring.

Each server is measured as `plan` does it; between its rounds loads come at random, at shares of
what it can answer, until at least a hundred calls are beyond p99. Both come in many short turns: a
call costs half as much CPU time again in one minute as in the next on a host that is shared, and so
it does for both. A server that computes one call at a time has a core for itself and the generator
the other one; with two, all share both.
"""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from deploykit.client.server_load import Generators, Load
from deploykit.planning.from_results import bar_for
from deploykit.planning.measuring import (
    Measured,
    measured_of,
    measured_round,
    probed,
    summed_up,
    traced,
)
from deploykit.planning.service_times import Trace
from deploykit.planning.sizing import answered
from deploykit.serving.client.endpoint import Connection, Endpoint
from deploykit.serving.client.load_generator import LoadStep
from deploykit.transforms.common.errors import VerificationError
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.served import Server, request, sample
from tests.benchmarks.serving import IMAGE, ROW, SMALL, lite0, mlp, small_conv_net

MODELS = {"tiny": ROW, "conv": SMALL, "lite0": IMAGE}
INPUTS = {"tiny": "x", "conv": "input_layer", "lite0": "images"}
LOADS = {"tiny": (0.5, 0.65, 0.8, 0.9), "conv": (0.5, 0.65, 0.8, 0.9), "lite0": (0.5, 0.65, 0.8)}
SLOTS = 1, 2
PARTS = tuple(f"{model}-{slots}" for model in MODELS for slots in SLOTS)
CALLS = 10_000
MOST = 0.8
TURNS = {"tiny": 20, "conv": 20, "lite0": 12}
SECONDS = {"tiny": 1.5, "conv": 1.5, "lite0": 4.0}
"""Of each load that a plan measures, in a turn."""
LOOKS = 5
Round = Sequence[tuple[Load, Trace]]


def figures(part: str = "") -> list[Figure]:
    """Measure all, or one model on a server that computes so many calls at a time."""
    found = []
    for each in [part] if part else PARTS:
        model, _, slots = each.partition("-")
        with tempfile.TemporaryDirectory() as folder:
            found += _measured(Path(folder), model, int(slots))
    return found


def _measured(base: Path, model: str, slots: int) -> list[Figure]:
    graph = {"tiny": lambda: mlp("tiny", 64), "conv": small_conv_net, "lite0": lite0}[model]()
    run(deploykit("export", str(graph), str(base), "--name", model))
    with _served(base, model, slots) as server:
        sent = request(model, INPUTS[model], sample(MODELS[model])).SerializeToString()
        endpoint = Endpoint(server.address, Connection(retries=0))
        name = f"{model}, {slots} at a time"
        try:
            rounds, seen, capacity = _in_turn(endpoint, sent, model, name)
            known = _pooled(rounds, capacity, name)
        except VerificationError as error:
            _tell(f"{name}: refused: {error}")
            return []
    if known.limit:
        _tell(f"{name}: {known.limit}, so it is given {known.most_load:g} of its calls/s at most")
    held = {load: each for load, each in seen.items() if load <= known.most_load}
    return [_beside(known, each, load, name) for load, each in held.items()]


def _in_turn(
    endpoint: Endpoint, sent: bytes, model: str, name: str
) -> tuple[list[Round], dict[float, list[Trace]], float]:
    """Measure as a plan does, and what is to be foreseen, in short turns of both."""
    rounds: list[Round] = []
    seen: dict[float, list[Trace]] = {load: [] for load in LOADS[model]}
    turns = TURNS[model]
    with Generators(endpoint, [sent], 1) as ours, Generators(endpoint, [sent], 1) as others:
        slots = probed(ours, _quiet)
        looks = [traced(ours, LoadStep(2.0, callers=4 * slots), _quiet) for _ in range(LOOKS)]
        capacity = statistics.median(load.throughput for load, _ in looks)
        for turn in range(turns):
            rounds.append(measured_round(ours, SECONDS[model], slots, turn, _quiet, capacity))
            for number, (load, traces) in enumerate(seen.items()):
                rate = load * capacity
                seed = 1000 + len(seen) * turn + number
                step = LoadStep(CALLS / turns / rate, rate=rate, seed=seed)
                what, trace = traced(others, step, _quiet)
                traces.append(trace)
                _tell(f"{name}, {turn}, {rate:.1f}/s: p99 {1e3 * trace.p99():.1f} {what.statuses}")
    return rounds, seen, capacity


def _pooled(rounds: Sequence[Round], capacity: float, name: str) -> Measured:
    """Return what all turns tell together, as one round: each has a part of what the host did."""
    told = measured_of(rounds, name)
    lone = [each[0][1] for each in rounds]
    most = told.most_load * capacity
    traces = [trace for each in rounds for load, trace in each[1:] if load.rate <= most]
    known = summed_up(told.order, lone, [traces], [capacity], name)
    return replace(known, most_load=told.most_load, limit=told.limit)


def _beside(known: Measured, traces: Sequence[Trace], load: float, name: str) -> Figure:
    """Return p99 as foreseen for the very arrivals of a load, beside what it was."""
    rate, (times,) = traces[0].rate, known.rounds
    replayed = [
        answered(times, rate, trace.calls[:, 0] - trace.calls[0, 0], number)
        for number, trace in enumerate(traces)
    ]
    p99s = [
        1e3 * float(np.percentile(np.concatenate(each), 99))
        for each in (replayed, [trace.latencies for trace in traces])
    ]
    foreseen, seen = p99s
    _tell(
        f"{name}, load {load:g}, {rate:.1f}/s of {known.capacity:.1f}, {known.order}, front end "
        f"{1e3 * known.front_end:.2f} ms, {sum(map(len, replayed))} calls: p99 {seen:.2f} ms, "
        f"foreseen {foreseen:.2f} ms, {foreseen / seen:.2f}"
    )
    bar = bar_for(known.unloaded_ms[0]) if load <= MOST else None
    off = max(foreseen / seen, seen / foreseen)
    return Figure(f"{name}, {100 * load:.0f} % load: p99 is off by", "x", [off], at_most=bar)


@contextlib.contextmanager
def _served(base: Path, model: str, slots: int) -> Iterator[Server]:
    """Serve a model, on a core of its own where it computes one call at a time."""
    cores = os.sched_getaffinity(0)
    first, *rest = sorted(cores)
    if slots == 1:
        os.sched_setaffinity(0, {first})
    try:
        server = Server(base, f"--slots={slots}")
        os.sched_setaffinity(0, set(rest) if slots == 1 else cores)
        server.ready(model)
        yield server
        server.close()
    finally:
        os.sched_setaffinity(0, cores)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _quiet(line: str, count: int) -> None:
    pass
