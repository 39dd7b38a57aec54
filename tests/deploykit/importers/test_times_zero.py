"""Updates of variables that answers read times 0, which is NaN where they are not finite."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from tests import pairwise
from tests.deploykit.importers.test_updates import X, save
from tests.support import raises, run, tf

pytestmark = pytest.mark.usefixtures("in_process")


def counts_times_zero(m, x):
    count = tf.cast(m.whole.assign_add(1), tf.float32)
    return x + m.number.assign_add(1.0) * 0.0 + 0.0 * count + m.table.assign_add(x) * tf.zeros([4])


def exploding_whole_times_zero(m, x):
    return x + tf.cast(m.whole.assign(m.whole * 100000 + 1) * 0, tf.float32)


def exploding_where_zero_wins(m, x):
    return x + tf.math.multiply_no_nan(m.number.assign(m.number * 1e20), tf.zeros([]))


def mean_times_zero(m, x):
    m.number.assign(0.9 * m.number + 0.1 * tf.reduce_mean(x))
    return x + m.number * 0.0


def bounded_times_zero(m, x):
    return x + 0.0 * tf.sigmoid(m.number.assign_add(1.0))


def inputs_times_zero(m, x):
    m.number.assign_add(1.0)
    return x @ m.weights + x * 0.0


HARMLESS = [
    counts_times_zero, exploding_whole_times_zero, exploding_where_zero_wins, mean_times_zero,
    bounded_times_zero, inputs_times_zero,
]  # fmt: skip


def exploding_times_zero(m, x):
    m.number.assign(m.number * 1e20)
    return m.number * 0.0 + x


def growing_times_zero(m, x):
    """It is infinite after 900 calls."""
    return x + 0.0 * m.number.assign(m.number * 1.1)


def exponential_of_a_count_times_zero(m, x):
    count = tf.cast(m.whole.assign_add(1), tf.float32)
    return x + tf.exp(count * 0.25) * tf.zeros_like(x)


def inputs_multiplied_times_zero(m, x):
    m.table.assign(m.table * x + 1.0)
    return x + m.table * 0.0


def exploding_where_zero_is_first(m, x):
    return x + tf.math.multiply_no_nan(tf.zeros([]), m.number.assign(m.number * 1e20))


HARMFUL = [
    exploding_times_zero, growing_times_zero, exponential_of_a_count_times_zero,
    inputs_multiplied_times_zero, exploding_where_zero_is_first,
]  # fmt: skip


@pytest.mark.parametrize(
    "function", pairwise.drawn("every_call_answers_as_tensorflow", HARMLESS, 1, quick=2)
)
def test_every_call_answers_as_tensorflow(function, tmp_path):
    path = save(function, tmp_path)
    graph = deploykit.freeze(path)
    model = tf.saved_model.load(path)
    for _ in range(120):
        expected = model(X).numpy()
    np.testing.assert_allclose(run(graph, {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "function", pairwise.drawn("what_becomes_infinite_is_refused", HARMFUL, 1, quick=2)
)
def test_what_becomes_infinite_is_refused(function, tmp_path):
    path = save(function, tmp_path)
    with raises(GraphError, "variable-not-frozen"):
        deploykit.freeze(path)
    model = tf.saved_model.load(path)
    answers = [model(X * 2).numpy() for _ in range(1000)]
    assert np.isfinite(answers[0]).all()
    assert np.isnan(answers[-1]).any()
