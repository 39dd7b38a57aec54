"""Images turn and answers stay; the check sees an axis that does not turn along.

NCHW runs under oneDNN alone, so most tests go there and back, and one asks a child that has it.
"""

import numpy as np
import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.convert_layout import convert_layout
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.running import Task
from deploykit.verification.tolerance import Pairing
from tests.support import assert_golden, build, error, ops, raises, random, skipped, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 9, 8, 4, seed=9)}
TO_NCHW, TO_NHWC = "convert_layout(to=NCHW)", "convert_layout(to=NHWC)"


def make_net():
    """Build a net with every op that can turn, of which no two axes are of the same size."""
    raw, nn = tf.raw_ops, tf.nn
    x = raw.Placeholder(dtype=tf.float32, shape=X["x"].shape, name="x")
    y = raw.Pad(input=x, paddings=((0, 0), (1, 0), (2, 1), (0, 0)), name="pad")
    explicit = [0, 0, 1, 2, 0, 1, 0, 0]
    y = raw.Conv2D(
        input=y, filter=tf.constant(random(3, 2, 4, 7), name="w"), strides=[1, 1, 2, 1],
        padding="EXPLICIT", explicit_paddings=explicit, dilations=[1, 2, 1, 1], name="conv",
    )  # fmt: skip
    y = nn.relu6(nn.bias_add(y, random(7, seed=1), name="bias"), name="relu")
    low = raw.MirrorPad(input=y, paddings=((0, 0), (1, 1), (1, 0), (0, 0)), mode="REFLECT")
    low = nn.max_pool2d(low, [3, 2], 1, "VALID", name="max")
    z = raw.DepthwiseConv2dNative(
        input=y, filter=random(3, 3, 7, 1, seed=2), strides=[1] * 4, padding="SAME", name="deep"
    )
    statistics = [random(7, seed=i, low=0.5, high=2) for i in range(3, 7)]
    names = dict(zip(("scale", "offset", "mean", "variance"), statistics, strict=True))
    z = raw.FusedBatchNormV3(x=z, **names, is_training=False, name="norm")[0]
    z = z * random(7, seed=7) + random(z.shape[1], 1, 1, seed=8)
    z = tf.concat([raw.AddV2(x=y, y=z, name="sum"), z], 3, name="concat")
    gate = nn.sigmoid(raw.Mean(input=z, axis=[1, 2], keep_dims=True, name="gate"))
    z = nn.avg_pool2d(z * gate, [2, 1], [1, 1], "SAME", name="average")
    flat = tf.reshape(z, [2, -1], name="flat")
    pooled = raw.Mean(input=z, axis=[-3, -2], name="pooled")
    squeezed = tf.squeeze(raw.Sum(input=low, axis=[1, 2], keep_dims=True), [1, 2])
    tf.concat([flat, pooled, squeezed], 1, name="out")


@pytest.fixture(scope="module")
def net() -> Graph:
    return transform(build(make_net, ["x"], ["out"]), "fold_constants")


def test_there_and_back_is_the_same_graph(net):
    turned = transform(net, TO_NCHW)
    back = transform(turned, TO_NHWC)
    assert ops(back) == ops(net)
    assert error(net, back, X) == 0
    assert str(transform(turned, TO_NCHW)) == str(turned)


def test_only_what_enters_and_what_is_reshaped_is_transposed(net):
    turned = transform(net, TO_NCHW)
    found = {node.name: node.data_inputs[0] for node in turned if node.op == "Transpose"}
    assert found == {"conv/nchw_input": "pad", "average/nhwc": "average"}


@pytest.mark.golden("convert_layout/nchw")
def test_golden(net):
    assert_golden(net, transform(net, TO_NCHW))


@pytest.mark.sampled
def test_a_processor_with_onednn_computes_the_same_in_nchw(net):
    turned = transform(net, TO_NCHW)
    graphs = (b"".join(graph.serialized()) for graph in (net, turned))
    task = Task([X], {"x": "x"}, Pairing([("out", "out")]))
    env = {"TF_ENABLE_ONEDNN_OPTS": "1"}
    found = call("deploykit.verification.running:run_both", *graphs, task, env=env)
    if "only supports" in found.broken:
        pytest.skip("this processor has no oneDNN, or it is switched off")
    (difference,) = found.differences
    assert difference.max_relative_error <= 1e-6 * 7


def test_transposes_around_a_net_in_nchw_vanish():
    """So do nets look that were trained on a GPU, with images as cameras give them."""

    def make(layout):
        there = tf.transpose if layout == "NCHW" else lambda y, order: y
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=X["x"].shape, name="x")
        y = there(x, [0, 3, 1, 2])
        for i in range(2):
            weights = random(3, 3, 4, 4, seed=i)
            y = tf.nn.conv2d(y, weights, 1, "SAME", data_format=layout)
            y = tf.nn.relu(tf.nn.bias_add(y, random(4, seed=i), data_format=layout))
            y = there(y, [0, 2, 3, 1])
            y = tf.raw_ops.ResizeBilinear(images=y, size=(9, 8))
            y = there(y, [0, 3, 1, 2])
        tf.raw_ops.Relu6(features=there(y, [0, 2, 3, 1]), name="out")

    graph = build(lambda: make("NCHW"), ["x"], ["out"])
    result = transform(graph, TO_NHWC)
    expected = build(lambda: make("NHWC"), ["x"], ["out"])
    assert "Transpose" not in ops(transform(result, "remove_nodes(op=Identity)"))
    assert error(expected, result, X) == 0


