"""A model behind one style of input, run in a loop; it lives in a child process.

It can run three things: `input`, batches that nobody computes with; `compute`, the model on one
batch that lies ready; `both`, the model on the batches as they come.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import devices_for, gpus
from deploykit.benchmarking.runner import config
from deploykit.benchmarking.settings import Settings
from deploykit.input.feed import Feed, check_records
from deploykit.input.pipeline import Pipeline
from deploykit.input.queues import BATCHES, Queue
from deploykit.input.tfdata import PREFETCHED, TfData
from transforms.core.child import Worker
from transforms.core.errors import GraphError
from transforms.core.protos import GraphDef
from transforms.core.session import full_name, sentence
from transforms.core.tensors import Array

PHASES = ("input", "compute", "both")
_SCOPE = "deploykit_input"  # keeps the names of the graph free
BUFFERED = {"feed": 1, "queue": BATCHES + 2, "tfdata": PREFETCHED + 8}
"""Batches that may lie ready when nobody takes any: what is prefetched, and what threads hold."""


@dataclass(frozen=True)
class InputJob:
    """What is run behind which style of input."""

    style: str
    """feed, queue or tfdata."""
    pipeline: Pipeline
    model: str | None = None
    """A GraphDef file; None: nothing computes, and steps only wait."""
    fetches: tuple[str, ...] = ()
    """Tensors, or ops such as a training step."""
    init: tuple[str, ...] = ()
    """Ops that are run once, before."""
    wait_ms: float | None = None
    """How long a step waits instead of computing, without a CPU."""
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Stretch:
    """A stretch of steps: how many records, how long, and how many seconds of CPU they took."""

    items: int
    steps: int
    seconds: float
    cpu_seconds: float


def started(job: InputJob) -> Worker:
    """Return a process of its own with an InputRunner."""
    return Worker(f"{__name__}:InputRunner", job, forced=job.settings.environment)


class InputRunner:
    """A session with a model and the input before it."""

    def __init__(self, job: InputJob) -> None:
        """Load TensorFlow, the model and the pipeline, and take the first batch.

        FileError, GraphError: the data are damaged or do not fit, or TensorFlow refuses the graph.
        """
        import tensorflow as tf

        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
        self.job = job
        self._failures = (ValueError, TypeError, tf.errors.OpError)
        self._over = tf.errors.OutOfRangeError
        asked = job.settings.device
        (device, *_) = devices_for(asked, gpus() if asked != "cpu" else ())
        self.graph = tf.Graph()
        try:
            with self.graph.as_default():
                names = list(job.pipeline.steps)
                with tf.name_scope(_SCOPE):
                    self._style = self._made(device)
                taken = {name: self._style.tensors[name] for name in names}
                with tf.device(device):
                    fetches, inits = self._wired(taken)
                with tf.name_scope(_SCOPE):
                    self._count = tf.shape(taken[names[0]])[0]
                    # Of an op that a group names itself, even what is fed would be computed.
                    arrived = tf.group(*map(tf.identity, taken.values()))
            self.session = tf.compat.v1.Session(
                graph=self.graph, config=config(job.settings, (device,))
            )
            if inits:
                self.session.run(inits)
            self._fed = [taken[name] for name in names]
            computed = arrived if job.wait_ms is not None else fetches
            self._compute = self.session.make_callable([self._count, computed], self._fed)
            self._take = self.session.make_callable([self._count, arrived])
            self._both = self.session.make_callable([self._count, computed])
            self._style.start(self.session)
            self._feeds = getattr(self._style, "batches", None)
            self._ready = self._first(names)
        except self._failures as error:
            self._explain(error)
        except StopIteration:
            raise GraphError(f"{job.pipeline.data.path}: the data hold no whole batch of "
                             f"{job.pipeline.batch}") from None  # fmt: skip

    def _made(self, device: str) -> Feed | Queue | TfData:
        pipeline = self.job.pipeline
        if self.job.style == "tfdata":
            return TfData(pipeline, device)
        return Queue(pipeline) if self.job.style == "queue" else Feed(pipeline)

    def _wired(self, taken: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Import the model behind the tensors; return what is fetched, and what is run before.

        What a placeholder declares stays all that TensorFlow knows of a shape.
        """
        import tensorflow as tf

        if self.job.model is None:
            return [], []
        graph_def = GraphDef.FromString(Path(self.job.model).read_bytes())
        shapes = {
            f"{node.name}:0": tf.TensorShape(node.attr["shape"].shape)
            for node in graph_def.node
            if node.op in ("Placeholder", "PlaceholderWithDefault")
        }
        for name, tensor in taken.items():
            shape = shapes.get(full_name(name), tensor.shape)
            with tf.name_scope(_SCOPE):
                taken[name] = tf.compat.v1.placeholder_with_default(tensor, shape)
        tf.import_graph_def(graph_def, {full_name(k): v for k, v in taken.items()}, name="")
        return [_element(each) for each in self.job.fetches], [_element(n) for n in self.job.init]

    def _first(self, names: list[str]) -> list[Array]:
        """Return the first batch; the epoch goes on behind it."""
        if self._feeds is not None:
            batch: Mapping[str, Array] = next(self._feeds)
        elif isinstance(self._style, Queue):
            batch = self._style.take(self.session)
        else:
            try:
                batch = self.session.run(self._style.tensors)
            except self._over:
                raise StopIteration from None
        return [batch[name] for name in names]

    def run(self, phase: str, seconds: float, steps: int | None = None) -> Stretch:
        """Run a phase for so long, or so many steps; less if the epochs are over.

        FileError, GraphError: what is read is damaged, or the model cannot be run.
        """
        step = self._step(phase)
        items = done = 0
        cpu, start = time.process_time(), time.perf_counter()
        end = start + seconds
        try:
            while done != steps and time.perf_counter() < end:
                items += step()
                done += 1
        except StopIteration:
            pass
        except self._over:
            self.stop()  # a queue also ends where one of its runners has failed
        except self._failures as error:
            self._explain(error)
        taken = time.perf_counter() - start
        return Stretch(items, done, taken, time.process_time() - cpu)

    def stop(self) -> None:
        """End what reads ahead; raises what it failed with."""
        try:
            self._style.stop()
        except self._failures as error:
            self._explain(error)

    def _step(self, phase: str) -> Callable[[], int]:
        wait = 0.0 if self.job.wait_ms is None else self.job.wait_ms / 1000
        names = list(self.job.pipeline.steps)

        def waited(count: Any) -> int:
            if wait:
                time.sleep(wait)
            return int(count)

        if phase == "compute":
            return lambda: waited(self._compute(*self._ready)[0])
        feeds: Iterator[Mapping[str, Array]] | None = self._feeds
        if feeds is None:
            if phase == "input":
                return lambda: int(self._take()[0])
            return lambda: waited(self._both()[0])
        if phase == "input":
            return lambda: len(next(feeds)[names[0]])

        def fed() -> int:
            batch = next(feeds)
            return waited(self._compute(*(batch[name] for name in names))[0])

        return fed

    def _explain(self, error: Any) -> None:
        """Raise what is wrong with the data, by file and record, or else what TensorFlow says.

        Ops of a graph tell neither file nor line, so the records are gone through in Python.
        """
        if self.job.style != "feed":
            check_records(self.job.pipeline)
        raise GraphError(f"{self.job.style}: TensorFlow cannot run this: {sentence(error)}")


def _element(name: str) -> Any:
    """Return a tensor of the current graph, or the op where it has none."""
    import tensorflow as tf

    found = tf.compat.v1.get_default_graph().as_graph_element(name)
    return found.outputs[0] if getattr(found, "outputs", ()) else found
