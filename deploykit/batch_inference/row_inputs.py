"""Converts rows into arrays for the inputs of a model, in a worker.

A whole batch of rows is converted at once. If that fails, rows are converted one by one to find the
invalid ones. Images and texts of different lengths are always converted one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deploykit.batch_inference.reading.data_parts import RowBatch, place_of
from deploykit.data.apply_preprocessing import in_graph, in_python, raw_in_graph, together
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import keeps_files
from deploykit.data.reading import example, prepared
from deploykit.data.tfdata import example_spec
from deploykit.records.examples import Feature
from deploykit.storage.image_files import undecodable
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

Inputs = dict[str, Array]


class RowInputs:
    """Converts rows into inputs with the preprocessing of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Store the pipeline; graphs are built when first used."""
        self._pipeline = pipeline
        self._makers: dict[Steps, Callable[[bytes], Array]] = {}
        self._parse: Callable[[Sequence[bytes]], Inputs] | None = None

    def of(self, batch: RowBatch) -> tuple[Inputs, RowBatch]:
        """Return the arrays of the valid rows, and the batch without the others.

        The first axis of the arrays is the rows. Without valid rows, the mapping is empty.
        LimitError: out of memory.
        """
        if not batch.rows:
            return {}, batch
        inputs = None if self._pipeline.one_by_one else self._at_once(batch)
        return self._one_by_one(batch) if inputs is None else (inputs, batch)

    def _at_once(self, batch: RowBatch) -> Inputs | None:
        """Return the inputs of all rows; None if some rows are invalid."""
        arrays = batch.arrays or self._parsed(batch)
        if arrays is None:
            return None
        try:
            return {
                name: in_python(
                    steps,
                    replace(self._pipeline.features[steps.feature], content=""),
                    arrays[steps.feature],
                )
                for name, steps in self._pipeline.steps.items()
            }
        except GraphError:
            return None

    def _parsed(self, batch: RowBatch) -> Inputs | None:
        """Return the features of all rows, which are records; None if some rows are invalid."""
        import tensorflow as tf

        if self._parse is None:
            self._parse = batch_parser(self._pipeline)
        try:
            result = self._parse(batch.contents)
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError, UnicodeDecodeError):
            return None  # UnicodeDecodeError: the error message quotes the record
        return result if all(len(item) == len(batch.rows) for item in result.values()) else None

    def _one_by_one(self, batch: RowBatch) -> tuple[Inputs, RowBatch]:
        made: list[Inputs] = []
        bad: dict[int, str] = {}
        for n, (file, row) in enumerate(zip(batch.files, batch.rows, strict=True)):
            where = place_of(self._pipeline.data.kind, file, row)
            try:
                values = self._values(batch, n, where)
                made.append(prepared(self._pipeline, where, values, self._made))
            except GraphError as error:
                bad[n] = str(error).removeprefix(where).lstrip(": ")
        names = self._pipeline.steps if made else ()
        joined = {name: together([item[name] for item in made]) for name in names}
        return joined, batch.without(bad)

    def _values(self, batch: RowBatch, n: int, where: str) -> dict[str, Any]:
        """Return the features of a row. GraphError: it is not a valid Example."""
        data, names = self._pipeline.data, tuple(self._pipeline.features)
        if batch.arrays:
            return {name: batch.arrays[name][n] for name in names}
        if data.kind == "images":
            return {"image": batch.contents[n]}
        return example(data, where, batch.contents[n], names)

    def _made(self, steps: Steps, feature: Feature, value: Any) -> Array:
        """Return the value of an input; a separate graph decodes and resizes images."""
        if feature.content != "image" or keeps_files(steps, feature):
            return in_python(steps, feature, value)
        if refused := undecodable(value):
            raise refused
        if steps not in self._makers:
            self._makers[steps] = photo_maker(steps, feature)
        return self._makers[steps](value)


def photo_maker(steps: Steps, feature: Feature) -> Callable[[bytes], Array]:
    """Return a function that converts an encoded image into an input; it raises kernel errors."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        content = tf.compat.v1.placeholder(tf.string, ())
        made = in_graph(steps, feature, content, optimized=True)
    function: Callable[[bytes], Array] = _session(graph).make_callable(made, [content])
    return function


def batch_parser(pipeline: Pipeline) -> Callable[[Sequence[bytes]], Inputs]:
    """Return a function that converts serialized Examples into features, none of them images.

    It does not convert them to the dtypes of inputs, as TensorFlow does not report lost values.
    """
    import tensorflow as tf

    features = pipeline.features
    with tf.Graph().as_default() as graph:
        contents = tf.compat.v1.placeholder(tf.string, (None,))
        parsed = tf.io.parse_example(contents, example_spec(features))
        for name, feature in features.items():
            if feature.content == "raw":
                parsed[name] = raw_in_graph(feature, parsed[name])
    run = _session(graph).make_callable(list(parsed.values()), [contents])
    return lambda given: dict(zip(parsed, run(given), strict=True))


def _session(graph: Any) -> Any:
    """Return a session with one thread that runs a graph without optimizing it."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0}
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.compat.v1.Session(graph=graph, config=config)
