"""Equal nodes become one; which of them is up to each tool."""

from tests.differential.case import Case
from tests.differential.graphs import const, fashion_keras, fashion_tf1, net, two_layers
from tests.support import random, tf


def two_constants(raw, x):
    a, b = const(random(3), "a"), const(random(3), "b")
    raw.Mul(x=raw.AddV2(x=x, y=a, name="sum"), y=b, name="out")


def nested(raw, x):
    one = raw.Relu(features=raw.Neg(x=x, name="one"), name="one/relu")
    two = raw.Relu(features=raw.Neg(x=x, name="two"), name="two/relu")
    raw.Mul(x=one, y=two, name="out")


def two_outputs(raw, x):
    raw.Relu(features=x, name="a")
    raw.Relu(features=x, name="b")


def output_is_kept(raw, x):
    y = raw.Relu(features=x, name="first")
    raw.Neg(x=y, name="minus")
    raw.Relu(features=x, name="out")


def nearly_equal(raw, x):
    """Constants that differ in type, shape or value, and ops that differ in an attribute."""
    a = const([1.0, 2.0, 3.0], "a")
    b = const([[1.0, 2.0, 3.0]], "b")
    c = raw.Cast(x=const([1, 2, 3], "c"), DstT=tf.float32, name="cast")
    y = raw.AddN(inputs=[raw.Mul(x=x, y=v, name=f"m{i}") for i, v in enumerate((a, b, c))],
                 name="sum")  # fmt: skip
    s = raw.Sum(input=y, axis=const(1, "axis"), keep_dims=True, name="kept")
    t = raw.Sum(input=y, axis=const(0, "other"), keep_dims=True, name="other_axis")
    raw.Mul(x=s, y=t, name="out")


def random_values(raw, x):
    shape = const([2, 3], "shape")
    zero = const(0.0, "zero")
    noise = [
        raw.Mul(x=raw.RandomUniform(shape=shape, dtype=tf.float32, name=f"r{i}"), y=zero,
                name=f"none{i}") for i in range(2)
    ]  # fmt: skip
    raw.AddN(inputs=[x, *noise], name="out")


def two_devices(raw, x):
    with tf.device("/CPU:0"):
        a = raw.Relu(features=x, name="a")
    raw.Mul(x=a, y=raw.Relu(features=x, name="b"), name="out")


def operands_turned(raw, x):
    y = raw.Neg(x=x, name="y")
    a, b = raw.Sub(x=x, y=y, name="a"), raw.Sub(x=y, y=x, name="b")
    raw.Mul(x=a, y=b, name="out")


def ports(raw, x):
    parts = [raw.Split(axis=const(1, f"axis{i}"), value=x, num_split=3, name=f"s{i}")
             for i in range(2)]  # fmt: skip
    a, b = raw.Neg(x=parts[0][2], name="a"), raw.Neg(x=parts[1][2], name="b")
    raw.AddN(inputs=[a, b, parts[0][0], parts[1][1]], name="out")


NAME = "merge_duplicate_nodes"
EITHER = ("which of equals stays",)

CASES = [
    Case("two constants", net(two_constants), NAME),
    Case("nested", net(nested), NAME, deviations=EITHER),
    Case("two outputs stay", net(two_outputs, outputs=["a", "b"]), NAME),
    Case(
        "an output stays for both",
        net(output_is_kept, outputs=["minus", "out"]),
        NAME,
        deviations=("outputs stand for their equals",),
    ),
    Case("nearly equal", net(nearly_equal), NAME),
    Case("random values", net(random_values), NAME),
    Case("two devices", net(two_devices), NAME),
    Case("operands turned round", net(operands_turned), NAME),
    Case("several ports", net(ports), NAME, deviations=EITHER),
    Case("small net", two_layers, NAME, deviations=EITHER),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
]
