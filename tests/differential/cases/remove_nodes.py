"""Nodes are bypassed to their first input."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, fashion_keras, fashion_tf1, net, two_layers
from tests.support import random, tf


def fan_out(raw, x):
    same = raw.Identity(input=x, name="same")
    a, b = raw.Relu(features=same, name="a"), raw.Neg(x=same, name="b")
    raw.Mul(x=a, y=raw.Sub(x=b, y=same, name="c"), name="out")


def identity_output(raw, x):
    raw.Identity(input=raw.Relu(features=x, name="relu"), name="out")


def chain(raw, x):
    for name in ("one", "two", "three"):
        x = raw.Identity(input=x, name=name)
    raw.Relu(features=x, name="out")


def mixed_chain(raw, x):
    y = raw.CheckNumerics(tensor=raw.Identity(input=x, name="one"), message="", name="two")
    raw.Relu(features=raw.StopGradient(input=y, name="three"), name="out")


def fake_quant(raw, x):
    low, high = const(-1.0, "low"), const(1.0, "high")
    y = raw.FakeQuantWithMinMaxVars(inputs=x, min=low, max=high, name="fake")
    raw.Relu(features=y, name="out")


def second_port(raw, x):
    parts = raw.Split(axis=const(1, "axis"), value=x, num_split=3, name="parts")
    same = raw.Identity(input=parts[2], name="same")
    raw.Mul(x=same, y=parts[0], name="out")


def reader_with_control(raw, x):
    y = raw.Identity(input=raw.Relu(features=x, name="relu"), name="same")
    with tf.control_dependencies([y]):
        raw.Neg(x=x, name="out")


def fed_identity(raw, x):
    y = raw.Identity(input=raw.Relu(features=x, name="relu"), name="same")
    raw.Neg(x=y, name="out")


def dropout(raw, x):
    raw.Relu(features=raw.Mul(x=x, y=const(random(2, 3), "mask"), name="drop"), name="out")


def constant_behind(raw, x):
    w = raw.Identity(input=const(random(3, 4), "w"), name="w/read")
    raw.MatMul(a=x, b=w, name="out")


def two_ops(raw, x):
    y = raw.Identity(input=x, name="same")
    raw.Relu(features=raw.PreventGradient(input=y, message="", name="stop"), name="out")


def second_output_of_identity_n(raw, x):
    raw.Sub(x=raw.Snapshot(input=x, name="shot"), y=x, name="out")


IDENTITY = "remove_nodes(op=Identity)"

CASES = [
    Case("fan-out", net(fan_out), IDENTITY),
    Case("an output stays", net(identity_output), IDENTITY),
    Case("chain", net(chain), IDENTITY),
    Case("chain of several ops", net(mixed_chain),
         "remove_nodes(op=Identity, op=CheckNumerics, op=StopGradient)"),
    Case("FakeQuant, three inputs", net(fake_quant),
         "remove_nodes(op=FakeQuantWithMinMaxVars, max_inputs=3)"),
    Case("FakeQuant, too many inputs", net(fake_quant),
         "remove_nodes(op=FakeQuantWithMinMaxVars)"),
    Case("two inputs, the first stays", net(dropout), "remove_nodes(op=Mul, max_inputs=2)"),
    Case("a second output is passed on", net(second_port), IDENTITY),
    Case("what waited waits for what it stood for", net(reader_with_control), IDENTITY),
    Case("a fed node stays", net(fed_identity, inputs=["same"]), IDENTITY),
    Case("behind a constant", net(constant_behind), IDENTITY),
    Case("one of two ops", net(two_ops), "remove_nodes(op=PreventGradient)"),
    Case("Snapshot", net(second_output_of_identity_n), "remove_nodes(op=Snapshot)"),
    Case("an op that does not occur", net(chain), "remove_nodes(op=CheckNumerics)"),
    Case("small net", two_layers, "remove_nodes(op=Identity, op=CheckNumerics)",
         deviations=("pruned",)),
    Case("frozen Fashion, TF1", fashion_tf1, IDENTITY),
    Case("frozen Fashion, Keras", fashion_keras, IDENTITY),
    Refusal("no op", net(chain), "remove_nodes", "op",
            error_of("parameter-missing", name="op")),
    Refusal("max_inputs is no number", net(chain), "remove_nodes(op=Identity, max_inputs=two)",
            "Couldn't interpret the max_inputs argument as a number:two",
            error_of("parameter-value", name="max_inputs", got="two")),
    Refusal("max_inputs twice", net(chain),
            "remove_nodes(op=Identity, max_inputs=1, max_inputs=2)",
            "Expected a single 'max_inputs' parameter, but found 2",
            error_of("parameter-twice", name="max_inputs")),
]  # fmt: skip
