"""The tf.data style: reads files in parallel, parses batches with graph ops, and prefetches."""

import glob
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploykit.data.apply_preprocessing import in_graph
from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing_plan import result_of
from deploykit.data.reading import as_declared
from deploykit.data.tfdata_service import distributed
from deploykit.data.user_pipeline import OwnDataset
from deploykit.records.examples import Feature
from deploykit.storage import csv_files
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array


def example_spec(features: Mapping[str, Feature]) -> dict[str, Any]:
    """Return the feature spec for `parse_example`."""
    import tensorflow as tf

    spec: dict[str, Any] = {}
    for name, feature in features.items():
        if feature.content:
            spec[name] = tf.io.FixedLenFeature((), tf.string)
        elif None in feature.shape:
            spec[name] = tf.io.RaggedFeature(feature.dtype)
        else:
            spec[name] = tf.io.FixedLenFeature(feature.shape, feature.dtype)
    return spec


def check_lines(data: Data, hint: str = "") -> None:
    """Raise GraphError for a CSV file whose rows graph ops cannot split, as they read plain lines.

    `hint` is a further way out, in words. FileError: it cannot be read.
    """
    for file in data.files if data.kind == "csv" else ():
        if got := csv_files.beyond_lines(file, data.header):
            raise GraphError("csv-beyond-lines", source=file, got=got, hint=hint)


def parsed_lines(data: Data, features: Mapping[str, Feature], lines: Any) -> dict[str, Any]:
    """Return the features of a batch of CSV lines, split and converted together.

    Unlike `decode_csv`, this needs few ops even for many columns.
    InvalidArgumentError, at run time: a line has the wrong number of columns, or no numbers.
    """
    import tensorflow as tf

    fields = tf.strings.split(lines, data.separator)
    tf.debugging.assert_equal(fields.row_lengths(), tf.constant(data.width, tf.int64))
    numbers = tf.reshape(tf.strings.to_number(fields.flat_values), (-1, data.width))
    return {name: numbers[:, data.at(name)] for name in features}


def decoded_lines(data: Data, features: Mapping[str, Feature], lines: Any) -> dict[str, Any]:
    """Return the features of a batch of CSV lines with `decode_csv`, one output per column."""
    import tensorflow as tf

    required = [tf.constant([], tf.float32)] * data.width  # an empty field is an error
    columns = tf.io.decode_csv(lines, required, field_delim=data.separator)
    results = {}
    for name, feature in features.items():
        own = columns[data.at(name)]
        results[name] = tf.stack(own, axis=1) if feature.shape else own
    return results


