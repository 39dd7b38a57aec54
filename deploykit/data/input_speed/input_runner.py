"""Runs a model with one input style in a loop, in a child process.

It has three phases: `input` reads batches without the model, `compute` runs the model on one batch
in memory, and `both` runs the model on the batches that are read.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from deploykit.benchmarking.devices import config, devices_for, gpus
from deploykit.benchmarking.process_variables import check_preloaded
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.pipeline import Pipeline
from deploykit.data.queues import BATCHES, Queue
from deploykit.data.reading import batches, check_records, decoding_share, placeholders
from deploykit.data.tfdata import PREFETCHED, TfData, check_lines
from deploykit.data.user_pipeline import OWN, OwnDataset, OwnPipeline
from deploykit.system.cpu_usage import Look, OwnLook
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.session import full_name, runtime_failed

_LONGEST = 4  # maximum multiple of the requested time of a phase
PHASES = ("input", "compute", "both")
_SCOPE = "deploykit_input"  # avoids name conflicts with the graph
BUFFERED = {
    "feed": 1, "queue": BATCHES + 2, "tfdata": PREFETCHED + 8, "pipeline": PREFETCHED + 8,
}  # fmt: skip
"""The maximum number of batches that each style prefetches, including those in its threads."""


@dataclass(frozen=True)
class InputJob:
    """A model and the input style with which it runs."""

    style: str
    """One of feed, queue, tfdata, pipeline."""
    pipeline: Pipeline
    model: str | None = None
    """A GraphDef file; None: no model runs, and steps only wait."""
    fetches: tuple[str, ...] = ()
    """The tensors or ops to run, such as a training step."""
    init: tuple[str, ...] = ()
    """The ops to run once at the start."""
    wait_ms: float | None = None
    """The milliseconds that a step sleeps instead of running the model."""
    settings: RunConfig = field(default_factory=RunConfig)
    own: OwnPipeline | None = None
    """The user's function, for the style `pipeline`."""


@dataclass(frozen=True)
class Stretch:
    """The measurements over a number of consecutive steps."""

    items: int
    steps: int
    seconds: float
    cpu_seconds: float
    """The CPU time of the processes of this run."""
    waited_seconds: float | None = None
    """The seconds that threads of this run waited for a core, summed over threads."""
    read_bytes: int | None = None
    """The bytes read from storage, not from the page cache."""
    asked_bytes: int | None = None
    """The bytes read from files, in memory or in storage."""
    busy: float | None = None
    """The cores in use on the machine, by any process; None if unknown."""
    idle: float | None = None
    iowait: float | None = None
    """Idle cores while a process waited for a disk."""
    foreign: float | None = None
    """The cores used by other processes or by the host of a virtual machine."""

    @property
    def cores(self) -> float:
        """The cores used by the processes of this run."""
        return self.cpu_seconds / self.seconds

    @property
    def wanted(self) -> float | None:
        """Threads of this run that ran or were waiting for a core, in the mean; None if unknown."""
        if self.waited_seconds is None:
            return None
        return (self.cpu_seconds + self.waited_seconds) / self.seconds


def started(job: InputJob) -> Worker:
    """Start a child process with an InputRunner."""
    return Worker(f"{__name__}:InputRunner", job, forced=job.settings.environment)


