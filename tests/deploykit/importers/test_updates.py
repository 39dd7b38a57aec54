"""Updates of variables: dropped, read, settled or refused by name, whatever form they have."""

import re

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from tests import pairwise
from tests.support import raises, random, run, tf

pytestmark = pytest.mark.usefixtures("in_process")

X = random(3, 4)


def unit(tensor):
    return tensor / tf.norm(tensor)


def power_iteration(m):
    """Return the largest singular value of the weights, and the next vector."""
    right = unit(m.vector @ m.weights)
    left = unit(right @ tf.transpose(m.weights))
    return tf.reduce_sum(left @ m.weights * right), left


def counter(m, x):
    m.number.assign_add(1.0)
    return x @ m.weights


def counter_twice(m, x):
    m.number.assign_add(1.0)
    m.number.assign(m.number * 2.0)
    return x @ m.weights


def counter_in_a_loop(m, x):
    for _ in tf.range(3):
        m.number.assign_add(1.0)
        x = x @ m.weights
    return x


def counter_in_a_branch(m, x):
    if tf.reduce_sum(x) > 0:
        m.number.assign(m.number + 1.0)
    return x @ m.weights


def row_written(m, x):
    m.table.scatter_nd_update([[0]], x[:1])
    return x @ m.weights


def moving_mean(m, x):
    m.number.assign(0.9 * m.number + 0.1 * tf.reduce_mean(x))
    return x @ m.weights


def spectral_norm(m, x):
    """The new vector is read again."""
    _, vector = power_iteration(m)
    m.vector.assign(vector)
    return x @ (m.weights / tf.norm(m.vector @ m.weights))


def spectral_norm_for_the_next_call(m, x):
    norm, vector = power_iteration(m)
    m.vector.assign(vector)
    return x @ (m.weights / norm)


def spectral_norm_of_the_weights_themselves(m, x):
    norm, vector = power_iteration(m)
    m.vector.assign(vector)
    m.weights.assign(m.weights / norm)
    return x @ m.weights


def scratch(m, x):
    m.table.assign(tf.tile(x[:1], [3, 1]))
    m.table.assign_add(tf.ones((3, 4)))
    m.table.assign_sub(tf.ones((3, 4)) * 3.0)
    return x + m.table[0]


def scratch_gathered(m, x):
    m.table.assign(tf.tile(x[:1], [3, 1]))
    return x + tf.gather(m.table, 1)


def scratch_read_in_a_branch(m, x):
    m.table.assign(tf.tile(x[:1], [3, 1]))
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x + m.table[0], lambda: x - m.table[1])


def scratch_of_another(m, x):
    """An update that is read puts in what another update has made."""
    m.number.assign(2.0)
    m.table.assign(m.table * 0.0 + m.number)
    return x + m.table[0]


def scratch_scattered(m, x):
    m.table.assign(tf.tile(x[:1], [3, 1]))
    m.table.scatter_nd_update([[0], [2]], x[1:3])
    m.table.scatter_nd_add([[1, 1]], x[0, :1])
    m.table.scatter_update(tf.IndexedSlices(x[:1] * 2.0, [1]))
    m.table.scatter_max(tf.IndexedSlices(x[:2], [1, 2]))
    return x + m.table


def scratch_sliced(m, x):
    m.table.assign(x)
    m.table[1:, ::2].assign(x[:2, ::2])
    m.table[0].assign(x[2])
    return x + m.table


SETTLED = [
    scratch_scattered, scratch_sliced,
    counter, counter_twice, counter_in_a_loop, counter_in_a_branch, row_written, moving_mean,
    spectral_norm, spectral_norm_for_the_next_call, spectral_norm_of_the_weights_themselves,
    scratch, scratch_gathered, scratch_read_in_a_branch, scratch_of_another,
]  # fmt: skip


def count_in_the_answer(m, x):
    return x + m.number.assign_add(1.0)


def count_by_assigning(m, x):
    m.number.assign(m.number + 1.0)
    return x + m.number


def whole_count(m, x):
    m.whole.assign_add(1)
    return x + tf.cast(m.whole, tf.float32)


def count_in_a_branch(m, x):
    if tf.reduce_sum(x) > 0:
        m.number.assign_add(1.0)
    return x + m.number


def count_in_a_loop(m, x):
    for _ in tf.range(2):
        x += m.number.assign_add(1.0)
    return x


def moving_mean_in_the_answer(m, x):
    m.number.assign(0.9 * m.number + 0.1 * tf.reduce_mean(x))
    return x - m.number


def state_for_the_next_call(m, x):
    before = m.number.read_value()
    m.number.assign(x[0, 0])
    return x + before


def row_read(m, x):
    m.table.scatter_nd_update([[0]], x[:1])
    return x + m.table[0]


def count_times_little(m, x):
    return x + m.number.assign_add(1.0) * 1e-3


