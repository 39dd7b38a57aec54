"""A model in a session, made ready and run in a loop; it lives in a child process."""

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.benchmarking.settings import Settings
from deploykit.machine import environment
from transforms.core.errors import GraphError, LimitError
from transforms.core.protos import GraphDef
from transforms.core.session import full_name, sentence
from transforms.core.tensors import Array

_OPENMP = re.compile(r"/lib(?:iomp5|gomp|omp)[.-]")


@dataclass(frozen=True)
class Job:
    """What is run: a GraphDef file, what is fed and fetched, and arrays to feed, batch by batch."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batches: tuple[tuple[Array, ...], ...]
    settings: Settings


class Runner:
    """A session with one graph. Times are in nanoseconds.

    GraphError: TensorFlow does not accept the graph, or cannot run it.
    """

    def __init__(self, job: Job) -> None:
        """Load TensorFlow, then the graph, which is what `load` times."""
        import tensorflow as tf

        self.job = job
        self._failures = (ValueError, TypeError, tf.errors.OpError)
        self.bytes_before = _status("VmRSS")
        start = time.perf_counter_ns()
        self.graph = tf.Graph()
        try:
            with self.graph.as_default():
                graph_def = GraphDef.FromString(Path(job.model).read_bytes())
                tf.import_graph_def(graph_def, name="")
                del graph_def
            self.config = config(job.settings)
            self.session = tf.compat.v1.Session(graph=self.graph, config=self.config)
            self._call = self.session.make_callable(
                [full_name(name) for name in job.outputs], [full_name(n) for n in job.inputs]
            )
        except self._failures as error:
            raise GraphError(f"TensorFlow cannot load the graph: {sentence(error)}") from None
        self.load = time.perf_counter_ns() - start

    def facts(self) -> dict[str, Any]:
        """Return what is known of the process: versions, settings in force, memory in bytes."""
        import tensorflow as tf
        from tensorflow.python.util import _pywrap_util_port as port

        libraries = {
            line.split()[-1]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if _OPENMP.search(line)
        }
        threads = self.config
        return {
            "tensorflow": tf.__version__,
            "onednn": bool(port.IsMklEnabled()),
            "intra_op_threads": threads.intra_op_parallelism_threads,
            "inter_op_threads": threads.inter_op_parallelism_threads,
            "openmp": sorted(Path(library).name for library in libraries),
            "cpus": sorted(os.sched_getaffinity(0)),
            "environment": environment(),
            "load_ns": self.load,
            "bytes_before": self.bytes_before,
            "bytes_peak": _status("VmHWM"),
        }

    def go_on_with(self, job: Job) -> None:
        """Take other batches and another number of calls in flight, in the session as it is."""
        self.job = job

    def run(self, seconds: float, runs: int | None = None) -> tuple[list[int], int]:
        """Run for so long, or so often; return each call's time and the time of them all.

        With several calls in flight, each thread runs for so long, and `runs` counts all calls.
        """
        count = self.job.settings.concurrency
        each = None if runs is None else -(-runs // count)
        start = time.perf_counter_ns()
        try:
            if count == 1:
                found = _loop(self._call, self.job.batches, seconds, each)
            else:
                found = self._in_flight(count, seconds, each)
        except self._failures as error:
            raise GraphError(f"TensorFlow cannot run the graph: {sentence(error)}") from None
        return found, time.perf_counter_ns() - start

    def _in_flight(self, count: int, seconds: float, runs: int | None) -> list[int]:
        found: list[list[int]] = [[] for _ in range(count)]
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                found[number] = _loop(self._call, self.job.batches, seconds, runs)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [latency for each in found for latency in each]


def _loop(
    call: Callable[..., Any],
    batches: Sequence[tuple[Array, ...]],
    seconds: float,
    runs: int | None,
) -> list[int]:
    clock = time.perf_counter_ns
    latencies: list[int] = []
    end = clock() + int(seconds * 1e9)
    for feeds in itertools.cycle(batches):
        start = clock()
        call(*feeds)
        stop = clock()
        latencies.append(stop - start)
        if stop >= end or len(latencies) == runs:
            break
    return latencies


def config(settings: Settings) -> Any:
    """Return the ConfigProto of a session with these settings."""
    import tensorflow as tf
    from tensorflow.core.protobuf import rewriter_config_pb2

    result = tf.compat.v1.ConfigProto()
    if settings.threads is not None:
        result.intra_op_parallelism_threads, result.inter_op_parallelism_threads = settings.threads
    if settings.xla:
        result.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_2
    if settings.bf16:
        rewriter = result.graph_options.rewrite_options
        rewriter.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    return result


def _status(field: str) -> int:
    """Return a field of the process's status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise LimitError(f"the kernel does not tell {field}")
