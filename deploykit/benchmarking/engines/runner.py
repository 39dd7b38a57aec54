"""Models that an engine runs in a loop, in a child process: the benchmark loop, and OpenVINO."""

import contextlib
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.run_config import RunConfig
from deploykit.system.machine import environment, usable_cores
from deploykit.transforms.common.errors import GraphError, LimitError
from deploykit.transforms.engines.engine_session import compiled_for
from deploykit.transforms.engines.engines import OPENVINO, check_engine, version_of
from deploykit.transforms.engines.openvino_model import Compiling, OpenVinoModel, imported
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array


class Runner(ABC):
    """A model that an engine has loaded, and the benchmark loop. Times are in nanoseconds.

    Subclasses implement loading, one call of the model, and the engine's metadata.
    """

    job: Job
    batches: Sequence[tuple[Array, ...]]
    """Arrays of each call; calls cycle through the batches."""
    bytes_before: int
    """Memory before the model was loaded, in bytes."""
    load: int
    """Load time in nanoseconds."""
    _call: Callable[..., Any]
    """Runs the model with the arrays of a batch."""

    @abstractmethod
    def is_graph_of(self, job: Job) -> bool:
        """Return whether another session of this job may share the loaded graph."""

    @abstractmethod
    def go_on_with(self, job: Job) -> None:
        """Switch the session to the batches and concurrency of another job."""

    @abstractmethod
    def profile(self, runs: int) -> Profile:
        """Profile the given number of calls in a separate pass."""

    @abstractmethod
    def _engine_metadata(self) -> dict[str, Any]:
        """Return the engine's metadata: its version and effective settings."""

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        """Convert the engine's exceptions into deploykit's errors."""
        return contextlib.nullcontext()

    def facts(self) -> dict[str, Any]:
        """Return metadata of the process: versions, effective settings, memory in bytes."""
        feeds = zip(self.job.inputs, self.job.batches[0], strict=True)
        return {
            "inputs": {name: f"{array.dtype} {list(array.shape)}" for name, array in feeds},
            **self._engine_metadata(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "environment": environment(),
            "load_ns": self.load,
            "bytes_before": self.bytes_before,
            "bytes_peak": status("VmHWM"),
        }

    def run(self, seconds: float, runs: int | None = None) -> tuple[list[int], int]:
        """Run for `seconds` or `runs` calls; return each call's and the total nanoseconds.

        With concurrent calls, each thread runs for `seconds`; `runs` counts the calls of all
        threads.
        """
        count = self.job.settings.concurrency
        item = None if runs is None else -(-runs // count)
        start = time.perf_counter_ns()
        with self._explained():
            if count == 1:
                result = _loop(self._call, self.batches, seconds, item)
            else:
                result = self._in_flight(count, seconds, item)
        used = time.perf_counter_ns() - start
        return [latency for _, latency in result], used

    def outputs(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of one call, in the order of the job's outputs."""
        with self._explained():
            return list(self._call(*arrays))

    def _in_flight(self, count: int, seconds: float, runs: int | None) -> list[tuple[int, int]]:
        with ThreadPoolExecutor(count) as pool:
            loops = [
                pool.submit(_loop, self._call, self.batches, seconds, runs) for _ in range(count)
            ]
        return sorted(call for loop in loops for call in loop.result())


def _loop(
    call: Callable[..., Any],
    batches: Sequence[tuple[Array, ...]],
    seconds: float,
    runs: int | None,
) -> list[tuple[int, int]]:
    """Return the end and the duration of each call, in nanoseconds."""
    clock = time.perf_counter_ns
    calls: list[tuple[int, int]] = []
    end = clock() + int(seconds * 1e9)
    for feeds in itertools.cycle(batches):
        start = clock()
        call(*feeds)
        stop = clock()
        calls.append((stop, stop - start))
        if stop >= end or len(calls) == runs:
            break
    return calls


def status(field: str) -> int:
    """Return a field of /proc/self/status in bytes. LimitError: the kernel does not report it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise LimitError("kernel-reports-nothing", field=field)


CPU = "CPU"
BF16 = "bf16"


class OpenVinoRunner(Runner):
    """A graph that OpenVINO has compiled, with one stream for each concurrent call.

    GraphError: OpenVINO is not available, does not accept the graph, or cannot run it.
    """

    def __init__(self, job: Job) -> None:
        """Load OpenVINO, then compile the graph; `load` times only the compilation."""
        check_engine(OPENVINO)
        imported()
        self.job = job
        self.bytes_before = status("VmRSS")
        self._compile()

    def _compile(self) -> None:
        job, start = self.job, time.perf_counter_ns()
        self._compiling, self.batches = compiling(job.settings), job.batches
        inputs = [normal(name) for name in job.inputs]
        fed = dict(zip(inputs, job.batches[0], strict=True))
        graph_def = GraphDef.FromString(Path(job.model).read_bytes())
        model = compiled_for(graph_def, fed, job.outputs, self._compiling)
        if self._compiling.precision == BF16:
            check_bf16([item.precision for item in model.executed()])
        self._model, run = model, model.run
        self._call = lambda *arrays: run(dict(zip(inputs, arrays, strict=True)))
        self.load = time.perf_counter_ns() - start

    def is_graph_of(self, job: Job) -> bool:
        """Return False: each session compiles its own model, with weights near its threads."""
        return False

    def go_on_with(self, job: Job) -> None:
        """Switch to the batches and concurrency of another job, and compile again if needed."""
        kinds = [(array.dtype, array.ndim) for array in self.batches[0]]
        self.job = job
        if compiling(job.settings) != self._compiling or kinds != [
            (array.dtype, array.ndim) for array in job.batches[0]
        ]:
            self._compile()
        self.batches = job.batches

    def profile(self, runs: int) -> Profile:
        """Profile the given number of traced calls of a graph that is compiled for it."""
        from deploykit.benchmarking.profiling.compiled_calls import profile

        inputs = [normal(name) for name in self.job.inputs]
        fed = dict(zip(inputs, self.batches[0], strict=True))
        graph_def = GraphDef.FromString(Path(self.job.model).read_bytes())
        how = replace(self._compiling, profiles=True)

        def traced() -> OpenVinoModel:
            return compiled_for(graph_def, fed, self.job.outputs, how)

        def run(model: OpenVinoModel) -> int:
            start = time.perf_counter_ns()
            model.run(fed)
            return time.perf_counter_ns() - start

        return profile(run, self._model, traced, self.job, runs)

    def _engine_metadata(self) -> dict[str, Any]:
        return {
            OPENVINO: version_of(OPENVINO),
            "precision": self._compiling.precision,
            **self._model.facts,
            "towers": [CPU],
        }


def check_bf16(precisions: Sequence[str]) -> None:
    """Raise GraphError if no op runs in bf16, given the precisions of all ops."""
    if BF16 not in precisions:
        raise GraphError("precision-bf16-no-op", types=sorted({*precisions}))


def compiling(settings: RunConfig) -> Compiling:
    """Return the options to compile a graph with: one stream per concurrent call, up to the cores.

    OpenVINO divides its threads among its streams and runs the ops of a call sequentially. So each
    stream gets the threads of one op.
    """
    streams = min(settings.concurrency, usable_cores())
    inside = 0 if settings.threads is None else settings.threads[0]
    precision = BF16 if settings.precision == BF16 else "f32"
    return Compiling(min(inside * streams, usable_cores()), streams, precision)
