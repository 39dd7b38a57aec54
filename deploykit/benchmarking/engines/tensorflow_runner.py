"""Runner for a model in a TensorFlow session."""

import contextlib
import functools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.benchmarking.devices import (
    CPU,
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
from deploykit.benchmarking.profiling.execution import Layers
from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.profiling.traced_calls import profile
from deploykit.benchmarking.run_config import FEED, RESIDENT, check_computed, float32_of, in_words
from deploykit.transforms.common.errors import unknown_name
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import full_name, runtime_failed
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

_SCOPE = "deploykit_input"  # avoids clashes with the graph's names
Batches = Sequence[tuple[Array, ...]]


@dataclass(frozen=True)
class GraphReplica:
    """A replica of the graph on one device, with its input and output tensors."""

    device: str
    inputs: list[Any]
    outputs: list[Any]


@dataclass(frozen=True)
class Supply:
    """Input pipelines: the input tensors of each device, and their initializers and feeds."""

    elements: list[tuple[Any, ...]]
    initializers: list[Any]
    feeds: Mapping[Any, Array]


def import_replicas(
    graph_def: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    devices: Sequence[str],
    supply: Supply | None = None,
) -> list[GraphReplica]:
    """Import a GraphDef into the current graph once per device, including its constants.

    A node with an explicit device keeps it. With a supply, its elements are the inputs. A single
    replica keeps the node names; several are in scopes `tower_N`. ValueError, OpError: TensorFlow
    does not accept the graph.
    """
    parts = start_tensorflow()
    names = [full_name(name) for name in (*inputs, *outputs)]
    results = []
    for number, device in enumerate(devices):
        fed = {} if supply is None else dict(zip(names, supply.elements[number], strict=False))
        with parts.ops.device_v2(device):
            tensors = parts.importer.import_graph_def(
                graph_def,
                input_map=fed,
                return_elements=names,
                name=f"tower_{number}" if len(devices) > 1 else "",
            )
        results.append(GraphReplica(device, tensors[: len(inputs)], tensors[len(inputs) :]))
    return results


def dataset_of(
    graph_def: Any, inputs: Sequence[str], batches: Batches, devices: Sequence[str]
) -> Supply:
    """Return a tf.data pipeline that repeats the batches and distributes them over the devices.

    The arrays are fed once, to the initializers; as constants they would be part of the graph.
    Elements have the shapes that the graph's placeholders declare, so TensorFlow knows no more than
    with feeds.
    """
    import tensorflow as tf

    elements, initializers = [], []
    with tf.name_scope(_SCOPE), tf.device(CPU):
        feeds, stacks = {}, []
        several = [np.stack(arrays) for arrays in zip(*batches, strict=True)]
        declared = _declared(graph_def, inputs, batches[0])
        for stack, (type_, shape) in zip(several, declared, strict=True):
            stacks.append(tf.compat.v1.placeholder(type_, (None, *shape)))
            feeds[stacks[-1]] = stack
        dataset = tf.data.Dataset.from_tensor_slices(tuple(stacks)).repeat()
        holds_text = any(stack.dtype == tf.string for stack in stacks)  # GPUs have no strings
        for number, device in enumerate(devices):
            target = CPU if holds_text else device
            share = dataset.shard(len(devices), number)
            if target == CPU:
                share = share.prefetch(tf.data.AUTOTUNE)
            else:
                share = share.apply(tf.data.experimental.prefetch_to_device(target))
            with tf.device(target):
                iterator = tf.compat.v1.data.make_initializable_iterator(share)
                elements.append(iterator.get_next())
            initializers.append(iterator.initializer)
    return Supply(elements, initializers, feeds)


def resident(
    graph_def: Any, inputs: Sequence[str], batches: Batches, devices: Sequence[str]
) -> Supply:
    """Return variables that contain one batch per device; they are fed once.

    They have the shapes that the graph's placeholders declare. Strings stay on the CPU.
    """
    import tensorflow as tf

    elements: list[tuple[Any, ...]] = []
    initializers, feeds = [], {}
    with tf.name_scope(_SCOPE):
        for number, device in enumerate(devices):
            batch, held = batches[number % len(batches)], []
            declared = _declared(graph_def, inputs, batch)
            for array, (type_, shape) in zip(batch, declared, strict=True):
                with tf.device(CPU):
                    given = tf.compat.v1.placeholder(type_, array.shape)
                with tf.device(CPU if type_ == tf.string else device):
                    variable = tf.Variable(given, trainable=False, shape=tf.TensorShape(shape))
                    held.append(variable.read_value())
                feeds[given] = array
                initializers.append(variable.initializer)
            elements.append(tuple(held))
    return Supply(elements, initializers, feeds)


def fed_together(batches: Batches, count: int) -> list[tuple[Array, ...]]:
    """Return the arrays of each call, where each of `count` replicas gets the next batch."""
    return [
        sum((tuple(batches[(call * count + n) % len(batches)]) for n in range(count)), ())
        for call in range(len(batches))
    ]


def _declared(
    graph_def: Any, inputs: Sequence[str], batch: tuple[Array, ...]
) -> list[tuple[Any, Sequence[int | None]]]:
    """Return the declared type and shape of each input, or else those of its array."""
    known = _placeholders(graph_def, inputs)
    results = []
    for tensor, array in zip(inputs, batch, strict=True):
        type_, shape = known.get(tensor, (array.dtype, None))
        if shape is None or len(shape) != array.ndim:
            shape = array.shape
        results.append((type_, shape))
    return results


def _placeholders(graph_def: Any, inputs: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return type and shape of the inputs that are placeholders; shape None: unknown rank."""
    import tensorflow as tf

    expected = {full_name(tensor): tensor for tensor in inputs}
    results = {}
    for node in graph_def.node:
        tensor = expected.get(f"{node.name}:0")
        if tensor is not None and node.op in ("Placeholder", "PlaceholderWithDefault"):
            shape = tf.TensorShape(node.attr["shape"].shape)
            type_ = tf.as_dtype(node.attr["dtype"].type)
            results[tensor] = (type_, None if shape.rank is None else tuple(shape.as_list()))
    return results


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

    def _layers(self) -> Layers:
        """Return the executed layers if TensorFlow chooses their types or devices."""
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

    def profile(self, runs: int) -> Profile:
        """Profile the given number of traced calls in a separate pass."""
        return profile(self.run_once, self.job, runs)