def row_added(m, x):
    m.table.scatter_nd_add([[0]], x[:1])
    return x + m.table


CHANGING = {
    count_times_little: "AssignAddVariableOp",
    row_added: "ResourceScatterNdAdd",
    count_in_the_answer: "AssignAddVariableOp",
    count_by_assigning: "AssignVariableOp",
    whole_count: "AssignAddVariableOp",
    count_in_a_branch: "AssignAddVariableOp",
    count_in_a_loop: "AssignAddVariableOp",
    moving_mean_in_the_answer: "AssignVariableOp",
    state_for_the_next_call: "AssignVariableOp",
    row_read: "ResourceScatterNdUpdate",
}


def save(function, folder) -> str:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(random(4, 4, seed=1), name="weights")
            self.vector = tf.Variable(random(1, 4, seed=2), name="vector")
            self.number = tf.Variable(0.5, name="number")
            self.whole = tf.Variable(0, name="whole")
            self.table = tf.Variable(np.zeros((3, 4), np.float32), name="table")

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
        def __call__(self, x):
            return function(self, x)

    model = Model()
    tf.saved_model.save(model, str(folder / "model"), signatures=model.__call__)
    return str(folder / "model")


def first_answer(path: str) -> np.ndarray:
    return tf.saved_model.load(path)(X).numpy()


@pytest.mark.parametrize(
    "function", pairwise.drawn("the_first_answer_is_kept", SETTLED, 3, quick=5)
)
def test_the_first_answer_is_kept(function, tmp_path):
    path = save(function, tmp_path)
    frozen = deploykit.freeze(path)
    for graph in (frozen, deploykit.optimize(frozen)):
        found = run(graph, {"x": X})[0]
        np.testing.assert_allclose(found, first_answer(path), rtol=1e-5, atol=1e-6)
        assert not [n for n in graph if re.search("Variable|Assign|^(Resource)?Scatter", n.op)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "function",
    pairwise.drawn(
        "answers_that_change_from_call_to_call_are_refused_by_name", list(CHANGING), 2, quick=4
    ),
)
def test_answers_that_change_from_call_to_call_are_refused_by_name(function, tmp_path):
    path = save(function, tmp_path)
    with raises(GraphError, "variable-not-frozen", op=CHANGING[function]) as caught:
        deploykit.freeze(path)
    assert re.search(r"'\w+'", caught.value.fields["reason"])  # the variable that changes
    assert "--pin" not in str(caught.value)  # there is no switch to pin


def test_what_settles_is_said(tmp_path, caplog):
    deploykit.freeze(save(spectral_norm, tmp_path))
    assert "'vector' changes" in caplog.text


def test_a_table_that_answers_fill_is_refused_and_one_that_only_logs_is_not(tmp_path):
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
        def count(self, ids):
            self.seen.insert(ids, ids * 2)
            return self.seen.lookup(ids)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
        def log(self, ids):
            self.seen.insert(ids, ids * 2)
            return ids + 1

    model = Model()
    signatures = {"count": model.count, "log": model.log}
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=signatures)
    with raises(GraphError, "variable-not-frozen", op="LookupTableInsertV2"):
        deploykit.freeze(tmp_path / "model", signature="count")
    graph = deploykit.freeze(tmp_path / "model", signature="log")
    np.testing.assert_array_equal(run(graph, {"ids": np.array([1, 2])})[0], [2, 3])


def test_a_loop_may_pass_on_what_it_updates(tmp_path):
    """In TensorFlow 1 one may read what comes out of a loop rather than the variable."""
    import tensorflow.compat.v1 as tf

    tf.enable_control_flow_v2()
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
        total = tf.while_loop(lambda i: i < 3, lambda i: _counted(i, count), [0])
        with tf.control_dependencies([total]):
            tf.add(x, count.read_value(), name="changing")
            tf.identity(x, name="same")
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"))
    with raises(GraphError, "variable-not-frozen"):
        deploykit.freeze(tmp_path / "model", outputs=["changing"])
    graph = deploykit.freeze(tmp_path / "model", outputs=["same"])
    np.testing.assert_array_equal(run(graph, {"x": X})[0], X)


def _counted(step, count):
    import tensorflow.compat.v1 as tf

    with tf.control_dependencies([count.assign_add(1.0)]):
        return step + 1


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_what_settles_may_be_of_any_precision(dtype, tmp_path):
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.Variable(tf.ones([4], dtype), name="scale")

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
        def __call__(self, x):
            self.scale.assign(self.scale * tf.constant(0.5, dtype) + tf.constant(1.0, dtype))
            return x * tf.cast(self.scale, tf.float32)

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.__call__)
    graph = deploykit.freeze(tmp_path / "model")
    np.testing.assert_array_equal(run(graph, {"x": X})[0], X * np.float32(1.5))