def inputs_of(pipeline: Pipeline, features: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensor for each input, from one record or from a batch."""
    return {
        name: in_graph(steps, pipeline.features[steps.feature], features[steps.feature])
        for name, steps in pipeline.steps.items()
    }


NEARBY = 1024  # size of the shuffle buffer in records
PREFETCHED = 8  # batches; the number with AUTOTUNE would be unknown, so could not be discounted
MEMORY = "memory"  # the cache without a file
_CPU = "/CPU:0"


def check_cache(cache: str) -> None:
    """Raise FileError for a cache file that exists or cannot be created.

    tf.data would read an existing one, even if it belongs to other data or preprocessing.
    """
    path = Path(cache)
    if cache in ("", MEMORY):
        return
    if not path.parent.is_dir():
        raise FileError("folder-missing", source=path, folder=path.parent, more="")
    paths = sorted(path.parent.glob(f"{glob.escape(path.name)}[._]*"))
    if paths or path.is_dir():
        raise FileError("cache-exists", source=paths[0] if paths else path)


class TfData:
    """An iterator over a dataset in the current graph, with its tensors by input."""

    def __init__(
        self, pipeline: Pipeline, device: str = _CPU, own: OwnDataset | None = None
    ) -> None:
        """Build the dataset, or the user's; its batches are placed on the device."""
        import tensorflow as tf

        with tf.device(_CPU):
            self._feeds: dict[Any, Any] = {}
            result = dataset(pipeline, self._feeds) if own is None else own.dataset(self._feeds)
            holds_text = any(step.dtype == "string" for step in pipeline.steps.values())
            if device != _CPU and not holds_text:  # strings cannot be on a GPU
                result = result.apply(tf.data.experimental.prefetch_to_device(device))
        with tf.device(device if not holds_text else _CPU):
            iterator = tf.compat.v1.data.make_initializable_iterator(result)
            element = iterator.get_next()
            self.tensors: dict[str, Any] = element if own is None else own.inputs_of(element)
        self._initializer = iterator.initializer

    def start(self, session: Any) -> None:
        """Initialize the iterator."""
        session.run(self._initializer, self._feeds)

    def stop(self) -> None:
        """Do nothing: the dataset ends with its session."""


def dataset(pipeline: Pipeline, feeds: dict[Any, Array] | None = None) -> Any:
    """Return a tf.data.Dataset of batches, by input.

    In graph mode, arrays become placeholders, because constants would be part of the graph. Their
    values are added to `feeds`, for initializing the iterator.
    """
    import tensorflow as tf

    records = _records(pipeline, {} if feeds is None else feeds)
    if not (pipeline.cache or pipeline.service):
        records = records.repeat(pipeline.epochs)  # first, so that only the last batch is small
    one = _one_by_one(pipeline, records) if pipeline.one_by_one else _at_once(pipeline, records)
    if pipeline.service:
        one = _served(pipeline, one)
    if pipeline.cache:
        one = one.cache("" if pipeline.cache == MEMORY else pipeline.cache)
    if pipeline.cache or pipeline.service:
        one = one.repeat(pipeline.epochs)
    options = tf.data.Options()
    options.deterministic = pipeline.threads == 1
    if pipeline.private_threads is not None:
        options.threading.private_threadpool_size = pipeline.private_threads
        options.threading.max_intra_op_parallelism = 1
    return one.with_options(options).prefetch(PREFETCHED)


def _served(pipeline: Pipeline, batches: Any) -> Any:
    """Return the batches of a service, whose workers each read a share of an epoch.

    Each worker ends its share with a smaller batch, so the batches are rebatched.
    """
    if pipeline.padded and pipeline.whole:
        raise GraphError("service-batch-fixed", batch=pipeline.batch)
    result = distributed(batches, pipeline.service)
    if pipeline.padded:
        return result
    return result.rebatch(pipeline.batch, drop_remainder=pipeline.whole)


def _records(pipeline: Pipeline, feeds: dict[Any, Array]) -> Any:
    """Return a dataset of unparsed records: Examples, lines, image names, or samples."""
    import tensorflow as tf

    data, seed = pipeline.data, pipeline.shuffle
    if data.kind == "arrays":
        arrays = data.load()
        result = tf.data.Dataset.from_tensor_slices(
            {name: _slot(as_declared(data, name, arrays), feeds) for name in pipeline.features}
        )
    elif data.kind == "images":
        listed = (list(data.files), list(data.labels))
        result = tf.data.Dataset.from_tensor_slices(listed if data.labelled else listed[0])
    else:
        names = list(data.files)
        if seed is not None and pipeline.service:
            random.Random(seed).shuffle(names)  # a worker's shuffle would open all files
        files = tf.data.Dataset.from_tensor_slices(names)
        if seed is not None and not pipeline.service:
            files = files.shuffle(len(names), seed)
        result = files.interleave(
            lambda file: _opened(pipeline, file),
            cycle_length=min(len(data.files), pipeline.threads),
            block_length=min(pipeline.batch, 16),
            num_parallel_calls=min(len(data.files), pipeline.threads),
            deterministic=pipeline.threads == 1,
        )
    if seed is not None:
        result = result.shuffle(nearby(data), seed)
    return result


def nearby(data: Data) -> int:
    """Return the size of the shuffle buffer in records."""
    return min(data.records or NEARBY, NEARBY)


def _slot(array: Array, feeds: dict[Any, Array]) -> Any:
    import tensorflow as tf

    if tf.executing_eagerly():
        return array
    dtype = tf.string if array.dtype == object else array.dtype
    slot = tf.compat.v1.placeholder(dtype, array.shape)
    feeds[slot] = array
    return slot


def _opened(pipeline: Pipeline, file: Any) -> Any:
    import tensorflow as tf

    data = pipeline.data
    if data.kind == "csv":
        lines = tf.data.TextLineDataset(file, data.compression)
        return lines.skip(1) if data.header else lines
    return tf.data.TFRecordDataset(file, data.compression)


def _at_once(pipeline: Pipeline, records: Any) -> Any:
    """Return batches that are formed first and then parsed together."""
    import tensorflow as tf

    def parse(batch: Any) -> dict[str, Any]:
        data, features = pipeline.data, pipeline.features
        if data.kind == "csv":
            batch = parsed_lines(data, features, batch)
        elif data.kind == "records":
            batch = tf.io.parse_example(batch, example_spec(features))
        return inputs_of(pipeline, batch)

    batches = records.batch(pipeline.batch, drop_remainder=pipeline.drops)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _one_by_one(pipeline: Pipeline, records: Any) -> Any:
    """Return batches of images, or of texts of different lengths."""
    import tensorflow as tf

    def parse(*record: Any) -> dict[str, Any]:
        data = pipeline.data
        if data.kind == "images":
            features = {"image": tf.io.read_file(record[0]), "label": record[-1]}
        elif data.kind == "records":
            features = tf.io.parse_single_example(record[0], example_spec(pipeline.features))
        else:
            (features,) = record
        return inputs_of(pipeline, features)

    parsed = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    results = {k: result_of(v, pipeline.features[v.feature]) for k, v in pipeline.steps.items()}
    lengths = [name for name, item in results.items() if None in item.shape]
    if not lengths:
        return parsed.batch(pipeline.batch, drop_remainder=pipeline.drops)
    shapes = {name: tf.TensorShape(item.shape) for name, item in results.items()}
    if pipeline.buckets:
        return parsed.bucket_by_sequence_length(
            lambda entry: tf.shape(entry[lengths[0]])[0],
            [*pipeline.buckets],
            [pipeline.batch] * (len(pipeline.buckets) + 1),
            padded_shapes=shapes,
            drop_remainder=pipeline.drops,
        )
    return parsed.padded_batch(pipeline.batch, shapes, drop_remainder=pipeline.drops)
