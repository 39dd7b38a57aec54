"""Constants that the original stores in 8 bits and should not."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.quantize_weights import product_with
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, net, placeholder
from tests.differential.judging import gives, is_wrong, keeps, leaves, makes, refuses
from tests.support import built, random, tf

QUANTIZE = "quantize_weights"
ONE_RANGE = "quantize_weights(per_channel=false)"


def with_one(value):
    weights = random(64, 32)
    weights[3, 4] = value
    return product_with(weights)


def constant_is_output() -> Graph:
    graph = product_with(random(64, 32))()
    graph.outputs = ("out", "w")
    return graph


def positions(raw, x):
    """Return a table of positions that is stored as floats."""
    table = const(np.arange(2048, dtype=np.float32), "table")
    whole = raw.Cast(x=table, DstT=tf.int32, name="positions")
    floats = raw.Cast(x=whole, DstT=tf.float32, name="floats")
    y = raw.StridedSlice(input=floats, begin=const([100], "b"), end=const([103], "e"),
                         strides=const([1], "s"), name="some")  # fmt: skip
    raw.AddV2(x=x, y=y, name="out")


@built(["x"], ["out"])
def batch_norm():
    """Return a batch norm of 1,024 channels whose variances differ as those of real nets do."""
    variance = (10 ** random(1024, low=-4, high=2)).astype(np.float32)
    values = {"offset": random(1024), "mean": random(1024, seed=1), "variance": variance}
    parts = {name: const(value, name) for name, value in values.items()}
    scale = const(random(1024, seed=2), "scale")
    x = placeholder(2, 2, 2, 1024)
    tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, **parts, is_training=False, name="out")


@built(["x"], ["out"])
def weights_with_a_device():
    x = placeholder(2, 64)
    with tf.device("/CPU:0"), tf.control_dependencies([x]):
        w = const(random(64, 32), "w")
    tf.raw_ops.MatMul(a=x, b=w, name="out")


def kept_with_a_device(before: Graph, after: Graph) -> bool:
    codes = after["w_quantized_const"]
    return codes.device == before["w"].device and codes.inputs == before["w"].inputs


DEFECTS = [
    Defect(QUANTIZE, "1,024 zeros or more", product_with(np.zeros((64, 32), np.float32)),
           QUANTIZE, "all values become NaN", is_wrong, "keeps them: a file stores one value",
           keeps(), ours=ONE_RANGE),
    Defect(QUANTIZE, "weights with a NaN", with_one(np.nan), QUANTIZE,
           "silently quantizes them", leaves(Dequantize=1),
           "names the node, and how to skip it", refuses("weights-nan", node="w")),
    Defect(QUANTIZE, "weights with an infinity", with_one(np.inf), QUANTIZE,
           "silently quantizes them", leaves(Dequantize=1),
           "names the node, and how to skip it", refuses("weights-nan", node="w")),
    Defect(QUANTIZE, "a constant that is an output", constant_is_output, QUANTIZE,
           "the output changes", makes(lambda before, after: after["w"].op == "Dequantize"),
           "keeps it", keeps(Dequantize=0)),
    Defect(QUANTIZE, "a table of positions stored as floats",
           net(positions), QUANTIZE,
           "the positions change", is_wrong, "keeps what must be exact", keeps(Dequantize=0)),
    Defect(QUANTIZE, "a batch norm of 1,024 channels or more", batch_norm, QUANTIZE,
           "wrong outputs", is_wrong, "keeps its vectors in float32",
           keeps(Dequantize=0), ours=ONE_RANGE),
    Defect(QUANTIZE, "control inputs and device of the weights", weights_with_a_device, QUANTIZE,
           "are lost", makes(lambda before, after: not kept_with_a_device(before, after)),
           "are kept", gives(kept_with_a_device)),
]  # fmt: skip
