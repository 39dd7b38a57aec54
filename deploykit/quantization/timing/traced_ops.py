"""How long each node of a graph takes in traced calls; it lives in a child process."""

from collections import Counter

from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.profiling.execution import ExecutedGraph

WARM_UP_CALLS = 3


class Tracer:
    """A graph in a session, as it is measured elsewhere: Grappler is on and may fuse nodes.

    GraphError: as TensorFlowRunner.
    """

    def __init__(self, job: Job) -> None:
        """Load the graph, and run it until its memory is there."""
        import tensorflow as tf

        self._runner = TensorFlowRunner(job)
        options = tf.compat.v1.RunOptions
        self._options = options(trace_level=options.FULL_TRACE)
        self.trace(WARM_UP_CALLS)

    def ready(self) -> None:
        """Do nothing: whoever asks waits until the graph is loaded."""

    def trace(self, calls: int) -> list[dict[str, int]]:
        """Return the nanoseconds of each node that ran, call by call."""
        found = []
        for _ in range(calls):
            self._runner.run_once()  # caches and threads are as between two calls of a user
            _, metadata = self._runner.run_once(self._options)
            times: Counter[str] = Counter()
            for event in ExecutedGraph(()).events(metadata.step_stats):
                times[event.node] += event.end - event.start
            found.append(dict(times))
        return found

    def onednn(self) -> bool:
        """Say whether TensorFlow runs plain ops on oneDNN here."""
        return bool(self._runner.facts()["onednn"])
