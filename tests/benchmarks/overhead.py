"""What measuring adds: `deploykit benchmark`'s loop beside a bare loop, on a net of about 1 ms.

Both run in one process and in turn: two processes of one model differ by more than is asked here.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.runner import Runner
from deploykit.benchmarking.settings import Settings
from deploykit.transforms.core.running.child import Worker
from tests.benchmarks.figures import Figure
from tests.benchmarks.nets import MODELS

ROUNDS, SECONDS = 30, 0.4
RATIO = 1.03


class WithBareLoop(Runner):
    """A runner that can also do what anyone would write first."""

    def bare(self, seconds: float) -> list[float]:
        """Call the session for so long; return the seconds of each call."""
        call = self.session.make_callable(self.fetches, self.fed)
        (images,) = self.batches[0]
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            call(images)
            times.append(time.perf_counter() - start)
        return times


def figures() -> list[Figure]:
    """Take p50 of both, round by round."""
    graph = api.optimize(api.freeze(MODELS / "fashion" / "fashion.keras"))
    images = np.random.default_rng(0).uniform(0, 1, (1, 28, 28, 1)).astype(np.float32)
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fashion.pb")
        api.save_graph(graph, path)
        job = Job(str(path), graph.inputs, graph.outputs, ((images,),), Settings())
        worker = Worker("tests.benchmarks.overhead:WithBareLoop", job)
        with contextlib.closing(worker):
            worker.ask("run", 2.0)
            for _ in range(ROUNDS):
                ours.append(float(np.median(worker.ask("run", SECONDS)[0])) / 1e6)
                bare.append(float(np.median(worker.ask("bare", SECONDS))) * 1e3)
    return [Figure("p50 on Fashion, beside a bare loop", "ms", ours, bare, at_most_ratio=RATIO)]
