"""Ops that the original writes as 8-bit ops that compute something else, or not at all."""

import numpy as np

from tests.differential.cases.quantize_nodes import fake_quant
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, conv, net, placeholder, without_attrs
from tests.differential.judging import (
    Right,
    Shown,
    aborts,
    does_not_run,
    does_not_run_in_onednn,
    fails,
    gives,
    is_wrong,
    keeps,
    leaves,
    makes,
    refuses,
    stays,
)
from tests.support import built, random, tf

NAME = "quantize_nodes"
ONE_OP = 0.024  # half a step for each operand and the result, twice: see its own tests
IMAGE = (1, 6, 6, 3)
INPUTS = f"{NAME}(input_min=-1, input_max=1)"
EXPLICIT = [0, 0, 1, 2, 0, 1, 0, 0]


def convolution(shape=IMAGE, kernel=(3, 3, 3, 4), **attrs):
    return net(lambda raw, x: conv(x, random(*kernel), "out", **attrs), *shape)


def left(what, graph, shown: Shown, original, **counts):
    """Return a defect of what deploykit leaves float."""
    return Defect(NAME, what, graph, NAME, original, shown, "skips it with a reason",
                  stays(**counts))  # fmt: skip


def left_unrun(what, graph, shown: Shown, original):
    """Return a defect of what deploykit leaves float, where TensorFlow has no float kernel."""
    right: Right = gives(lambda before, after: str(after) == str(before) and bool(after.skipped))
    return Defect(NAME, what, graph, NAME, original, shown, "skips it with a reason", right)


def pool_of_channels(raw, x):
    sizes = [1, 1, 1, 2]
    raw.MaxPool(input=x, ksize=sizes, strides=sizes, padding="VALID", name="out")


def explicit_pool(raw, x):
    raw.MaxPool(input=x, ksize=[1, 3, 3, 1], strides=[1, 1, 1, 1], padding="EXPLICIT",
                explicit_paddings=EXPLICIT, name="out")  # fmt: skip


def v2(op):
    def make(raw, x):
        y, z = raw.Relu(features=x, name="a"), raw.Relu6(features=x, name="b")
        if op == "AddV2":
            raw.AddV2(x=y, y=z, name="out")
        else:
            raw.ConcatV2(values=[y, z], axis=const(1, "axis"), name="out")

    return net(make, 3, 5)


def resize(raw, x):
    raw.ResizeBilinear(images=x, size=const([13, 12], "size"), half_pixel_centers=True, name="out")


def fed_relu():
    def make(raw, x):
        raw.Relu6(features=raw.Relu(features=x, name="relu"), name="out")

    return net(make, 3, 5, inputs=("x", "relu"))()


@built(["x", "count"], ["out"])
def whole_and_float():
    count = tf.cast(placeholder(3, 5, name="count", dtype="int32"), tf.float32, name="cast")
    tf.raw_ops.Relu(features=tf.raw_ops.Sub(x=placeholder(3, 5), y=count), name="out")


def add_itself(raw, x):
    raw.Add(x=x, y=x, name="out")


def linear_chain(raw, x):
    fake_quant(raw, raw.Neg(x=x, name="minus"), low=-1.0, high=0.0)


def with_nan(raw, x):
    raw.Add(x=x, y=const(np.array([0, np.nan, 1], np.float32), "w"), name="out")


def tiny_weights(raw, x):
    raw.MatMul(a=x, b=const(random(5, 7) * np.float32(1e-4), "w"), name="out")


def ones(raw, x):
    raw.Add(x=x, y=const(random(6, 1), "w"), name="out")


def matmul(raw, x):
    raw.MatMul(a=x, b=const(random(5, 7), "w"), name="out")


def has_weights(dtype):
    return makes(lambda before, after: after["w"].attr("dtype") == dtype)


def takes_codes(name, dtype):
    return makes(lambda before, after: after[name].attr("dtype") == dtype)


