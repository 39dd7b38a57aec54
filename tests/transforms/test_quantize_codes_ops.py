"""What lies before an 8-bit layer, between two, or behind one: OpenVINO computes codes of it alike.

Some ops OpenVINO computes otherwise in float as well (ALSO_IN_FLOAT): a comparison of the float
graph finds those.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from deploykit.transforms.engines.openvino_model import OpenVinoModel
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from tests import pairwise
from tests.support import random, run, tf
from tests.transforms.int8_nets import C, feeds_of, image, layer, relu
from tests.transforms.test_quantize_codes_openvino import agreement, in_codes
from tests.transforms.test_quantize_static import net

BAR_DB = 20.0  # below this, an engine is not taken
H, W = 9, 8


def numbers(*shape, low=-1.0):
    return random(*shape, low=low)


def elementwise() -> dict[str, Callable]:
    """Return ops that need no more than numbers."""
    return {
        "relu6": tf.nn.relu6,
        "leaky": tf.nn.leaky_relu,
        "elu": tf.nn.elu,
        "selu": tf.nn.selu,
        "sigmoid": tf.sigmoid,
        "tanh": tf.tanh,
        "swish": lambda y: y * tf.sigmoid(y),
        "hard swish": lambda y: y * tf.nn.relu6(y + 3) / 6,
        "softplus": tf.nn.softplus,
        "exp": tf.exp,
        "square": tf.square,
        "sqrt": lambda y: tf.sqrt(tf.abs(y)),
        "neg": lambda y: -y,
        "abs": tf.abs,
        "plus": lambda y: y + numbers(C),
        "less": lambda y: 1 - y,
        "times": lambda y: y * numbers(C),
        "times a negative": lambda y: y * -1.5,
        "over": lambda y: y / numbers(C, low=0.5),
        "maximum": lambda y: tf.maximum(y, 0.3),
        "minimum": lambda y: tf.minimum(y, 0.3),
        "clip": lambda y: tf.clip_by_value(y, -0.2, 0.4),
        "norm": lambda y: (y - numbers(C)) * numbers(C) + numbers(C),
        "where": lambda y: tf.where(y > 0.2, y, y * 0.1),
        "softmax": tf.nn.softmax,
        "l2": lambda y: tf.nn.l2_normalize(y, -1),
        "layer norm": lambda y: (
            (y - tf.reduce_mean(y, -1, keepdims=True))
            * tf.math.rsqrt(tf.math.reduce_variance(y, -1, keepdims=True) + 1e-3)
        ),
        "whole": lambda y: tf.cast(tf.cast(y * 5, tf.int32), tf.float32),
        "some": lambda y: y[..., 2:],
        "gather": lambda y: tf.gather(y, [0, 2, 3, 5], axis=-1),
        "joined": lambda y: tf.concat([y, tf.sigmoid(y)], -1),
        "largest": lambda y: tf.math.top_k(y, 4)[0],
        "sums": lambda y: tf.cumsum(y, 1) * 0.1,
        "max": lambda y: y - tf.reduce_max(y, -1, keepdims=True),
    }


def of_images() -> dict[str, Callable]:
    """Return ops on images."""
    raw = tf.raw_ops
    return {
        "max pool": lambda y: tf.nn.max_pool2d(y, 3, 1, "SAME"),
        "mean pool": lambda y: tf.nn.avg_pool2d(y, 3, 2, "SAME"),
        "bilinear": lambda y: tf.image.resize(y, [12, 10]),
        "nearest": lambda y: tf.image.resize(y, [18, 16], "nearest"),
        "corners": lambda y: raw.ResizeBilinear(images=y, size=[17, 15], align_corners=True),
        "transpose": lambda y: tf.transpose(y, [0, 2, 1, 3]),
        "slice": lambda y: y[:, 1:8, ::2],
        "shuffle": lambda y: tf.reshape(
            tf.transpose(tf.reshape(y, [-1, H, W, 2, 3]), [0, 1, 2, 4, 3]), [-1, H, W, C]
        ),
        "blocks": lambda y: raw.SpaceToDepth(input=y[:, :8], block_size=2),
        "pad": lambda y: tf.pad(y, [[0, 0], [1, 1], [2, 0], [0, 0]]),
        "pad with a number": lambda y: tf.pad(
            y, [[0, 0], [1, 1], [2, 0], [0, 0]], constant_values=0.5
        ),
        "mirror": lambda y: tf.pad(y, [[0, 0], [1, 1], [2, 1], [0, 0]], "REFLECT"),
        "twice": lambda y: tf.concat([y, y], 1),
        "stack": lambda y: tf.reshape(tf.stack([y, -y], 2), [-1, 18, W, C]),
        "squeeze and excite": lambda y: y * tf.sigmoid(tf.reduce_mean(y, [1, 2], keepdims=True)),
        "excite by the largest": lambda y: y * tf.sigmoid(tf.reduce_max(y, [1, 2], keepdims=True)),
        "attention": lambda y: tf.concat(
            [tf.reduce_max(y, -1, keepdims=True), tf.reduce_mean(y, -1, keepdims=True)], -1
        ),
        "least": lambda y: tf.reduce_min(y, -1, keepdims=True),
        "largest of rows": lambda y: tf.reduce_max(y, 2, keepdims=True),
        "tile": lambda y: tf.tile(y, [1, 2, 1, 1]),
        "response": tf.nn.lrn,
        "patches": lambda y: tf.image.extract_patches(
            y, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"
        ),
        "crops": lambda y: tf.image.crop_and_resize(y, [[0.1, 0.1, 0.8, 0.9]], [0], [7, 7]),
    }


ELEMENTWISE = ("relu6", "leaky", "elu", "selu", "sigmoid", "tanh", "swish", "hard swish",
               "softplus", "exp", "square", "sqrt", "neg", "abs", "plus", "less", "times",
               "times a negative", "over", "maximum", "minimum", "clip", "norm", "where", "softmax",
               "l2", "layer norm", "whole", "some", "gather", "joined", "largest", "sums",
               "max")  # fmt: skip
OF_IMAGES = ("max pool", "mean pool", "bilinear", "nearest", "corners", "transpose", "slice",
             "shuffle", "blocks", "pad", "pad with a number", "mirror", "twice", "stack",
             "squeeze and excite", "excite by the largest", "attention", "least", "largest of rows",
             "tile", "response", "patches", "crops")  # fmt: skip
ALSO_IN_FLOAT = {"tile", "response"}
ENDS_IN_CODES = {"clip", "maximum", "minimum"}
"""Where codes are cut off, OpenVINO rounds the ends to codes too, which may be few."""
CUT_OFF_DB = 12.0


def before(op) -> Graph:
    def make():
        y = op(image())
        layer("conv", y, "out", 4, weights=random(1, 1, y.shape[-1], 4))

    return net(make, outputs=("out/biased",))


def between(op, activate=lambda y: y) -> Graph:
    def make():
        y = op(activate(layer("conv", image(), "first")))
        layer("conv", y, "out", 4, weights=random(1, 1, y.shape[-1], 4))

    return net(make, outputs=("out/biased",))


def behind(op) -> Graph:
    def make():
        tf.identity(op(layer("conv", image(), "first")), "out")

    return net(make)


def of_rows(op) -> Graph:
    """Return the same of a MatMul, whose results have two axes."""

    def make():
        y = op(layer("matmul", op(image((None, C))), "first", C))
        layer("matmul", y, "out", 4)

    return net(make, outputs=("out/biased",))


PLACES = {
    "before": before,
    "between": between,
    "between, active": lambda op: between(op, relu),
    "behind": behind,
    "of rows": of_rows,
}


def is_right_in_float(graph: Graph, feeds) -> bool:
    content = b"".join(graph.serialized())
    model = OpenVinoModel(content, {name: name for name in graph.inputs}, graph.outputs)
    for feed in feeds:
        for expected, found in zip(run(graph, feed), model.run(feed), strict=True):
            if expected.shape != found.shape or not np.allclose(expected, found, atol=1e-3):
                return False
    return True


def test_the_names_are_those_of_the_ops():
    assert (tuple(elementwise()), tuple(of_images())) == (ELEMENTWISE, OF_IMAGES)


EVERY = [
    each
    for each in itertools.product((0.0, -1.0), ELEMENTWISE + OF_IMAGES, PLACES)
    if each[1] in ELEMENTWISE or each[2] != "of rows"
]
SLOW = pairwise.sample(EVERY, pairwise.pairs, pairwise.seed())


@pytest.mark.parametrize(
    ("low", "name", "place"),
    [pytest.param(*each, marks=pairwise.marks(each, SLOW)) for each in EVERY],
)
def test_openvino_computes_codes_as_tensorflow_does(low, name, place, tmp_path):
    graph = PLACES[place]({**elementwise(), **of_images()}[name])
    feeds = [feeds_of(graph, batch, low) for batch in (1, 3)]
    if name in ALSO_IN_FLOAT and not is_right_in_float(graph, feeds):
        return
    codes = in_codes(graph, tmp_path, feeds)
    found, _ = agreement(codes, feeds)
    floats = min(compare(run(graph, feed), run(codes, feed))[0].sqnr_db for feed in feeds)
    assert found >= min(CUT_OFF_DB if name in ENDS_IN_CODES else BAR_DB, floats)
