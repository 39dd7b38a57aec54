"""Updates inside branches and loops, of variables that a call overwrites before it reads them."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from tests import pairwise
from tests.support import raises, random, run, showing, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

INPUTS = [random(3, 4, seed=seed) + shift for seed, shift in enumerate((0.0, 0.7, -1.0, 3.0))]


def trips(x):
    return tf.cast(tf.abs(x[0, 0]) * 3, tf.int32)


def sum_in_a_loop(m, x):
    m.table.assign(tf.zeros((3, 4)))
    for _ in tf.range(trips(x)):
        m.table.assign_add(x)
    return x + m.table


def nested_loops(m, x):
    y = x
    for i in tf.range(trips(x)):
        m.number.assign(0.0)
        for _ in tf.range(i):
            m.number.assign_add(x[1, 1])
        y = y + m.number
    return y


def two_variables(m, x):
    m.number.assign(1.0)
    m.table.assign(x)
    for i in tf.range(trips(x)):
        if i % 2 == 0:
            m.number.assign_add(m.table[0, 1])
        else:
            m.table.assign(m.table * m.number * 0.1)
    return x + m.table * m.number


def loops_in_sequence(m, x):
    m.number.assign(x[0, 1])
    for _ in tf.range(trips(x)):
        m.number.assign_add(1.0)
    before = m.number * 1.0
    while m.number < 9.0:
        m.number.assign(m.number + 2.0)
    return x * before + m.number


def both_branches(m, x):
    if x[0, 0] > 0:
        m.table.assign(x * 2.0)
    else:
        m.table.assign(x - 1.0)
    return x * m.table


def one_branch_after_all(m, x):
    m.table.assign(x)
    if x[0, 0] > 0:
        m.table.assign_add(x)
    return x * m.table


def maybe_no_trip(m, x):
    for _ in tf.range(trips(x)):
        m.number.assign(x[1, 1])
    return x + m.number


def one_branch(m, x):
    if x[0, 0] > 0:
        m.number.assign(x[1, 1])
    return x + m.number


def add_in_a_branch(m, x):
    if x[0, 0] > 0:
        m.number.assign(x[1, 1])
    else:
        m.number.assign_add(1.0)
    return x + m.number


def read_first(m, x):
    y = x
    for i in tf.range(trips(x)):
        y = y + m.number
        m.number.assign(tf.cast(i, tf.float32))
    return y


def update_in_a_condition(m, x):
    m.number.assign(0.0)
    return tf.while_loop(lambda _: m.number.assign_add(1.0) < 3.0, lambda y: (y + x,), (x,))[0]


def save(function, folder) -> str:
    model = tf.Module()
    model.number, model.table = tf.Variable(0.5), tf.Variable(np.ones((3, 4), np.float32))
    convert = tf.autograph.to_graph(function)
    signature = [tf.TensorSpec([3, 4], tf.float32, "x")]
    model.run = tf.function(lambda x: convert(model, x), input_signature=signature)
    tf.saved_model.save(model, str(folder / "model"), signatures=model.run)
    return str(folder / "model")


SCRATCH = [
    sum_in_a_loop, nested_loops, two_variables, loops_in_sequence, both_branches,
    one_branch_after_all,
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "function", pairwise.drawn("every_call_answers_as_tensorflow", SCRATCH, 1, quick=2)
)
def test_every_call_answers_as_tensorflow(function, tmp_path):
    path = save(function, tmp_path)
    frozen, loaded = deploykit.freeze(path), tf.saved_model.load(path)
    for x in INPUTS:
        expected = loaded.run(x).numpy()
        np.testing.assert_allclose(run(frozen, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [maybe_no_trip, one_branch, add_in_a_branch, read_first])
def test_what_an_earlier_call_may_have_left_behind_is_refused(function, tmp_path):
    with raises(GraphError, "variable-not-frozen", reason=showing("update-read")):
        deploykit.freeze(save(function, tmp_path))


def test_why_updates_are_not_lifted_is_logged(tmp_path, caplog):
    caplog.set_level("DEBUG", "deploykit")
    with pytest.raises(GraphError):
        deploykit.freeze(save(update_in_a_condition, tmp_path))
    [line] = [each for each in caplog.messages if shows(each, "updates-stay")]
    assert shows(line, "loop-condition-updates")
