"""Runner for a model in a TensorFlow session."""

import contextlib
import functools
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.devices import (
    capabilities,
    check_on_gpu,
    config,
    devices_for,
    gpu_options,
    gpus,
    in_callers_thread,
)
from deploykit.benchmarking.engines.runner import Runner, status
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.replicas import (
    GraphReplica,
    Supply,
    dataset_of,
    fed_together,
    import_replicas,
    resident,
)
from deploykit.benchmarking.run_config import FEED, RESIDENT, check_computed, float32_of, in_words
from deploykit.system.allocators import check_in_force
from deploykit.transforms.common.errors import unknown_name
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.session import runtime_failed
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

if TYPE_CHECKING:
    from deploykit.benchmarking.profiling.execution import Layers
    from deploykit.benchmarking.profiling.profile import Profile

_OPENMP = re.compile(r"/lib(?:iomp5|gomp|omp)[.-]")


class TensorFlowRunner(Runner):
    """A session with one graph, or one replica per device.

    GraphError: TensorFlow does not accept the graph or cannot run it, or the requested device does
    not exist.
    """

    def __init__(self, job: Job, like: "TensorFlowRunner | None" = None) -> None:
        """Load TensorFlow, then the graph and its input pipeline; `load` times only the latter.

        A further session may share the graph of `like`; each session has its own variables.
        """
        parts = start_tensorflow()
        self._failures = (ValueError, TypeError, MemoryError, parts.errors.OpError)
        check_in_force(job.settings.allocator)
        self.job, requested = job, job.settings.device
        devices = job.devices or devices_for(requested, gpus() if requested != "cpu" else ())
        self.config = config(job.settings, devices)
        self.bytes_before = status("VmRSS")
        start = time.perf_counter_ns()
        self.replicas: list[GraphReplica]
        self.graph: Any = parts.ops.Graph() if like is None else like.graph
        with self._explained("load the graph"):
            self.session = parts.session.Session(graph=self.graph, config=self.config)
            self._check(devices)
            supply = None
            if like is None:
                supply, self.replicas = self._imported(devices)
            else:
                self.replicas = like.replicas
            self.fetches = [tensor for replica in self.replicas for tensor in replica.outputs]
            if job.settings.input == RESIDENT:  # no output leaves the device
                self.fetches = [*dict.fromkeys(tensor.op for tensor in self.fetches)]
            if supply is None:
                self.fed = [tensor for replica in self.replicas for tensor in replica.inputs]
                self.batches = fed_together(job.batches, len(self.replicas))
            else:
                self.fed, self.batches = [], [()]
                self.session.run(supply.initializers, dict(supply.feeds))
            ready = self.session.make_callable
            if job.settings.executor is not None:
                ready = functools.partial(in_callers_thread, self.session)
            self._call = ready(self.fetches, self.fed)
        self.load = time.perf_counter_ns() - start

    def _imported(self, devices: Sequence[str]) -> tuple[Supply | None, list[GraphReplica]]:
        """Build the graph, with an input pipeline unless calls feed the inputs."""
        job, supply = self.job, None
        supplied = {"tfdata": dataset_of, RESIDENT: resident}.get(job.settings.input)
        with self.graph.as_default():
            graph_def = GraphDef.FromString(Path(job.model).read_bytes())
            if job.inputs and supplied is not None:
                supply = supplied(graph_def, job.inputs, job.batches, devices)
            return supply, import_replicas(graph_def, job.inputs, job.outputs, devices, supply)

    def is_graph_of(self, job: Job) -> bool:
        """Return whether a job's session may share the graph; never one with an input pipeline."""
        mine, other = (
            (item.inputs, item.outputs, item.devices, item.settings.device, item.settings.engine)
            for item in (self.job, job)
        )
        is_same = self.job.model == job.model and mine == other
        return bool(self.fed) and job.settings.input == FEED and is_same

    def _check(self, devices: Sequence[str]) -> None:
        """Raise GraphError for a missing device: soft placement would silently use another one."""
        names = [device.name.partition("/device:")[2] for device in self.session.list_devices()]
        there = [f"/{name}" for name in names if not name.startswith("XLA_")]
        for device in devices:
            if device not in there:
                raise unknown_name("device of TensorFlow", device, sorted(there))

    def _engine_metadata(self) -> dict[str, Any]:
        """Return TensorFlow's version and effective settings."""
        parts = start_tensorflow()
        libraries = {
            line.split()[-1]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if _OPENMP.search(line)
        }
        threads, requested, layers = self.config, self.job.settings.precision, self._layers()
        check_computed(requested, layers.types, self._float32)
        check_on_gpu(self.job.settings.device, layers.on_cpu, layers.on_gpu)
        return {
            "tensorflow": parts.wrapper.__version__,
            "precision": in_words(requested, self._float32, layers.types),
            "layers_on_cpu": dict(layers.on_cpu),
            "onednn": bool(parts.features.IsMklEnabled()),
            "intra_op_threads": threads.intra_op_parallelism_threads,
            "inter_op_threads": threads.inter_op_parallelism_threads,
            "openmp": sorted(Path(library).name for library in libraries),
            "towers": [replica.device for replica in self.replicas],
            "soft_placement": threads.allow_soft_placement,
            "gpu_options": gpu_options(self.config),
        }

    @functools.cached_property
    def _float32(self) -> str:
        """Precision in which TensorFlow multiplies float32 matrices."""
        return float32_of(capabilities(self.config))

    def _layers(self) -> "Layers":
        """Return the executed layers if TensorFlow chooses their types or devices."""
        from deploykit.benchmarking.profiling.execution import Layers

        settings = self.job.settings
        if settings.precision not in ("fp16", "bf16") and settings.device == "cpu":
            return Layers({}, {}, 0)
        options = start_tensorflow().config.RunOptions(output_partition_graphs=True)
        return Layers.of(self.run_once(options)[1].partition_graphs)

    def go_on_with(self, job: Job) -> None:
        """Switch the session to the batches and concurrency of another job."""
        self.job = job
        self.batches = fed_together(job.batches, len(self.replicas))

    @contextlib.contextmanager
    def _explained(self, action: str = "run the graph") -> Iterator[None]:
        """Convert TensorFlow's exceptions into deploykit's errors."""
        try:
            yield
        except self._failures as error:
            raise runtime_failed(error, action) from None

    def run_once(self, options: Any = None) -> tuple[int, Any]:
        """Run the first batch with these RunOptions; return nanoseconds and RunMetadata."""
        feeds = dict(zip(self.fed, self.batches[0], strict=True))
        metadata = None if options is None else start_tensorflow().config.RunMetadata()
        start = time.perf_counter_ns()
        with self._explained():
            self.session.run(self.fetches, feeds, options=options, run_metadata=metadata)
        return time.perf_counter_ns() - start, metadata

    def profile(self, runs: int) -> "Profile":
        """Profile the given number of traced calls in a separate pass."""
        from deploykit.benchmarking.profiling.traced_calls import profile

        return profile(self.run_once, self.job, runs, self._float32)
