"""How long each node of graphs takes in traced calls; it lives in a child process."""

from collections import Counter
from collections.abc import Mapping

from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.profiling.execution import ExecutedGraph
from deploykit.transforms.core.running.tensorflow_start import start_tensorflow

WARM_UP_CALLS = 3


class Tracer:
    """Graphs in sessions, as they are measured elsewhere: Grappler is on and may fuse nodes.

    GraphError: as TensorFlowRunner.
    """

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        """Load the graphs, by name, and run each until its memory is there."""
        self._runners = {name: TensorFlowRunner(job) for name, job in jobs.items()}
        options = start_tensorflow().config.RunOptions
        self._options = options(trace_level=options.FULL_TRACE)
        for name in jobs:
            self.trace(name, WARM_UP_CALLS)

    def ready(self) -> None:
        """Do nothing: whoever asks waits until the graphs are loaded."""

    def trace(self, name: str, calls: int) -> list[dict[str, int]]:
        """Return the nanoseconds of each node of a graph that ran, call by call."""
        runner, found = self._runners[name], []
        for _ in range(calls):
            runner.run_once()  # caches and threads are as between two calls of a user
            _, metadata = runner.run_once(self._options)
            times: Counter[str] = Counter()
            for event in ExecutedGraph(()).events(metadata.step_stats):
                times[event.node] += event.end - event.start
            found.append(dict(times))
        return found

    def onednn(self, name: str) -> bool:
        """Say whether TensorFlow runs plain ops of a graph on oneDNN here."""
        return bool(self._runners[name].facts()["onednn"])
