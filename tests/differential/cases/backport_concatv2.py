"""ConcatV2 becomes Concat."""

from tests.differential.case import Case
from tests.differential.graphs import const, fashion_keras, net

NAME = "backport_concatv2"


def join(raw, x, axis, dtype="int32", name="joined"):
    """Return three tensors joined."""
    others = [raw.Neg(x=x, name=f"{name}/negative"), raw.Exp(x=x, name=f"{name}/power")]
    axis = const(axis, f"{name}/axis", dtype)
    return raw.ConcatV2(values=[x, *others], axis=axis, name=name)


def rows(raw, x):
    raw.Relu(features=join(raw, x, 0), name="out")


def columns(raw, x):
    raw.Relu(features=join(raw, x, -1), name="out")


def computed_axis(raw, x):
    axis = raw.Sub(x=const(2, "two"), y=const(1, "one"), name="axis")
    joined = raw.ConcatV2(values=[x, raw.Neg(x=x, name="minus")], axis=axis, name="joined")
    raw.Relu(features=joined, name="out")


def two(raw, x):
    again = join(raw, join(raw, x, 1), 0, name="again")
    raw.Relu(features=again, name="out")


def by_port(raw, x):
    parts = raw.Split(axis=const(1, "axis"), value=x, num_split=3, name="parts")
    turned = [parts[2], parts[0], parts[1]]
    raw.ConcatV2(values=turned, axis=const(1, "joined/axis"), name="out")


def old_concat(raw, x):
    joined = raw.Concat(concat_dim=const(0, "axis"), values=[x, x], name="joined")
    raw.Relu(features=joined, name="out")


CASES = [
    Case("rows", net(rows), NAME),
    Case("columns, counted from the end", net(columns), NAME),
    Case("a computed axis", net(computed_axis), NAME),
    Case("two, one reads the other", net(two), NAME),
    Case("inputs by port, and an output", net(by_port), NAME),
    Case("a Concat stays", net(old_concat), NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
]
