"""What the outputs need stays; inputs become placeholders."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import (
    const,
    fashion_keras,
    fashion_tf1,
    placeholder,
    two_layers,
)
from tests.support import build, built, random, tf


def classifier(inputs, outputs=("out",)):
    """Return a net behind a preprocessing, and a loss that nobody needs."""

    def make():
        raw = tf.raw_ops
        image = raw.Cast(x=placeholder(4, name="raw", dtype="uint8"), DstT=tf.float32, name="image")
        y = raw.Mul(x=image, y=const(1 / 255, "scale"), name="scaled")
        y = raw.Reshape(tensor=y, shape=const([1, 4], "form"), name="row")
        layer = raw.MatMul(a=y, b=const(random(4, 3), "w"), name="layer")
        out = raw.Softmax(logits=layer, name="out")
        labels = placeholder(1, 3, name="labels")
        raw.SoftmaxCrossEntropyWithLogits(features=out, labels=labels, name="loss")

    return lambda: build(make, inputs, outputs)


@built(["relu", "total"], ["out"])
def two_sums():
    raw = tf.raw_ops
    a = raw.AddV2(x=placeholder(2, 3, name="x"), y=const(random(2, 3), "c"), name="a")
    b = raw.Cast(x=placeholder(4, name="y", dtype="int32"), DstT=tf.float32, name="b")
    total = raw.Sum(input=b, axis=const(0, "axis"), keep_dims=True, name="total")
    raw.Mul(x=raw.Relu(features=a, name="relu"), y=total, name="out")


@built(["x"], ["out"])
def waits_for_a_branch():
    """Return an output that waits for a node which it does not read."""
    raw = tf.raw_ops
    x = placeholder(2, 3)
    aside = raw.Neg(x=x, name="aside")
    raw.Exp(x=aside, name="unused")
    with tf.control_dependencies([aside]):
        raw.Relu(features=x, name="out")


NAME = "strip_unused_nodes"

CASES = [
    Case("behind the inputs", classifier(["raw"]), NAME),
    Case("an inner output", classifier(["raw"], ["layer"]), NAME),
    Case("several outputs", classifier(["raw"], ["scaled", "layer"]), NAME),
    Case("both placeholders", classifier(["raw", "labels"], ["out", "loss"]), NAME),
    Case("cut at an inner node", classifier(["scaled"]),
         'strip_unused_nodes(type=float, shape="4")'),
    Case("blanks in a shape", classifier(["row"]),
         'strip_unused_nodes(type=float, shape="1, 4")'),
    Case("cut at two nodes, each on its own", two_sums,
         'strip_unused_nodes(name=relu, type_for_name=float, shape_for_name="2,3", '
         'name=total, type_for_name=float, shape_for_name=1)'),
    Case("one by its name, one by the default", two_sums,
         'strip_unused_nodes(type=float, shape=1, '
         'name=relu, type_for_name=float, shape_for_name="2, 3")'),
    Case("control inputs count", waits_for_a_branch, NAME),
    Case("small net", two_layers, NAME),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
    Refusal("names without types", classifier(["scaled"]), "strip_unused_nodes(name=scaled)",
            "You must pass a 'type_for_name' arg for every 'name'",
            error_of("placeholder-options-count", names=1, types=0, shapes=0)),
    Refusal("unknown type", classifier(["scaled"]), "strip_unused_nodes(type=flaot)",
            "flaot", error_of("type-unknown", name="flaot")),
    Refusal("unknown output", classifier(["raw"], ["nonesuch"]), NAME,
            "nonesuch", error_of("graph-node-missing", name="nonesuch", role="output")),
]  # fmt: skip
