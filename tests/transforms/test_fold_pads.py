"""A Pad goes where SAME sets the same zeros; the check sees SAME where it does not."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.shapes import static_shapes
from tests.support import assert_golden, because, built, error, ops, random, skipped, tf, transform
from tests.transforms.examples import Example

LAYERS = {"conv2d": 4, "depthwise": 4, "conv3d": 5}


@built(["x"], ["out"])
def net(kind="conv2d", size=9, kernel=3, pads=(1, 1), value=None, **attrs):
    """Return a layer whose image has the same zeros set before and after each spatial axis."""
    rank = LAYERS[kind]
    spatial = range(2, rank) if attrs.get("data_format") == "NCHW" else range(1, rank - 1)
    shape = [size if axis in spatial else 3 for axis in range(rank)]
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=shape, name="x")
    y = tf.raw_ops.Neg(x=x, name="neg")
    paddings = tf.constant([pads if axis in spatial else (0, 0) for axis in range(rank)])
    if value is None:
        y = tf.raw_ops.Pad(input=y, paddings=paddings, name="pad")
    else:
        y = tf.raw_ops.PadV2(input=y, paddings=paddings, constant_values=value, name="pad")
    stride = attrs.pop("stride", 1)
    strides = [stride if axis in spatial else 1 for axis in range(rank)]
    weights = tf.constant(random(*[kernel] * (rank - 2), 3, 2), name="weights")
    op = {
        "conv2d": tf.raw_ops.Conv2D,
        "depthwise": tf.raw_ops.DepthwiseConv2dNative,
        "conv3d": tf.raw_ops.Conv3D,
    }[kind]
    options = {"strides": strides, "padding": "VALID"} | attrs
    y = op(input=y, filter=weights, **options, name="layer")
    tf.raw_ops.Relu(features=y, name="out")


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    return {"x": random(*[9 if s < 0 else s for s in graph["x"].attr("shape")], seed=9)}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Infer shapes in this process, in which TensorFlow has been started."""

    def call(function, graph_def, tensors):
        from deploykit.transforms.runtime import session

        return session.static_shapes(graph_def, tensors)

    monkeypatch.setattr(static_shapes, "call", call)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads"),
    [
        (9, 3, 1, (1, 1)),
        (9, 2, 1, (0, 1)),
        (8, 3, 2, (0, 1)),  # Keras in front of every depthwise convolution with strides
        (9, 3, 2, (1, 1)),
        (9, 7, 2, (3, 3)),
        (10, 5, 3, (2, 2)),
        (8, 1, 2, (0, 0)),
        (9, 2, 3, (0, 0)),
    ],
)
def test_folds(kind, size, kernel, stride, pads):
    graph = net(kind, size, kernel, pads, stride=stride)
    result = transform(graph, "fold_pads")
    assert "Pad" not in ops(result)
    assert result["layer"].attr("padding") == ("SAME" if any(pads) else "VALID")
    assert error(graph, result, feeds(graph)) == 0
    assert str(transform(result, "fold_pads")) == str(result)


@pytest.mark.parametrize("kind", LAYERS)
def test_every_pair_of_zeros_is_folded_right_or_left_alone(kind):
    folded = 0
    for size in (6, 7, 8):
        for pads in ((0, 1), (1, 1), (1, 0), (2, 1), (1, 2)):
            for stride in (1, 2, 3):
                graph = net(kind, size, 4, pads, stride=stride)
                result = transform(graph, "fold_pads")
                folded += "Pad" not in ops(result)
                assert error(graph, result, feeds(graph)) == 0
    assert folded == 9


@pytest.mark.golden("fold_pads/depthwise")
def test_golden():
    graph = net("depthwise", 8, 3, (0, 1), stride=2)
    assert_golden(graph, transform(graph, "fold_pads"))


@pytest.mark.parametrize(
    "attrs", [{"padding": "SAME"}, {"dilations": [1, 2, 2, 1], "pads": (2, 2)}]
)
def test_what_the_layer_sets_itself_counts(attrs):
    graph = net(kernel=3, **{"pads": (1, 1), **attrs})
    result = transform(graph, "fold_pads")
    assert ("Pad" in ops(result)) == ("dilations" not in attrs)
    assert error(graph, result, feeds(graph)) == 0


def test_explicit_zeros_of_the_layer_count():
    around = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 1, 0, 0, 0]}
    graph = net(pads=(0, 1), **around)
    result = transform(graph, "fold_pads")
    assert result["layer"].attr("padding") == "SAME"
    assert result["layer"].attr("explicit_paddings") == []
    assert error(graph, result, feeds(graph)) == 0


def test_channels_first_looks_at_its_axes():
    graph = net(pads=(1, 1), data_format="NCHW")
    result = transform(graph, "fold_pads")
    assert "Pad" not in ops(result)
    assert result["layer"].attr("padding") == "SAME"


def test_a_pad_that_others_read_stays_for_them():
    graph = net()
    graph.outputs = ("out", "pad")
    result = transform(graph, "fold_pads")
    assert result["layer"].inputs == ("neg", "weights")
    assert error(graph, result, feeds(graph)) == 0


NOT_SAME = because("padding-not-same", pad="pad")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"value": 1.0}, because("pad-not-zero", pad="pad")),
        ({"pads": (1, 0)}, NOT_SAME),
        ({"size": 8, "stride": 2}, NOT_SAME),
        ({"size": None, "stride": 2}, NOT_SAME),
        ({"stride": 2, "padding": "SAME"}, because("padding-depends-on-size")),
    ],
)
@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
def test_left_alone(kind, arguments, reason):
    assert left_alone(net(kind, **arguments)) == [f"node 'layer': {reason}"]


def left_alone(graph: Graph) -> list[str]:
    """Return why the graph stays as it is, which it must."""
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse("fold_pads"))
    assert str(done.graph) == str(graph)
    return list(done.skipped)


def test_zeros_between_images_or_channels_are_left_alone():
    graph = net()
    paddings = np.array([[0, 0], [1, 1], [1, 1], [1, 0]], np.int32)
    name = graph["pad"].inputs[1]
    graph.replace(graph[name], graph[name].with_attrs(value=paddings))
    assert left_alone(graph) == [skipped("layer", "pad-of-batch-or-channels", pad="pad")]


def test_control_inputs_of_the_pad_are_kept():
    graph = net()
    graph.replace(graph["pad"], graph["pad"].with_control_inputs("^x"))
    assert transform(graph, "fold_pads")["layer"].control_inputs == ("^x",)


GRAPHS = [
    Example("fold_pads", net, 1e-6),
    Example("fold_pads", lambda: net("depthwise"), 1e-6),
]
