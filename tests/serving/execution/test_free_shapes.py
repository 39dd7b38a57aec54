"""Which inputs may come in any shape: those that element by element ops alone read."""

import pytest

from deploykit.serving.execution.request_inputs import free_inputs
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.protos import MetaGraphDef
from tests.support import tf


def free(make, shape) -> bool:
    """Tell whether x is free in what `make` builds of it."""
    with tf.Graph().as_default() as graph:
        make(tf.compat.v1.placeholder(tf.float32, shape, name="x"))
    meta = MetaGraphDef(graph_def=graph.as_graph_def())
    tensor = Tensor("x:0", "float32", None if shape is None else tuple(n or -1 for n in shape))
    found = free_inputs(meta, {"s": Signature("", {"x": tensor}, {}, None)})
    assert found <= {"x:0"}
    return bool(found)


def called(make):
    """Return what does the same in a function, called by another one."""
    return lambda x: tf.function(lambda y: tf.function(make)(y) + 1.0)(x)


def half_plus_two(x):
    return x * 0.5 + 2.0


def dense(x):
    return tf.matmul(x + 1.0, tf.ones([1, 2]))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        (half_plus_two, [None, 1], True),
        (half_plus_two, [1], True),
        (half_plus_two, [], True),
        (half_plus_two, [None, 2], False),  # what it meets may be two numbers
        (half_plus_two, None, False),  # its signature takes any shape anyway
        (dense, [None, 1], False),
        (lambda x: (half_plus_two(x), dense(x)), [None, 1], False),
    ],
)
@pytest.mark.parametrize("way", [lambda make: make, called], ids=["ops", "functions"])
def test_free_inputs(make, shape, expected, way):
    if way is called and make not in (half_plus_two, dense):
        make = dense
    assert free(way(make), shape) == expected


def test_an_input_that_nothing_reads_and_a_function_that_is_missing():
    assert free(lambda x: tf.ones([]), [None, 1])
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1], name="x")
        called(half_plus_two)(x)
    meta = MetaGraphDef(graph_def=graph.as_graph_def())
    del meta.graph_def.library.function[:]
    signature = Signature("", {"x": Tensor("x:0", "float32", (1,))}, {}, None)
    assert free_inputs(meta, {"s": signature}) == set()
