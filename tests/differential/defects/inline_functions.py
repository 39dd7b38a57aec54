"""Calls that the original does not inline; see also inline_partitionedcall.py."""

from tests.differential.cases.inline_functions import net as calls
from tests.differential.defects.defect import Defect
from tests.differential.judging import keeps, leaves
from tests.support import tf

INLINE = "inline_partitionedcall"


def second_output(x):
    @tf.function
    def positions(a):
        return tf.math.top_k(a, 3)[1]

    tf.cast(positions(x), tf.float32, name="out")


def nested(x):
    @tf.function
    def inner(a):
        return tf.nn.relu(a)

    @tf.function
    def outer(a):
        return inner(a) + 1.0

    tf.identity(outer(x), name="out")


def stateful(x):
    @tf.function
    def checked(a):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(a < 2.0), [a])]):
            return tf.nn.relu(a)

    tf.identity(checked(x), name="out")


DEFECTS = [
    Defect(INLINE, "a function with effects", calls(stateful), INLINE, "is not inlined",
           leaves(StatefulPartitionedCall=1), "is inlined, with its effects in order",
           keeps(StatefulPartitionedCall=0), ours="inline_functions"),
]  # fmt: skip
