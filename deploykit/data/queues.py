"""The queue style of TensorFlow 1: runners fill a queue, and each step dequeues a batch."""

import contextlib
import threading
from typing import Any

import numpy as np

from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing_plan import result_of
from deploykit.data.reading import as_declared
from deploykit.data.tfdata import decoded_lines, example_spec, inputs_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

BATCHES = 8  # capacity of a queue
PATIENCE = 5.0  # seconds to wait for the first batch of a queue without a runner


class Queue:
    """A queue of records in the current graph, its runners, and a dequeued batch."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Build the queues; `start` starts to fill them."""
        import tensorflow as tf

        self._errors = tf.errors
        self._v1 = tf.compat.v1
        self._coordinator: Any = None
        self._threads: list[Any] = []
        self._graph = tf.compat.v1.get_default_graph()
        self._filler: _Filler | None = None
        before = len(self._graph.get_collection("queue_runners"))
        known = len(tf.compat.v1.local_variables())
        with tf.device("/CPU:0"):
            if pipeline.data.kind == "arrays":
                self._filler = _Filler(pipeline)
                self.tensors = self._filler.tensors
            else:
                self.tensors = _batch(pipeline, *_records(pipeline))
            epochs_left = tf.compat.v1.local_variables()[known:]
            self._initializer = tf.group(*(item.initializer for item in epochs_left))
        self._runners = self._graph.get_collection("queue_runners")[before:]

    def start(self, session: Any) -> None:
        """Start the threads that fill the queue."""
        session.run(self._initializer)
        self._coordinator = self._v1.train.Coordinator()
        for runner in self._runners:
            self._threads += runner.create_threads(
                session, self._coordinator, daemon=True, start=True
            )
        if self._filler is not None:
            self._threads.append(self._filler.started(session, self._coordinator))

    def take(self, session: Any) -> dict[str, Array]:
        """Return the next batch.

        StopIteration: the epochs are over, and all threads have ended. GraphError: the queue has no
        runner, so it stays empty; or a runner has failed.
        """
        options = None
        if self._coordinator is None:
            options = self._v1.RunOptions(timeout_in_ms=int(PATIENCE * 1000))
        try:
            arrays: dict[str, Array] = session.run(self.tensors, options=options)
        except self._errors.DeadlineExceededError:
            raise GraphError("queue-gave-nothing", seconds=PATIENCE) from None
        except self._errors.OutOfRangeError:
            self.stop()
            raise StopIteration from None
        return arrays

    def stop(self) -> None:
        """Stop the threads, and raise the error of a failed thread."""
        if self._coordinator is None:
            return
        self._coordinator.request_stop()
        with contextlib.suppress(self._errors.CancelledError, self._errors.OutOfRangeError):
            self._coordinator.join(self._threads, stop_grace_period_secs=PATIENCE)


