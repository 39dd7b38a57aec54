"""Tensors that are too large are found before a graph runs, numbers and strings alike."""

import pytest

from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.session import refuse_large_tensors, too_large_nodes
from tests.support import raises, tf

MOST = 1000


def doubled(step, start):
    with tf.Graph().as_default() as graph:
        value = tf.constant(start, name="start")
        for number in range(12):
            value = tf.identity(step(tf, value), name=f"d{number}")
        tf.raw_ops.Size(input=value, name="count")
    return graph


DOUBLINGS = {
    "concat": (lambda tf, x: tf.concat([x, x], 0), [1.0]),
    "tile": (lambda tf, x: tf.tile(x, [2]), [1.0]),
    "pad": (lambda tf, x: tf.pad(x, [[0, x.shape[0]]]), [1.0]),
    "stack": (lambda tf, x: tf.stack([x, x]), 1.0),
    "gather": (lambda tf, x: tf.gather(x, list(range(x.shape[0])) * 2), [1.0]),
    "one_hot": (lambda tf, x: tf.one_hot(tf.cast(x, tf.int32), 2), 1.0),
    "join": (lambda tf, x: tf.strings.join([x, x], ","), "a"),
    "tiled strings": (lambda tf, x: tf.tile(x, [2]), ["a"]),
    "outer product": (lambda tf, x: x[..., None] * [1.0, 2.0], [1.0]),
}


@pytest.mark.parametrize(("step", "start"), DOUBLINGS.values(), ids=DOUBLINGS)
def test_what_doubles_is_found_with_all_that_needs_it(step, start):
    graph = doubled(step, start)
    found = {name for name in too_large_nodes(graph, MOST) if name[0] == "d"}
    numbers = sorted(int(name[1:]) for name in found if name[1:].isdigit())
    assert numbers == list(range(numbers[0], 12))
    assert numbers[0] > 3
    assert "count" in too_large_nodes(graph, MOST)
    assert too_large_nodes(graph, 1 << 40) == set()
    with raises(LimitError, "tensor-too-large", most="1000 bytes"):
        refuse_large_tensors(graph, MOST)


def test_wide_numbers_as_text():
    with tf.Graph().as_default() as graph:
        tf.strings.as_string(tf.constant(1.0), width=10_000, name="wide")
        tf.strings.as_string(tf.constant(1.0), name="narrow")
    assert too_large_nodes(graph, MOST) == {"wide"}


def test_what_a_const_holds_and_unknown_sizes_do_not_count():
    with tf.Graph().as_default() as graph:
        tf.constant([1.0] * MOST)
        tf.exp(tf.compat.v1.placeholder(tf.float32, [None, 10_000]))
    assert too_large_nodes(graph, MOST) == set()
    refuse_large_tensors(graph, MOST)
