"""Runner for a model that OpenVINO has compiled."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.engines.runner import Runner, status
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engine_session import compiled_for
from deploykit.transforms.engines.engines import OPENVINO, check_engine, version_of
from deploykit.transforms.engines.openvino_model import Compiling, imported
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import GraphDef

if TYPE_CHECKING:
    from deploykit.benchmarking.profiling.profile import Profile

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

    def profile(self, runs: int) -> "Profile":
        """Raise GraphError: OpenVINO's compiled graph has other ops than the model."""
        raise GraphError("profile-tensorflow-only")

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
