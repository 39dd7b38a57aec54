"""Floating-point operations as TensorFlow counts them, and bytes by node."""

import numpy as np
import pytest

from deploykit.benchmarking.profiling.execution import flops, memory
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.shapes.static_shapes import Shapes
from tests.support import build, building, flops_in_tensorflow, random, tf, transform


def body():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 9, 4], name="x")
    y = tf.nn.conv2d(x, random(3, 2, 4, 6), 2, "SAME", name="conv")
    y = tf.nn.depthwise_conv2d(y, random(3, 3, 6, 2), [1, 1, 1, 1], "VALID")
    size = tf.stack([tf.shape(y)[0], 4, 6, 5])
    y = tf.nn.conv2d_transpose(y, random(2, 2, 5, 12), size, 2, name="up")
    z = tf.nn.conv3d(tf.expand_dims(y, -1), random(2, 3, 3, 1, 2), [1] * 5, "SAME", name="volume")
    tf.matmul(tf.squeeze(z[..., 0], 0), random(4, 5, 7), name="batched")
    tf.matmul(tf.reshape(y, [-1, 120]), random(10, 120), transpose_b=True, name="dense")


BY_HAND = {
    "Conv2D": 2 * (4 * 5 * 6) * (3 * 2 * 4),
    "DepthwiseConv2dNative": 2 * (2 * 3 * 12) * (3 * 3),
    "Conv2DBackpropInput": 2 * (2 * 3 * 12) * (2 * 2 * 5),
    "Conv3D": 2 * (4 * 6 * 5 * 2) * (2 * 3 * 3 * 1),
    "BatchMatMulV2": 2 * (4 * 6 * 7) * 5,
    "MatMul": 2 * 10 * 120,
}


def test_by_hand():
    graph = build(body)
    found = flops(graph, Shapes(graph, batch=1))
    assert found["by_op"] == BY_HAND
    assert found["total"] == sum(BY_HAND.values())
    assert found["unknown"] == 0


def test_as_tensorflow_counts_them():
    """For the ops that its profiler knows, at batch 1."""
    graph = build(body)
    x = graph["x"]
    graph.replace(x, x.with_attrs(shape=(1, 8, 9, 4)))
    with tf.Graph().as_default() as whole:
        tf.import_graph_def(graph.to_graph_def(), name="")
    counted = flops_in_tensorflow(whole)
    for op in ("Conv2D", "DepthwiseConv2dNative", "MatMul"):
        assert counted[op] == BY_HAND[op]


def test_transposed_matmuls():
    with building() as graph:
        a, b = (tf.compat.v1.placeholder(tf.float32, [2, 3, 4], name) for name in "ab")
        tf.matmul(a, b, transpose_a=True)
    assert flops(graph, Shapes(graph, batch=1))["total"] == 2 * (2 * 4 * 4) * 3


def test_layers_of_unknown_shape_are_counted_apart():
    with building() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, None, 4], name="x")
        y = tf.nn.conv2d(x, random(3, 3, 4, 6), 1, "SAME", name="conv")
        tf.matmul(tf.ensure_shape(tf.reduce_mean(y, [1, 2]), [1, 6]), random(6, 10))
    assert flops(graph, Shapes(graph, batch=1)) == {"total": 0, "by_op": {}, "unknown": 2}


def test_memory_by_node():
    half = DType("float16")
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=half, shape=(-1, 100)),
        Node.constant("w", np.zeros((100, 5), np.float16)),
        Node("read", "Identity", ("w",)).with_attrs(T=half),
        Node("v", "VariableV2").with_attrs(dtype=DType("float32"), shape=(7, 3)),
        Node("handle", "VarHandleOp").with_attrs(dtype=DType("float64"), shape=(2,)),
        Node("open", "VariableV2").with_attrs(dtype=DType("float32"), shape=(-1, 3)),
        Node("y", "MatMul", ("x", "read")).with_attrs(T=half),
        Node("where", "Where", ("y",)).with_attrs(T=half),
        Node.constant("text", np.array([b"abc"], object)),
    ]
    graph = Graph(nodes)
    found = memory(graph, Shapes(graph, batch=1), top=3)
    assert found == {
        "constants_bytes": 1000,
        "variables_bytes": 84 + 16,
        "computed_bytes": 200 + 10,
        "nodes": [
            {"node": "w", "op": "Const", "type": "float16", "shape": [100, 5], "bytes": 1000},
            {"node": "x", "op": "Placeholder", "type": "float16", "shape": [1, 100], "bytes": 200},
            {"node": "v", "op": "VariableV2", "type": "float32", "shape": [7, 3], "bytes": 84},
        ],
    }


@pytest.mark.parametrize("top", [0, 1, 99])
def test_the_top(top):
    graph = build(body)
    nodes = memory(graph, Shapes(graph, batch=1), top)["nodes"]
    assert len(nodes) == min(top, len(nodes))
    assert [n["bytes"] for n in nodes] == sorted((n["bytes"] for n in nodes), reverse=True)


def test_a_rewritten_graph_costs_the_same(small_bytes):
    from deploykit.transforms.ir.protos import GraphDef

    before = Graph.from_graph_def(GraphDef.FromString(small_bytes), ["x"], ["out"])
    after = transform(before, "fold_batch_norms quantize_weights(minimum_size=2)")
    totals = [flops(graph, Shapes(graph, batch=1)) for graph in (before, after)]
    assert totals[0] == totals[1]
    assert totals[0]["total"] > 0
