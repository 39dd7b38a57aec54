"""A model behind one style of input, run in a loop; it lives in a child process.

It can run three things: `input`, batches that nobody computes with; `compute`, the model on one
batch that lies ready; `both`, the model on the batches as they come.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from deploykit.benchmarking.devices import config, devices_for, gpus
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.feed import batches, check_records, decoding_share, placeholders
from deploykit.data.pipeline import Pipeline
from deploykit.data.queues import BATCHES, Queue
from deploykit.data.tfdata import PREFETCHED, TfData
from deploykit.data.user_pipeline import OWN, OwnDataset, OwnPipeline
from deploykit.system.cpu_usage import Look
from deploykit.system.process_usage import OwnLook
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.session import full_name, runtime_failed

_LONGEST = 4  # times what a phase should take
PHASES = ("input", "compute", "both")
_SCOPE = "deploykit_input"  # keeps the names of the graph free
BUFFERED = {
    "feed": 1, "queue": BATCHES + 2, "tfdata": PREFETCHED + 8, "pipeline": PREFETCHED + 8,
}  # fmt: skip
"""Batches that may lie ready when nobody takes any: what is prefetched, and what threads hold."""


@dataclass(frozen=True)
class InputJob:
    """What is run behind which style of input."""

    style: str
    """feed, queue, tfdata or pipeline."""
    pipeline: Pipeline
    model: str | None = None
    """A GraphDef file; None: nothing computes, and steps only wait."""
    fetches: tuple[str, ...] = ()
    """Tensors, or ops such as a training step."""
    init: tuple[str, ...] = ()
    """Ops that are run once, before."""
    wait_ms: float | None = None
    """How long a step waits instead of computing, without a CPU."""
    settings: RunConfig = field(default_factory=RunConfig)
    helpers: tuple[int, ...] = ()
    """Processes that read for it, whose CPU time and bytes count as its own."""
    own: OwnPipeline | None = None
    """The user's function, where the style is `pipeline`."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of steps: how many records, how long, and what they and the machine did."""

    items: int
    steps: int
    seconds: float
    cpu_seconds: float
    """Of one's own processes."""
    waited_seconds: float | None = None
    """In which one's own threads could run, but had no core, all threads together."""
    read_bytes: int | None = None
    """From storage, not from memory."""
    asked_bytes: int | None = None
    """Of files, wherever they lay."""
    busy: float | None = None
    """Cores at work for any process of the machine; None: the kernel does not tell."""
    idle: float | None = None
    iowait: float | None = None
    """Cores without work while a process waited for a disk."""
    foreign: float | None = None
    """Cores that other processes took, or the host of a virtual machine."""

    @property
    def cores(self) -> float:
        """Cores in use by one's own processes."""
        return self.cpu_seconds / self.seconds

    @property
    def wanted(self) -> float | None:
        """Own threads that ran, or could have run had a core been free; None: nobody knows."""
        if self.waited_seconds is None:
            return None
        return (self.cpu_seconds + self.waited_seconds) / self.seconds


def started(job: InputJob) -> Worker:
    """Return a process of its own with an InputRunner."""
    return Worker(f"{__name__}:InputRunner", job, forced=job.settings.environment)


class InputRunner:
    """Sessions with a model: behind its input, and, to compute alone, fed with what lies ready."""

    def __init__(self, job: InputJob) -> None:
        """Load TensorFlow, the model and the pipeline, and take the first batch.

        FileError, GraphError: the data are damaged or do not fit, or TensorFlow refuses the graph.
        """
        import tensorflow as tf

        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
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
        """Open a session in which the model reads what the style gives.

        What a placeholder declares stays all that TensorFlow knows of a shape.
        """
        import tensorflow as tf

        pipeline = self.job.pipeline
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
        """Return what runs the model on a batch that is fed, in a session of its own.

        Were the batch fed over what the input gives, Grappler might still let that be computed.
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
        """Return the model, or None where a wait stands in its place."""
        if self.job.model is None or self.job.wait_ms is not None:
            return None
        return GraphDef.FromString(Path(self.job.model).read_bytes())

    def _imported(self, graph_def: Any, used: dict[str, Any]) -> tuple[Any, Any]:
        """Import the model; return what is fetched, and what is run once before."""
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
        """Return the first batch; the epoch goes on behind it."""
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
        """Run a phase for so long, or so many steps; less if the epochs are over.

        Where fewer than `least` steps were made in this time, it goes on for up to four times it.

        FileError, GraphError: what is read is damaged, or the model cannot be run.
        """
        step = self._step(phase)
        items = done = 0
        own, machine = OwnLook.now(self.job.helpers), Look.now()
        start = time.perf_counter()
        end, latest = start + seconds, start + _LONGEST * seconds
        try:
            while done != steps and time.perf_counter() < (end if done >= least else latest):
                items += step()
                done += 1
        except StopIteration:
            pass
        except self._over:
            self.stop()  # a queue also ends where one of its runners has failed
        except self._failures as error:
            self._explain(error)
        used = time.perf_counter() - start
        activity = Look.now().since(machine)
        use = OwnLook.now(self.job.helpers).since(own)
        stretch = Stretch(items, done, used, **vars(use))
        if not (activity.busy or activity.idle or activity.iowait):
            return stretch
        foreign = activity.foreign(use.cpu_seconds / activity.seconds)
        return replace(
            stretch, busy=activity.busy, idle=activity.idle, iowait=activity.iowait, foreign=foreign
        )

    def decoding(self) -> float | None:
        """Return the share of reading's CPU time that goes into decoding images, if there are."""
        known = self.job.pipeline.data.kind != OWN
        return decoding_share(self.job.pipeline) if known else None

    def stop(self) -> None:
        """End what reads ahead; raises what it failed with."""
        if self._style is None:
            return
        try:
            self._style.stop()
        except self._failures as error:
            self._explain(error)

    def _step(self, phase: str) -> Callable[[], int]:
        """Return what makes one step of a phase and says how many records it had."""
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
        """Raise what is wrong with the data, by file and record, or else what TensorFlow says.

        Ops of a graph tell neither file nor line, so the records are gone through in Python.
        """
        if self.job.own is not None:
            raise runtime_failed(error, "run this", source=f"pipeline {self.job.own.name}")
        if self.job.style != "feed":  # where Python has read them already
            check_records(self.job.pipeline)
        raise runtime_failed(error, "run this", source=self.job.style)


def _element(name: str) -> Any:
    """Return a tensor of the current graph, or the op where it has none."""
    import tensorflow as tf

    result = tf.compat.v1.get_default_graph().as_graph_element(name)
    return result.outputs[0] if getattr(result, "outputs", ()) else result
