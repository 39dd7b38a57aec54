"""Control inputs go."""

from tests.differential.case import Case
from tests.differential.graphs import const, fashion_keras, fashion_tf1, placeholder, two_layers
from tests.support import built, random, tf


@built(["x"], ["out"])
def waits():
    """Return nodes that wait for one, for two, for a NoOp and for a constant."""
    raw = tf.raw_ops
    x = placeholder(2, 3)
    first, second = raw.Relu(features=x, name="first"), raw.Neg(x=x, name="second")
    anchor = const(random(3), "anchor")
    with tf.control_dependencies([first, second]):
        done = raw.NoOp(name="done")
        y = raw.Mul(x=x, y=anchor, name="y")
    with tf.control_dependencies([done, anchor]):
        raw.AddV2(x=y, y=first, name="out")


NAME = "remove_control_dependencies"

CASES = [
    Case("waits for one, two, a NoOp and a constant", waits, NAME, deviations=("pruned",)),
    Case("small net", two_layers, NAME, deviations=("pruned",)),
    Case("nothing waits", fashion_keras, NAME),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
]
