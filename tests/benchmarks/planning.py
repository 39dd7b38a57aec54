"""What `deploykit plan` foresees of p99 beside what long loads on the same server bring.

Each server is measured as `plan` does it; between its rounds loads come at random, at shares of
what it can answer, until at least a hundred calls are beyond p99. With one worker the server has a
core for itself and the generator the other one; with two, all share both.
"""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from deploykit.calling.server_load import Generators, Load
from deploykit.planning.checking_plan import bar_for
from deploykit.planning.forecast import Forecast
from deploykit.planning.measuring import (
    ROUNDS,
    Measured,
    measured_of,
    measured_round,
    probed,
    traced,
)
from deploykit.planning.service_times import Trace
from deploykit.serving.client.connection import Connection
from deploykit.serving.client.endpoint import Endpoint
from deploykit.serving.client.load_generator import LoadStep
from deploykit.transforms.core.errors import VerificationError
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.served import Server, request, sample
from tests.benchmarks.serving import IMAGE, ROW, SMALL, lite0, mlp, small_conv_net

MODELS = {"tiny": ROW, "conv": SMALL, "lite0": IMAGE}
INPUTS = {"tiny": "x", "conv": "input_layer", "lite0": "images"}
LOADS = {"tiny": (0.5, 0.65, 0.8, 0.9), "conv": (0.5, 0.65, 0.8, 0.9), "lite0": (0.5, 0.8)}
WORKERS = 1, 2
PARTS = tuple(f"{model}-{workers}" for model in MODELS for workers in WORKERS)
CALLS = 10_000
MOST = 0.8
SECONDS = 5.0  # of each load that a plan measures


def figures(part: str = "") -> list[Figure]:
    """Measure all, or one model on a server with so many workers."""
    found = []
    for each in [part] if part else PARTS:
        model, _, workers = each.partition("-")
        with tempfile.TemporaryDirectory() as folder:
            found += _measured(Path(folder), model, int(workers))
    return found


def _measured(base: Path, model: str, workers: int) -> list[Figure]:
    graph = {"tiny": lambda: mlp("tiny", 64), "conv": small_conv_net, "lite0": lite0}[model]()
    run(deploykit("export", str(graph), str(base), "--name", model))
    with _served(base, model, workers) as server:
        sent = request(model, INPUTS[model], sample(MODELS[model])).SerializeToString()
        endpoint = Endpoint(server.address, Connection(retries=0))
        name = f"{model}, {workers} worker{'s' * (workers > 1)}"
        try:
            measured, seen = _in_turn(endpoint, sent, LOADS[model], name)
        except VerificationError as error:
            _tell(f"{name}: refused: {error}")
            return []
        forecast = Forecast(measured)
        figures = [_beside(forecast, seen[load], load, name) for load in LOADS[model]]
        return [each for each in figures if each is not None]


def _in_turn(
    endpoint: Endpoint, sent: bytes, loads: Sequence[float], name: str
) -> tuple[Measured, dict[float, list[Trace]]]:
    """Measure as a plan does, and between its rounds what is to be foreseen: machines drift."""
    rounds: list[list[tuple[Load, Trace]]] = []
    seen: dict[float, list[Trace]] = {load: [] for load in loads}
    with Generators(endpoint, [sent], 1) as ours, Generators(endpoint, [sent], 1) as others:
        server = probed(ours, _quiet)
        for turn in range(ROUNDS):
            rounds.append(measured_round(ours, SECONDS, server, turn, _quiet))
            for number, (load, traces) in enumerate(seen.items()):
                rate = load * server[1]
                step = LoadStep(CALLS / ROUNDS / rate, rate=rate, seed=1000 + 10 * turn + number)
                what, trace = traced(others, step, _quiet)
                traces.append(trace)
                _tell(f"{name}, {turn}, {rate:.1f}/s: p99 {1e3 * trace.p99():.1f} {what.statuses}")
    return measured_of(rounds, name), seen


def _beside(forecast: Forecast, traces: Sequence[Trace], load: float, name: str) -> Figure | None:
    """Return both, or None where the load came out above what a plan foresees."""
    measured, rate = forecast.measured, traces[0].rate
    seen = 1e3 * float(np.percentile(np.concatenate([each.latencies for each in traces]), 99))
    foreseen = forecast.p99(rate)
    if foreseen is None:
        _tell(f"{name}: {rate:.1f}/s are too near to {measured.capacity:.1f}; p99 {seen:.2f}")
        return None
    same = [forecast.replayed(rate, each.calls[:, 0] - each.calls[0, 0]) for each in traces]
    ratios = [each.ms / (1e3 * trace.p99()) for each, trace in zip(same, traces, strict=True)]
    _tell(
        f"{name}, load {load:g}, {rate:.1f}/s of {measured.capacity:.1f}, slots {measured.slots}, "
        f"front end {1e3 * measured.front_end:.2f} ms, {sum(len(e.calls) for e in traces)} calls: "
        f"seen {seen:.2f}, foreseen {foreseen.ms:.2f} ({foreseen.low_ms:.2f} to "
        f"{foreseen.high_ms:.2f}) {foreseen.ms / seen:.2f}; for the same arrivals "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    bar = bar_for(measured.lone_ms[0]) if load <= MOST else None
    shown = f"{name}, {100 * load:.0f} % load: p99 foreseen beside seen"
    return Figure(shown, "ms", [foreseen.ms], [seen], at_most_ratio=bar)


@contextlib.contextmanager
def _served(base: Path, model: str, workers: int) -> Iterator[Server]:
    """Serve a model, on a core of its own where there is one worker."""
    cores = os.sched_getaffinity(0)
    first, *rest = sorted(cores)
    if workers == 1:
        os.sched_setaffinity(0, {first})
    try:
        server = Server(base, f"--workers={workers}")
        os.sched_setaffinity(0, set(rest) if workers == 1 else cores)
        server.ready(model)
        yield server
        server.close()
    finally:
        os.sched_setaffinity(0, cores)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _quiet(line: str, count: int) -> None:
    pass