class _Filler:
    """A Python thread that enqueues slices of arrays."""

    def __init__(self, pipeline: Pipeline) -> None:
        import tensorflow as tf

        arrays = pipeline.data.load()
        self._pipeline = pipeline
        self._arrays = {
            name: as_declared(pipeline.data, name, arrays) for name in pipeline.features
        }
        self._slots = {
            name: tf.compat.v1.placeholder(
                tf.string if array.dtype == object else array.dtype, (None, *array.shape[1:])
            )
            for name, array in self._arrays.items()
        }
        names = list(self._slots)
        types = [slot.dtype for slot in self._slots.values()]
        shapes = [slot.shape[1:] for slot in self._slots.values()]
        capacity = BATCHES * pipeline.batch
        queue = (
            tf.queue.FIFOQueue(capacity, types, shapes)
            if pipeline.shuffle is None
            else tf.queue.RandomShuffleQueue(
                capacity, 2 * pipeline.batch, types, shapes, seed=pipeline.shuffle
            )
        )
        self._put = queue.enqueue_many(list(self._slots.values()))
        self._close = queue.close()
        self._cancel = queue.close(cancel_pending_enqueues=True)
        take = queue.dequeue_many if pipeline.whole else queue.dequeue_up_to
        given = take(pipeline.batch)
        given = given if isinstance(given, list | tuple) else [given]
        self.tensors = inputs_of(pipeline, dict(zip(names, given, strict=True)))

    def started(self, session: Any, coordinator: Any) -> threading.Thread:
        thread = threading.Thread(target=self._fill, args=(session, coordinator), daemon=True)
        thread.start()
        threading.Thread(target=self._release, args=(session, coordinator), daemon=True).start()
        return thread

    def _release(self, session: Any, coordinator: Any) -> None:
        """Cancel a blocked enqueue when the threads are requested to stop."""
        coordinator.wait_for_stop()
        with contextlib.suppress(Exception):  # the session may be closed already
            session.run(self._cancel)

    def _fill(self, session: Any, coordinator: Any) -> None:
        import tensorflow as tf

        pipeline, epoch = self._pipeline, 0
        count = len(next(iter(self._arrays.values())))
        try:
            while pipeline.epochs is None or epoch < pipeline.epochs:
                order = np.arange(count)
                if pipeline.shuffle is not None:
                    order = np.random.default_rng([pipeline.shuffle, epoch]).permutation(count)
                for start in range(0, count, pipeline.batch):
                    if coordinator.should_stop():
                        return
                    chosen = order[start : start + pipeline.batch]
                    feeds = {self._slots[k]: item[chosen] for k, item in self._arrays.items()}
                    session.run(self._put, feeds)
                epoch += 1
            session.run(self._close)
        except (tf.errors.CancelledError, RuntimeError):  # the session is closed
            pass
        except Exception as error:
            coordinator.request_stop(error)


def _records(pipeline: Pipeline) -> tuple[dict[str, Any], bool]:
    """Return the input tensors of a reader, and whether they contain several records."""
    import tensorflow as tf

    v1, data, features = tf.compat.v1, pipeline.data, pipeline.features
    shuffle = pipeline.shuffle is not None
    if data.kind == "images":
        name, label = v1.train.slice_input_producer(
            [list(data.files), list(data.labels)],
            num_epochs=pipeline.epochs, shuffle=shuffle, seed=pipeline.shuffle,
            capacity=BATCHES * pipeline.batch,
        )  # fmt: skip
        return inputs_of(pipeline, {"image": tf.io.read_file(name), "label": label}), False
    files = v1.train.string_input_producer(
        list(data.files), num_epochs=pipeline.epochs, shuffle=shuffle, seed=pipeline.shuffle
    )
    if data.kind == "csv":
        if data.compression:
            raise GraphError("queues-packed-csv", source=data.path)
        reader = v1.TextLineReader(skip_header_lines=int(data.header))
        _, lines = reader.read_up_to(files, pipeline.batch)
        return inputs_of(pipeline, decoded_lines(data, features, lines)), True
    compression = v1.python_io.TFRecordCompressionType
    kind = compression.GZIP if data.compression == "GZIP" else compression.NONE
    reader = v1.TFRecordReader(options=v1.python_io.TFRecordOptions(kind))
    if pipeline.one_by_one:
        _, content = reader.read(files)
        parsed = tf.io.parse_single_example(content, example_spec(features))
        return inputs_of(pipeline, parsed), False
    _, contents = reader.read_up_to(files, pipeline.batch)
    return inputs_of(pipeline, tf.io.parse_example(contents, example_spec(features))), True


def _batch(pipeline: Pipeline, tensors: dict[str, Any], several: bool) -> dict[str, Any]:
    """Return a batch from a queue filled by the pipeline's number of threads."""
    import tensorflow as tf

    train = tf.compat.v1.train
    results = {k: result_of(v, pipeline.features[v.feature]) for k, v in pipeline.steps.items()}
    padded = any(None in result.shape for result in results.values())
    common: dict[str, Any] = {
        "batch_size": pipeline.batch,
        "num_threads": pipeline.threads,
        "capacity": BATCHES * pipeline.batch,
        "enqueue_many": several,
        "allow_smaller_final_batch": not pipeline.whole,
    }
    if pipeline.shuffle is None or padded:
        matches: dict[str, Any] = train.batch(tensors, dynamic_pad=padded, **common)
    else:
        matches = train.shuffle_batch(
            tensors, min_after_dequeue=2 * pipeline.batch, seed=pipeline.shuffle, **common
        )
    return matches
