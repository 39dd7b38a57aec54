"""Calls are replaced by the bodies of their functions."""

from tests.differential.case import Case
from tests.differential.cases.inline_functions import (
    argument_is_result,
    constants_inside,
    layer,
    net,
    no_call,
    two_calls,
    two_results,
)
from tests.differential.graphs import fashion_keras
from tests.support import tf

NAME = "inline_partitionedcall"


def two_outputs(x):
    """Return a call whose results are both outputs of the graph's own nodes, and one waits."""

    @tf.function
    def both(a):
        return tf.nn.relu(a), a * 2.0

    first, second = both(x)
    tf.identity(first, name="first")
    with tf.control_dependencies([first]):
        tf.negative(second, name="second")


CASES = [
    Case("layer", net(layer), NAME),
    Case("constants inside", net(constants_inside), NAME),
    Case("two results", net(two_results), NAME),
    Case("two outputs", net(two_outputs, ["first", "second"]), NAME),
    Case("two calls", net(two_calls), NAME),
    Case("an argument is a result", net(argument_is_result), NAME),
    Case("no call", net(no_call), NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
]