class InputRunner:
    """Two sessions with a model: one with the input pipeline, and one that is fed a batch."""

    def __init__(self, job: InputJob) -> None:
        """Load TensorFlow, the model and the pipeline, and take the first batch.

        FileError, GraphError: the data is damaged or does not match, or TensorFlow rejects the
        graph.
        """
        import tensorflow as tf

        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
        check_preloaded(job.settings.env)
        self.job = job
        self._failures = (ValueError, TypeError, MemoryError, tf.errors.OpError)
        self._over = tf.errors.OutOfRangeError
        requested = job.settings.device
        (self._device, *_) = devices_for(requested, gpus() if requested != "cpu" else ())
        self._names = list(job.pipeline.steps)
        try:
            self._own = None if job.own is None else OwnDataset(job.own)
            self._style = self._behind_input() if job.style != "feed" else None
            self._compute = self._fed_session()
            self._batches = batches(job.pipeline) if self._style is None else None
            self._ready = self._first()
        except self._failures as error:
            self._explain(error)
        except StopIteration:
            if job.own is not None:
                raise GraphError("pipeline-empty", source=f"pipeline {job.own.name}") from None
            data, batch = job.pipeline.data, job.pipeline.batch
            raise GraphError("no-whole-batch", source=data.path, batch=batch) from None

    def _behind_input(self) -> "Queue | TfData":
        """Open a session in which the model reads from the input style.

        TensorFlow still only knows the shapes that the placeholders declare.
        """
        import tensorflow as tf

        pipeline = self.job.pipeline
        if self._own is None:
            check_lines(pipeline.data, ", or give --input feed")
        graph = tf.Graph()
        with graph.as_default():
            with tf.name_scope(_SCOPE):
                style: Queue | TfData = (
                    Queue(pipeline)
                    if self.job.style == "queue"
                    else TfData(pipeline, self._device, self._own)
                )
                count = tf.shape(style.tensors[self._names[0]])[0]
                arrived = tf.group(*(style.tensors[name] for name in self._names))
            computed: Any = arrived
            inits: Any = []
            graph_def = self._graph_def()
            if graph_def is not None:
                shapes = {
                    f"{node.name}:0": tf.TensorShape(node.attr["shape"].shape)
                    for node in graph_def.node
                    if node.op in ("Placeholder", "PlaceholderWithDefault")
                }
                with tf.name_scope(_SCOPE), tf.device(self._device):
                    used = {
                        full_name(name): tf.compat.v1.placeholder_with_default(
                            tensor, shapes.get(full_name(name), tensor.shape)
                        )
                        for name, tensor in style.tensors.items()
                    }
                computed, inits = self._imported(graph_def, used)
        self.session = self._opened(graph, inits)
        self._take = self.session.make_callable([count, arrived])
        self._both = self.session.make_callable([count, computed])
        style.start(self.session)
        return style

    def _fed_session(self) -> Callable[..., Any]:
        """Return a function that runs the model on a fed batch, in a separate session.

        If the pipeline were in the same graph, Grappler might still run it.
        """
        import tensorflow as tf

        graph, graph_def = tf.Graph(), self._graph_def()
        inits: Any = []
        with graph.as_default():
            if graph_def is None:
                tensors = placeholders(self.job.pipeline)
                fed, computed = list(tensors.values()), tf.group(*tensors.values())
            else:
                computed, inits = self._imported(graph_def, {})
                fed = [graph.get_tensor_by_name(full_name(name)) for name in self._names]
        session = self._opened(graph, inits)
        if self.job.style == "feed":
            self.session = session
        function: Callable[..., Any] = session.make_callable(computed, fed)
        return function

    def _graph_def(self) -> Any:
        """Return the model, or None if steps only wait."""
        if self.job.model is None or self.job.wait_ms is not None:
            return None
        return GraphDef.FromString(Path(self.job.model).read_bytes())

    def _imported(self, graph_def: Any, used: dict[str, Any]) -> tuple[Any, Any]:
        """Import the model; return the fetches and the initial ops."""
        import tensorflow as tf

        with tf.device(self._device):
            tf.import_graph_def(graph_def, used, name="")
        return [_element(fetch) for fetch in self.job.fetches], [_element(n) for n in self.job.init]

    def _opened(self, graph: Any, inits: list[Any]) -> Any:
        import tensorflow as tf

        settings = config(self.job.settings, (self._device,))
        session = tf.compat.v1.Session(graph=graph, config=settings)
        if inits:
            session.run(inits)
        return session

    def _first(self) -> list[Array]:
        """Return the first batch; later reads continue the epoch."""
        if self._batches is not None:
            batch: Mapping[str, Array] = next(self._batches)
        elif isinstance(self._style, Queue):
            batch = self._style.take(self.session)
        else:
            assert self._style is not None
            try:
                batch = self.session.run(self._style.tensors)
            except self._over:
                raise StopIteration from None
        return [batch[name] for name in self._names]

    def run(self, phase: str, seconds: float, steps: int | None = None, least: int = 0) -> Stretch:
        """Run a phase for the given seconds or steps, or until the epochs end.

        If it has run fewer than `least` steps by then, it continues for up to four times as long.

        FileError, GraphError: the data is damaged, or the model cannot run.
        """
        step = self._step(phase)
        items = done = 0
        own, machine = OwnLook.now(), Look.now()
        start = time.perf_counter()
        end, latest = start + seconds, start + _LONGEST * seconds
        try:
            while done != steps and time.perf_counter() < (end if done >= least else latest):
                items += step()
                done += 1
        except StopIteration:
            pass
        except self._over:
            self.stop()  # raises the error of a failed queue runner
        except self._failures as error:
            self._explain(error)
        used = time.perf_counter() - start
        activity = Look.now().since(machine)
        use = OwnLook.now().since(own)
        stretch = Stretch(items, done, used, **vars(use))
        if not (activity.busy or activity.idle or activity.iowait):
            return stretch
        foreign = activity.foreign(use.cpu_seconds / activity.seconds)
        return replace(
            stretch, busy=activity.busy, idle=activity.idle, iowait=activity.iowait, foreign=foreign
        )

    def decoding(self) -> float | None:
        """Return the share of the CPU time of reading that decoding images takes, or None."""
        known = self.job.pipeline.data.kind != OWN
        return decoding_share(self.job.pipeline) if known else None

    def stop(self) -> None:
        """Stop the threads of the input style, and raise their error if they failed."""
        if self._style is None:
            return
        try:
            self._style.stop()
        except self._failures as error:
            self._explain(error)

    def _step(self, phase: str) -> Callable[[], int]:
        """Return a function that runs one step of a phase and returns the number of records."""
        wait = 0.0 if self.job.wait_ms is None else self.job.wait_ms / 1000

        def computed(batch: list[Array]) -> int:
            self._compute(*batch)
            time.sleep(wait)
            return len(batch[0])

        def pulled() -> int:
            count = int(self._both()[0])
            time.sleep(wait)
            return count

        def waited() -> int:
            time.sleep(wait)
            return len(self._ready[0])

        if phase == "compute":
            simulated = self.job.wait_ms is not None and self.job.style != "feed"
            return waited if simulated else lambda: computed(self._ready)
        if self._batches is None:
            return pulled if phase == "both" else lambda: int(self._take()[0])
        waiting = ([batch[name] for name in self._names] for batch in self._batches)
        if phase == "both":
            return lambda: computed(next(waiting))
        return lambda: len(next(waiting)[0])

    def _explain(self, error: Any) -> NoReturn:
        """Raise an error that names the file and record with invalid data, else TensorFlow's error.

        TensorFlow's ops do not report file and line, so Python reads the records again.
        """
        if self.job.own is not None:
            raise runtime_failed(error, "run this", source=f"pipeline {self.job.own.name}")
        if self.job.style != "feed":  # in which Python has read them already
            check_records(self.job.pipeline)
        raise runtime_failed(error, "run this", source=self.job.style)


def _element(name: str) -> Any:
    """Return a tensor of the current graph, or the op if it has no output."""
    import tensorflow as tf

    result = tf.compat.v1.get_default_graph().as_graph_element(name)
    return result.outputs[0] if getattr(result, "outputs", ()) else result
