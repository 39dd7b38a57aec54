"""Records parsed by ops of a graph: Examples and lines, a whole batch at once or one by one."""

from collections.abc import Mapping
from typing import Any

from deploykit.input.applying import in_graph
from deploykit.input.data import Data
from deploykit.input.pipeline import Pipeline
from deploykit.records.features import Feature


def example_spec(features: Mapping[str, Feature]) -> dict[str, Any]:
    """Return what `parse_example` asks for."""
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


def parsed_lines(data: Data, features: Mapping[str, Feature], lines: Any) -> dict[str, Any]:
    """Return the features of a batch of CSV lines, all split and converted at once.

    The graph has a few ops however many columns there are, which `decode_csv` does not.
    InvalidArgumentError, at run time: a line has more or fewer columns, or no numbers.
    """
    import tensorflow as tf

    fields = tf.strings.split(lines, ",")
    tf.debugging.assert_equal(fields.row_lengths(), tf.constant(data.width, tf.int64))
    numbers = tf.reshape(tf.strings.to_number(fields.flat_values), (-1, data.width))
    return _columns(data, features, numbers)


def decoded_lines(data: Data, features: Mapping[str, Feature], lines: Any) -> dict[str, Any]:
    """Return the features of a batch of CSV lines by `decode_csv`, one output for each column."""
    import tensorflow as tf

    required = [tf.constant([], tf.float32)] * data.width  # an empty field is an error
    columns = tf.io.decode_csv(lines, required)
    found = {}
    for name, feature in features.items():
        own = [columns[n] for n in _numbers_of(data, name)]
        found[name] = tf.stack(own, axis=1) if feature.shape else own[0]
    return found


def _numbers_of(data: Data, name: str) -> range:
    columns = data.columns[name]
    return range(columns, columns + 1) if isinstance(columns, int) else range(*columns)


def _columns(data: Data, features: Mapping[str, Feature], numbers: Any) -> dict[str, Any]:
    found = {}
    for name in features:
        columns = data.columns[name]
        found[name] = (
            numbers[:, columns] if isinstance(columns, int) else numbers[:, columns[0] : columns[1]]
        )
    return found


def inputs_of(pipeline: Pipeline, features: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each input takes, of one record or of a batch."""
    return {
        name: in_graph(steps, pipeline.features[steps.feature], features[steps.feature])
        for name, steps in pipeline.steps.items()
    }
