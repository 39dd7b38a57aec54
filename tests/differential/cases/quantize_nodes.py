"""Float ops become TensorFlow's first 8-bit ops, node for node as the original wrote them."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, conv, net, placeholder
from tests.support import built, random, tf

NAME = "quantize_nodes"
STEPS = 6 / 255  # of a layer; a sum of two has twice as many
INPUTS = f"{NAME}(input_min=-10, input_max=10)"
CONSTANTS = ("constants in 8 bits",)
CUT = (*CONSTANTS, "ranges that survive")
KEPT = ("attributes that are kept",)


def matmul(m, n, k, low=-1.0, high=1.0):
    """Return a product of m x n and n x k."""
    return net(
        lambda raw, x: raw.MatMul(a=x, b=const(random(n, k, low=low, high=high), "w"), name="out"),
        m, n,
    )  # fmt: skip


@built(["x", "y"], ["out"])
def both_fed():
    tf.raw_ops.MatMul(a=placeholder(2, 4), b=placeholder(4, 3, name="y"), name="out")


def with_vector(op, *shape):
    return net(
        lambda raw, x: getattr(raw, op)(x=x, y=const(random(shape[-1]), "w"), name="out"), *shape
    )


def convolution(*kernel, shape, **attrs):
    return net(lambda raw, x: conv(x, random(*kernel), "out", **attrs), *shape)


def pool(op, size, step, padding, shape=(2, 7, 6, 3)):
    return net(
        lambda raw, x: getattr(raw, op)(
            **{"value" if op == "AvgPool" else "input": x},
            ksize=[1, size, size, 1], strides=[1, step, step, 1], padding=padding, name="out",
        ),
        *shape,
    )  # fmt: skip


def bias(raw, x, name="out"):
    b = const(random(x.shape[-1], seed=len(name)), f"{name}/b")
    return raw.BiasAdd(value=x, bias=b, name=name)


def concat(raw, x):
    other = const(random(2, 5, seed=3), "w")
    raw.Concat(concat_dim=const(0, "axis"), values=[x, other], name="out")


def resize(align_corners):
    return net(
        lambda raw, x: raw.ResizeBilinear(
            images=x, size=const([12, 14], "size"), align_corners=align_corners, name="out"
        ),
        2, 7, 6, 3,
    )  # fmt: skip


def layer(raw, x, name="conv", channels=4):
    """Add a convolution, a bias and a Relu."""
    y = conv(x, random(3, 3, x.shape[-1], channels), name, padding="SAME")
    return raw.Relu(features=bias(raw, y, f"{name}/biased"), name=f"{name}/relu")


def branch(raw, x):
    y = layer(raw, x)
    pools = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    a = raw.MaxPool(input=y, name="a", **pools)
    b = raw.AvgPool(value=y, name="b", **pools)
    raw.Concat(concat_dim=const(3, "axis"), values=[a, b], name="out")


def residual(raw, x):
    y = layer(raw, x)
    raw.Add(x=layer(raw, y, "again"), y=y, name="out")


def read_as_float(raw, x):
    y = layer(raw, x)
    raw.Sigmoid(x=y, name="float")
    raw.MaxPool(input=y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", name="out")


def classifier(raw, x):
    y = layer(raw, x)
    y = raw.MaxPool(input=y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", name="p")
    y = raw.Reshape(tensor=y, shape=const([2, 36], "form"), name="flat")
    y = raw.MatMul(a=y, b=const(random(36, 5), "dense/w"), name="dense")
    y = raw.Mul(x=y, y=const(random(5), "scale"), name="scaled")
    raw.Softmax(logits=bias(raw, y, "biased"), name="out")


def residual_v2(raw, x):
    y = layer(raw, x)
    raw.AddV2(x=layer(raw, y, "again"), y=y, name="out")


def concat_v2(raw, x):
    y = raw.Relu(features=x, name="relu")
    z = raw.Relu6(features=y, name="relu6")
    raw.ConcatV2(values=[y, z], axis=const(1, "axis"), name="out")


def whole_numbers(raw, x):
    count = placeholder(2, 6, name="count", dtype="int32")
    y = raw.Relu(features=raw.Reshape(tensor=count, shape=const([3, 4], "form"), name="flat"))
    raw.Add(x=tf.cast(y, tf.float32), y=x, name="out")


def fake_quant(raw, x, name="out", low=0.0, high=6.0, **attrs):
    ends = const(low, f"{name}/low"), const(high, f"{name}/high")
    return raw.FakeQuantWithMinMaxVars(inputs=x, min=ends[0], max=ends[1], name=name, **attrs)


def fake_after_conv(raw, x):
    fake_quant(raw, conv(x, random(3, 3, 3, 4)))


def fake_after_chain(raw, x):
    y = layer(raw, x)
    y = raw.MaxPool(input=y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", name="p")
    fake_quant(raw, y)


def fake_read_twice(raw, x):
    y = layer(raw, x)
    fake_quant(raw, y)
    raw.Sigmoid(x=y, name="float")


IMAGE = (2, 6, 6, 3)
FLOAT = ("out", "float")
CASES = [
    Case("matrix product 1x1x1", matmul(1, 1, 1), NAME, deviations=CONSTANTS),
    Case("matrix product 1x2x1, below zero", matmul(1, 2, 1), NAME, deviations=CONSTANTS,
         tolerance=1e-5),
    Case("matrix product 1x1x2", matmul(1, 1, 2), NAME, deviations=CONSTANTS),
    Case("matrix product 2x4x3", matmul(2, 4, 3), NAME, deviations=CONSTANTS),
    Case("matrix product with positive weights", matmul(2, 4, 3, low=0.5), NAME,
         deviations=CONSTANTS),
    Case("matrix product with negative weights", matmul(2, 4, 3, high=-0.5), NAME,
         deviations=CONSTANTS),
    Case("matrix product with zeros", matmul(1, 1, 2, 0, 0), NAME,
         deviations=(*CONSTANTS, "range of zeros")),
    Case("matrix product of what is fed", both_fed, NAME),
    Case("matrix product, transposed", net(
        lambda raw, x: raw.MatMul(a=x, b=const(random(3, 4), "w"), transpose_a=True,
                                  transpose_b=True, name="out"), 4, 2), NAME,
         deviations=CONSTANTS),
    Case("Mul with a vector", with_vector("Mul", 10, 100), NAME, deviations=CONSTANTS),
    Case("Add with a vector", with_vector("Add", 10, 100), NAME, deviations=CONSTANTS),
    Case("convolution, odd padding",
         convolution(3, 3, 1, 1, shape=(1, 4, 4, 1), strides=(1, 2, 2, 1), padding="SAME"), NAME,
         deviations=CONSTANTS),
    Case("convolution, stride 1", convolution(3, 3, 1, 1, shape=(1, 4, 3, 1), padding="SAME"),
         NAME, deviations=CONSTANTS),
    Case("convolution, VALID", convolution(2, 3, 3, 8, shape=IMAGE), NAME, deviations=CONSTANTS),
    Case("BiasAdd", net(bias, 2, 5, 6, 4), NAME, deviations=CONSTANTS),
    Case("Relu", net(lambda raw, x: raw.Relu(features=x, name="out"), 3, 5), NAME),
    Case("Relu6", net(lambda raw, x: raw.Relu6(features=x, name="out"), 3, 5), NAME),
    Case("MaxPool", pool("MaxPool", 2, 2, "SAME"), NAME),
    Case("AvgPool", pool("AvgPool", 3, 1, "VALID"), NAME),
    Case("AvgPool, SAME", pool("AvgPool", 3, 2, "SAME"), NAME),
    Case("Concat", net(concat, 3, 5), NAME, deviations=CONSTANTS),
    Case("Reshape",
         net(lambda raw, x: raw.Reshape(tensor=x, shape=const([10, 2], "form"), name="out"), 4, 5),
         NAME, deviations=KEPT),
    Case("ResizeBilinear", resize(False), NAME, deviations=KEPT),
    Case("ResizeBilinear, align_corners", resize(True), NAME, deviations=KEPT),
    Case("a branch", net(branch, *IMAGE), NAME, deviations=CUT, tolerance=STEPS),
    Case("a residual Add", net(residual, *IMAGE), NAME, deviations=CUT, tolerance=2 * STEPS),
    Case("a residual AddV2, as if it were Add", net(residual_v2, *IMAGE),
         f"rename_op(old_op_name=AddV2, new_op_name=Add) {NAME}", NAME, CUT, 2 * STEPS),
    Case("AddV2 with a vector", with_vector("AddV2", 10, 100), NAME,
         deviations=("AddV2 and ConcatV2",), tolerance=STEPS),
    Case("ConcatV2", net(concat_v2, 3, 5), NAME, deviations=("AddV2 and ConcatV2",),
         tolerance=STEPS),
    Case("a second reader of floats", net(read_as_float, *IMAGE, outputs=FLOAT), NAME,
         deviations=CUT, tolerance=STEPS),
    Case("classifier", net(classifier, *IMAGE), NAME, deviations=CUT + KEPT, tolerance=STEPS),
    Case("quantize_weights before it", net(classifier, *IMAGE),
         f"quantize_weights(minimum_size=16) {NAME}",
         f"quantize_weights(minimum_size=16, per_channel=false) {NAME}",
         deviations=CUT + KEPT, tolerance=STEPS),
    Case("fallback range", net(classifier, *IMAGE),
         f"{NAME}(fallback_min=-10, fallback_max=100)", deviations=CONSTANTS + KEPT),
    Case("input range -1...100", net(classifier, *IMAGE), f"{NAME}(input_min=-1, input_max=100)",
         deviations=CUT + KEPT, tolerance=STEPS),
    Case("input range -10...10", net(classifier, *IMAGE), INPUTS, deviations=CUT + KEPT,
         tolerance=STEPS),
    Case("ignore_op", net(classifier, *IMAGE), f"{NAME}(ignore_op=MatMul)",
         deviations=CUT + KEPT, tolerance=STEPS),
    Case("ignore_op twice", net(classifier, *IMAGE), f"{NAME}(ignore_op=MatMul, ignore_op=Mul)",
         deviations=CUT + KEPT, tolerance=STEPS),
    Case("fake quantization", net(fake_quant, 3, 5), NAME),
    Case("fake quantization, -3...5", net(
        lambda raw, x: fake_quant(raw, x, low=-3.0, high=5.0), 3, 5), NAME),
    Case("fake quantization of a convolution", net(fake_after_conv, *IMAGE), NAME,
         deviations=CONSTANTS),
    Case("fake quantization behind a chain", net(fake_after_chain, *IMAGE), NAME,
         deviations=CONSTANTS),
    Case("fake quantization of what is read twice", net(fake_read_twice, *IMAGE, outputs=FLOAT),
         NAME, deviations=CUT, tolerance=STEPS),
    Case("whole numbers", net(whole_numbers, 3, 4, inputs=("x", "count")), NAME),
    *(Refusal(f"{given} alone", both_fed, f"{NAME}({given}=1)", f"{kind}_min and {kind}_max",
              error_of("fallback-range-half", names=[f"{kind}_min", f"{kind}_max"]))
      for kind in ("input", "fallback") for given in (f"{kind}_min", f"{kind}_max")),
]  # fmt: skip
