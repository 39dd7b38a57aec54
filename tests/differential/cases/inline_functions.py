"""Calls of functions are replaced by their bodies: inline_partitionedcall there."""

from collections.abc import Callable

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case
from tests.differential.graphs import fashion_keras, placeholder
from tests.support import build, random, tf

NAME, OURS = "inline_partitionedcall", "inline_functions"


def net(make: Callable, outputs=("out",)) -> Callable[[], Graph]:
    def body():
        make(placeholder(2, 6))

    return lambda: build(body, ["x"], outputs)


def layer(x):
    weights = tf.constant(random(6, 4), name="weights")

    @tf.function
    def dense(a, w):
        return tf.nn.relu(tf.matmul(a, w))

    tf.identity(dense(x, weights), name="out")


def constants_inside(x):
    @tf.function
    def dense(a):
        return tf.nn.bias_add(tf.matmul(a, random(6, 4)), random(4))

    tf.identity(dense(x), name="out")


def two_results(x):
    @tf.function
    def both(a, b):
        return a + b, a * b

    first, second = both(x, tf.nn.relu(x))
    tf.subtract(second, first, name="out")


def two_calls(x):
    @tf.function
    def halve(a):
        return tf.nn.relu(a) / 2.0

    tf.add(halve(halve(x)), halve(x - 1.0), name="out")


def argument_is_result(x):
    @tf.function
    def same(a, b):
        return b, a

    first, second = same(x, tf.nn.relu(x))
    tf.subtract(first, second, name="out")


def no_call(x):
    tf.nn.relu(x, name="out")


CASES = [
    Case("layer", net(layer), NAME, OURS),
    Case("constants inside", net(constants_inside), NAME, OURS),
    Case("two results", net(two_results), NAME, OURS),
    Case("two calls", net(two_calls), NAME, OURS),
    Case("an argument is a result", net(argument_is_result), NAME, OURS),
    Case("no call", net(no_call), NAME, OURS),
    Case("frozen Fashion, Keras", fashion_keras, NAME, OURS),
]
