"""What measuring adds: p50 of `deploykit benchmark` beside a bare session loop, on small nets.

Both run in turn, each time in fresh processes, as two processes of one model differ by more than is
asked here.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.statistics import summary
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from tests.benchmarks.figures import Figure
from tests.benchmarks.judge import chain
from tests.benchmarks.nets import MODELS

ROUNDS, SECONDS = 8, 5.0
RATIO = 1.03


class WithBareLoop(TensorFlowRunner):
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
    fashion = api.optimize(api.freeze(MODELS / "fashion" / "fashion.keras"))
    found = []
    for name, graph in (("Fashion", fashion), ("a chain of 20 convolutions", chain(20))):
        (batch,) = BenchmarkInputs().batches(graph, 1)
        ours, bare = [], []
        for _ in range(ROUNDS):
            result = api.benchmark(graph, seconds=SECONDS)
            assert isinstance(result, BenchmarkResult)
            ours.append(summary(result.measurements[0]).p50)
            bare.append(alone(graph, batch))
        found.append(Figure(f"p50 on {name}, beside a bare loop", "ms", ours, bare,
                            at_most_ratio=RATIO))  # fmt: skip
    return found


def alone(graph: Graph, batch: tuple[Array, ...]) -> float:
    """Return the p50 of a bare loop, in a process of its own, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.pb")
        api.save_graph(graph, path)
        job = Job(str(path), graph.inputs, graph.outputs, (batch,), RunConfig())
        with contextlib.closing(Worker("tests.benchmarks.overhead:WithBareLoop", job)) as worker:
            worker.ask("run", 1.0)
            return float(np.median(worker.ask("bare", SECONDS))) * 1e3