DEFECTS = [
    left_unrun("data_format NCHW of a convolution",
               convolution((1, 3, 6, 6), (3, 3, 3, 4), data_format="NCHW"),
               does_not_run(""), "drops it: the graph no longer loads"),
    left("data_format NCHW of a bias", net(
        lambda raw, x: raw.BiasAdd(value=x, bias=const(random(3) * 10, "b"), data_format="NCHW",
                                   name="out"), 2, 3, 4, 3), is_wrong,
         "drops it: wrong outputs", BiasAdd=1),
    left("dilations", convolution(dilations=[1, 2, 2, 1]), is_wrong,
         "drops them: wrong shape", Conv2D=1),
    left("explicit_paddings of a convolution",
         convolution(padding="EXPLICIT", explicit_paddings=EXPLICIT),
         does_not_run(""), "the graph no longer loads", Conv2D=1),
    left("explicit_paddings of a pool", net(explicit_pool, *IMAGE), does_not_run(""),
         "the graph no longer loads", MaxPool=1),
    Defect(NAME, "half_pixel_centers", net(resize, *IMAGE), NAME, "drops it: wrong outputs",
           is_wrong, "keeps it", keeps(ONE_OP, QuantizedResizeBilinear=1)),
    left("different strides for height and width", convolution(strides=(1, 1, 2, 1)),
         does_not_run(""), "the graph no longer runs", Conv2D=1),
    left("a convolution with groups", convolution((1, 6, 6, 4), (3, 3, 2, 4)),
         does_not_run(""), "the graph no longer loads", Conv2D=1),
    left("a pool of channels", net(pool_of_channels, 1, 4, 4, 4), does_not_run_in_onednn,
         "the graph no longer runs", MaxPool=1),
    left("a sum that broadcasts a trailing 1", net(ones, 6, 5), is_wrong, "wrong outputs", Add=1),
    Defect(NAME, "a sum of a tensor with itself", net(add_itself, 3, 5), NAME,
           "stops with an error", fails("contains a cycle"), "quantizes it", keeps(ONE_OP,
           QuantizedAdd=1)),
    *(Defect(NAME, f"{op}, as TensorFlow 2 writes it", v2(op), NAME, "does not support it",
             leaves(**{op: 1}), "quantizes it", keeps(ONE_OP, **{op: 0}))
      for op in ("AddV2", "ConcatV2")),
    left("FakeQuantWithMinMaxVars with num_bits=4",
         net(lambda raw, x: fake_quant(raw, x, num_bits=4), 3, 5), is_wrong,
         "rounds to 8 bits: wrong outputs", FakeQuantWithMinMaxVars=1),
    Defect(NAME, "FakeQuantWithMinMaxVars after an op that changes values",
           net(linear_chain, 3, 5), NAME, "rounds before it: wrong outputs", is_wrong,
           "rounds after it", keeps(ONE_OP)),
    Defect(NAME, "an inner node that is fed", fed_relu, NAME, "ignores the fed value",
           is_wrong, "keeps it", keeps(ONE_OP, Relu=1)),
    Defect(NAME, "a placeholder of int32, with input_min and input_max", whole_and_float, INPUTS,
           "makes it take codes", takes_codes("count", "quint8"), "skips it with a reason",
           gives(lambda before, after: after["count"] == before["count"] and after.skipped)),
    left("a constant with a NaN", net(with_nan, 2, 3), does_not_run(""),
         "the graph no longer runs", Add=1),
    Defect(NAME, "weights close to zero", net(tiny_weights, 3, 5), NAME,
           "gives them a range of 0.01: wrong outputs", is_wrong, "gives them their own",
           keeps(ONE_OP, QuantizedMatMul=1)),
    Defect(NAME, "weights, without quantize_weights", net(matmul, 3, 5), NAME,
           "keeps them in float32, quantizes them in each run", has_weights("float32"),
           "stores 8-bit weights", keeps(ONE_OP, QuantizeV2=1)),
    Defect(NAME, "an op without an attribute that has a default",
           lambda: without_attrs(net(matmul, 3, 5)(), "out", "transpose_a"), NAME, "aborts",
           aborts("transpose_a"), "uses the default", keeps(ONE_OP, QuantizedMatMul=1)),
    Defect(NAME, "input_min above input_max",
           net(lambda raw, x: raw.Relu(features=x, name="out"), 3, 5),
           f"{NAME}(input_min=1, input_max=-1)", "takes them", takes_codes("x", "quint8"),
           "names them", refuses("fallback-range-invalid")),
]  # fmt: skip