@pytest.mark.parametrize("fetched", ["conv", "relu", "average"])
def test_outputs_keep_their_layout_and_their_names(net, fetched):
    graph = net.copy()
    graph.outputs = ("out", fetched)
    turned = transform(graph, TO_NCHW)
    assert turned[fetched].op == "Transpose"
    back = transform(turned, TO_NHWC)
    assert error(graph, back, X) == 0


@pytest.mark.parametrize("fed", ["conv", "relu", "deep"])
def test_inner_inputs_keep_their_layout(net, fed):
    graph = net.copy()
    graph.inputs = ("x", fed)
    feeds = {**X, fed: random(2, 9, 6, 7, seed=4)}
    turned = transform(graph, TO_NCHW)
    back = transform(turned, TO_NHWC)
    assert error(graph, back, feeds) == 0


def small(*nodes: Node) -> Graph:
    from deploykit.transforms.ir.tensors import DType

    float32 = {"T": DType("float32")}
    conv = Node("conv", "Conv2D", ("x", "w")).with_attrs(
        **float32, strides=[1, 1, 1, 1], padding="SAME", data_format="NHWC"
    )
    made = [node.with_attrs(**float32) if node.op != "Const" else node for node in nodes]
    inputs = [Node(name, "Placeholder") for name in "xvw"]
    return Graph([*inputs, conv, *made], "xvw", [made[-1].name])


@pytest.mark.parametrize(
    "node",
    [
        Node("out", "Softmax", ("conv",)),
        Node("out", "AddV2", ("conv", "v")),
        Node("out", "Reshape", ("conv", "w")),
        Node("out", "Mean", ("conv", "w")),
        Node("out", "ConcatV2", ("conv", "v", "w")),
        Node("out", "Squeeze", ("conv",)),
        Node("out", "Transpose", ("conv", "w")),
    ],
)
def test_what_cannot_turn_reads_the_old_layout(node):
    graph = small(node)
    convert_layout(graph, to="NCHW")
    assert graph["out"].inputs == ("conv/nhwc", *node.inputs[1:])
    assert graph["out"].op == node.op
    assert graph["conv/nhwc"].op == "Transpose"


def test_a_sum_over_rows_alone_would_turn_what_is_left():
    axes = Node.constant("axes", np.array([1, 3], np.int32))
    graph = small(axes, Node("out", "Sum", ("conv", "axes")))
    convert_layout(graph, to="NCHW")
    assert graph["out"].inputs == ("conv", "out/axes")  # batch and columns stand as they stood
    axes = Node.constant("axes", np.array([1], np.int32))
    graph = small(axes, Node("out", "Sum", ("conv", "axes")))
    convert_layout(graph, to="NCHW")
    assert graph["out"].inputs == ("conv/nhwc", "axes")


def test_a_batch_norm_that_is_an_output_is_left_alone(net):
    graph = net.copy()
    graph.outputs = ("out", "norm:1")
    result = graph.copy()
    convert_layout(result, to="NCHW")
    assert skipped("norm", "several-outputs-fetched") in result.skipped
    assert result["norm"].attr("data_format") == "NHWC"
    assert error(graph, transform(result, TO_NHWC), X) == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_no_cpu_runs_is_said(dtype, caplog):
    """Batch norms and biases run in NCHW in any type, convolutions and poolings in float32."""

    def make():
        x = tf.compat.v1.placeholder(dtype, (1, 6, 5, 2), name="x")
        y = tf.nn.conv2d(x, tf.ones((3, 3, 2, 3), dtype), 1, "SAME", name="conv")
        y = tf.nn.bias_add(y, tf.ones(3, dtype), name="bias")
        if dtype != "float64":
            ones = [tf.ones(3)] * 4
            y = tf.raw_ops.FusedBatchNormV3(
                x=y, scale=ones[0], offset=ones[1], mean=ones[2], variance=ones[3],
                is_training=False, name="norm",
            )[0]  # fmt: skip
        tf.nn.max_pool2d(y, 2, 1, "SAME", name="out")

    graph = build(make, ["x"], ["out"])
    there = transform(graph, TO_NCHW)
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == (dtype != "float32")
    assert all(word in text for text in said for word in ("2 converted", "'conv'", dtype, "NHWC"))
    caplog.clear()
    transform(there, TO_NHWC)
    assert not caplog.records


def test_a_layout_that_is_none():
    with raises(PipelineError, "not-one-of", what="to", known=["NHWC", "NCHW"], got="NCWH"):
        convert_layout(Graph(), to="NCWH")


def test_a_chain_of_10_000_nodes():
    count = 10_000
    relus = [Node(f"r{i}", "Relu", (f"r{i - 1}" if i else "conv",)) for i in range(count)]
    graph = small(*relus)
    convert_layout(graph, to="NCHW")
    assert ops(graph)["Transpose"] == 2


GRAPHS = [
    Example(
        TO_NCHW,
        lambda: transform(build(make_net, ["x"], ["out"]), "fold_constants"),
        runnable=lambda graph: transform(graph, TO_NHWC),
    ),
]
