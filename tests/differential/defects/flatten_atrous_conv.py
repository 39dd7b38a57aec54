"""Convolutions between SpaceToBatchND and BatchToSpaceND that the original flattens wrongly."""

from tests.differential.cases.flatten_atrous_conv import atrous, conv2d
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, conv, without_attrs
from tests.differential.judging import aborts, is_wrong, keeps, makes, stays
from tests.support import random, tf

NAME = "flatten_atrous_conv"
ONE_LAYER = 6e-6
NONE = ((0, 0), (0, 0))
PLAIN = atrous(conv2d(2, 2, 2, 1))
GONE = {"SpaceToBatchND": 0, "BatchToSpaceND": 0}


def read_weights(x):
    w = const(random(2, 2, 2, 1), "w")
    return conv(x, tf.raw_ops.Identity(input=w, name="w/read"))


def computed_weights(x):
    w = tf.raw_ops.AddV2(x=const(random(2, 2, 2, 1), "a"), y=const(random(1), "b"), name="w")
    return conv(x, w)


def shared_weights():
    graph = PLAIN()
    graph.add(graph["conv"].with_name("plain").with_data_inputs("x", "conv/w"))
    graph.outputs = ("out", "plain")
    return graph


def layer_is_output():
    graph = PLAIN()
    graph.outputs = ("conv", "out")
    return graph


DEFECTS = [
    Defect(NAME, "paddings and crops without the border",
           atrous(conv2d(2, 2, 2, 1), NONE, NONE, size=(4, 4)), NAME,
           "treats them as SAME: wrong shape", is_wrong, "flattens with VALID",
           keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "paddings that are not those of SAME",
           atrous(conv2d(3, 3, 2, 1), ((4, 0), (4, 0)), NONE, size=(6, 6)), NAME,
           "treats them as SAME: wrong outputs", is_wrong, "flattens with explicit paddings",
           keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "weights behind an Identity", atrous(read_weights), NAME, "aborts",
           aborts(""), "flattens", keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "computed weights", atrous(computed_weights), NAME, "aborts",
           aborts(""), "skips it with a reason", stays(BatchToSpaceND=1)),
    Defect(NAME, "a layer without the attribute data_format",
           lambda: without_attrs(PLAIN(), "conv", "data_format"), NAME, "aborts",
           aborts("data_format"), "uses the op's default", keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "strides of the layer",
           atrous(conv2d(2, 2, 2, 1, strides=(1, 2, 2, 1)), NONE, NONE, size=(8, 8)), NAME,
           "wrong shape", is_wrong, "skips it with a reason", stays(BatchToSpaceND=1)),
    Defect(NAME, "dilations of the layer",
           atrous(conv2d(2, 2, 2, 1, dilations=(1, 2, 2, 1)), ((2, 2), (2, 2)), NONE,
                  size=(6, 6)), NAME, "drops them: wrong outputs", is_wrong,
           "keeps them", keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "weights that another layer reads", shared_weights, NAME,
           "the other layer gets the larger kernel", is_wrong, "gives it a copy",
           keeps(ONE_LAYER, **GONE)),
    Defect(NAME, "a layer that is an output as well", layer_is_output, NAME,
           "the output is missing", makes(lambda before, after: "conv" not in after),
           "skips it with a reason", stays(BatchToSpaceND=1)),
]  # fmt: skip
