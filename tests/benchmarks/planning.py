"""What `deploykit plan` foresees of p99 beside what long loads on the same server bring.

Each server is measured as `plan` does it; then loads come at random, at shares of what it can
answer, until at least a hundred calls are beyond p99. With one worker the server has a core for
itself and the generator the other one; with two, all share both.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deploykit.calling.server_load import Generators
from deploykit.planning.checking_plan import bar_for
from deploykit.planning.forecast import Forecast
from deploykit.planning.measuring import Measured, measure_server
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
        with Generators(endpoint, [sent], 1) as generators:
            try:
                measured = measure_server(generators, SECONDS, name, _tell)
            except VerificationError as error:
                _tell(f"{name}: refused: {error}", 0)
                return []
        return [_beside(endpoint, sent, measured, load, name) for load in LOADS[model]]


def _beside(endpoint: Endpoint, sent: bytes, measured: Measured, load: float, name: str) -> Figure:
    forecast, rate = Forecast(measured), load * measured.capacity
    with Generators(endpoint, [sent], 1) as generators:
        step = LoadStep(CALLS / rate, rate=rate, seed=round(1000 * load))
        what, calls = generators.trace(step, lambda line, count: None)
    seen = 1e3 * Trace(rate, calls).p99()
    foreseen = forecast.p99(rate)
    same = forecast.replayed(rate, calls[:, 0] - calls[0, 0])
    assert foreseen is not None
    _tell(
        f"{name}, load {load:g}, {rate:.1f}/s of {measured.capacity:.1f}, slots {measured.slots}, "
        f"front end {1e3 * measured.front_end:.2f} ms, {what.statuses}, late "
        f"{what.sent_late}: seen {seen:.2f}, foreseen {foreseen.ms:.2f} ({foreseen.low_ms:.2f} to "
        f"{foreseen.high_ms:.2f}) {foreseen.ms / seen:.2f}, for the same arrivals {same.ms:.2f} "
        f"({same.low_ms:.2f} to {same.high_ms:.2f}) {same.ms / seen:.2f}",
        0,
    )
    bar = bar_for(measured.lone_ms[0]) if load <= 0.8 else None
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


def _tell(line: str, count: int) -> None:
    print(line, file=sys.stderr, flush=True)
