"""What `deploykit inspect` says of a graph, in words and in --json."""

import pytest

from deploykit.importers.graph_files import load_graph
from deploykit.inspection.summary import inspect_graph
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import FunctionDef
from deploykit.transforms.ir.tensors import DType
from tests.support import (
    Containing,
    assert_golden,
    because,
    build,
    building,
    built,
    random,
    shows,
    tf,
    transform,
)


@built(["x"], ["out"])
def training_graph():
    """Return a TensorFlow 1 graph with variables, a batch norm in training mode and a device."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
    tf.compat.v1.placeholder(tf.int32, [None], name="unread")
    with tf.device("/device:CPU:0"):
        w = tf.compat.v1.get_variable("w", initializer=random(3, 3, 3, 4), use_resource=False)
    y = tf.nn.conv2d(x, w, 2, "SAME", name="conv")
    y = tf.raw_ops.FusedBatchNormV3(
        x=y, scale=random(4), offset=random(4), mean=random(0), variance=random(0),
        is_training=True, name="norm",
    )[0]  # fmt: skip
    with tf.control_dependencies([x]):
        tf.identity(y, name="out")


def test_a_graph_with_variables():
    facts = inspect_graph(training_graph())
    assert facts["possible_inputs"] == ["x", "unread"]
    assert facts["possible_outputs"] == ["out"]
    (variable,) = facts["variables"]
    assert variable == {
        "name": "w", "op": "VariableV2", "type": "float32", "shape": [3, 3, 3, 4],
    }  # fmt: skip
    assert facts["variable_parameters"] == 108
    assert facts["memory"]["variables_bytes"] == 432
    assert facts["devices"] == {"/device:CPU:0": 4}
    assert facts["control_edges"] == 1
    assert (facts["batch_norms"], facts["other_batch_norms"]) == (0, 1)
    assert facts["flops"]["total"] == 2 * (4 * 4 * 4) * (3 * 3 * 3)


@pytest.mark.golden("inspect_training")
def test_in_words(deploykit, tmp_path):
    graph = training_graph()
    graph.versions.producer = 2474
    path = tmp_path / "training.pb"
    path.write_bytes(b"".join(graph.serialized()))
    found = deploykit("inspect", path, "--inputs", "x")
    assert found.status == 0, found.stderr
    assert_golden(found.stdout.replace(str(path), "training.pb"))


def normalised(count: int, *, fused: bool = True, behind_a_layer: bool = True) -> Graph:
    """Return `count` layers, each with a batch norm before or behind it."""

    def norm(tf, y):
        if fused:
            return tf.raw_ops.FusedBatchNormV3(
                x=y, scale=random(4), offset=random(4), mean=random(4),
                variance=random(4, low=0.5), is_training=False,
            )[0]  # fmt: skip
        scale = random(4) * tf.math.rsqrt(random(4, low=0.5) + 1e-3)
        return y * scale + (random(4, seed=1) - random(4) * scale)

    def body():
        y = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 4], name="x")
        for _ in range(count):
            y = tf.nn.relu(y) if behind_a_layer else tf.nn.relu(norm(tf, y))
            y = tf.nn.conv2d(y, random(3, 3, 4, 4), 1, "SAME")
            y = norm(tf, y) if behind_a_layer else tf.nn.relu(y)
        tf.identity(y, name="out")

    return build(body, ["x"], ["out"])


@pytest.mark.parametrize("fused", [True, False])
def test_batch_norms_that_can_be_folded(deploykit, tmp_path, fused):
    graph = normalised(3, fused=fused)
    path = tmp_path / "net.pb"
    path.write_bytes(b"".join(graph.serialized()))
    foldable = because("batch-norms-to-fold", norms="3 batch norms")
    assert f"\n{foldable}\n" in deploykit("inspect", path).stdout
    folded = inspect_graph(transform(graph, "fold_batch_norms"))
    assert (folded["batch_norms"], folded["other_batch_norms"]) == (0, 0)
    assert graph.skipped == []
    one = inspect_graph(normalised(1, fused=fused))
    assert one["batch_norms"] == 1


def test_batch_norms_that_cannot(deploykit, tmp_path):
    graph = normalised(2, behind_a_layer=False)
    path = tmp_path / "net.pb"
    path.write_bytes(b"".join(graph.serialized()))
    text = deploykit("inspect", path).stdout
    assert not shows(text, "batch-norms-to-fold")
    assert because("batch-norms-kept", norms="2 batch norms") in text
    # each of them becomes a Mul and an Add instead
    assert inspect_graph(transform(graph, "fold_batch_norms"))["other_batch_norms"] == 0


def test_a_layer_norm_is_no_batch_norm():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
        y = tf.matmul(x, random(6, 6))
        mean, variance = tf.nn.moments(y, [1], keepdims=True)
        tf.identity((y - mean) * tf.math.rsqrt(variance + 1e-3) * random(6), name="out")
    facts = inspect_graph(graph)
    assert facts["ops"]["Rsqrt"] == 1
    assert (facts["batch_norms"], facts["other_batch_norms"]) == (0, 0)


def test_ops_of_the_library_count():
    graph = Graph([Node("x", "Placeholder").with_attrs(dtype=DType("float32"))], ["x"], ["x"])
    function = FunctionDef(signature={"name": "f"})
    function.node_def.add(name="a", op="Relu")
    function.node_def.add(name="b", op="Relu")
    graph.library.function.append(function)
    facts = inspect_graph(graph)
    assert facts["ops"] == {"Relu": 2, "Placeholder": 1}
    assert facts["functions"] == ["f"]


def test_what_may_be_an_output():
    """As summarize_graph has it: nobody reads it or waits for it, and it is of four ops none."""
    float32 = DType("float32")
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=float32),
        Node("unread", "Placeholder").with_attrs(dtype=float32),
        Node.constant("c", random(2)),
        Node("waited_for", "Relu", ("x",)).with_attrs(T=float32),
        Node("out", "Relu", ("x", "^waited_for")).with_attrs(T=float32),
        Node("other", "Relu", ("x",)).with_attrs(T=float32),
        Node("init", "NoOp", ("^x",)),
    ]
    facts = inspect_graph(Graph(nodes, ["x"], ["out"]))
    assert facts["possible_outputs"] == ["out", "other"]
    assert facts["possible_inputs"] == ["x", "unread"]


def test_the_document(deploykit, small):
    document = deploykit("inspect", small, "--json", "--top", "2").document
    assert document["flops"] == {
        "total": 2 * 4 * 4 * 64 * 27 + 2 * 64 * 10,
        "by_op": {"Conv2D": 2 * 4 * 4 * 64 * 27, "MatMul": 2 * 64 * 10},
        "unknown": 0,
    }
    memory = document["memory"]
    assert [n["node"] for n in memory["nodes"]] == ["conv/filter", "conv"]
    assert memory["nodes"][0] == {
        "node": "conv/filter", "op": "Const", "type": "float32", "shape": [3, 3, 3, 64],
        "bytes": 6912,
    }  # fmt: skip
    assert document["possible_inputs"] == ["x"]
    assert document["possible_outputs"] == ["out"]
    assert document["variables"] == []
    assert document["batch_norms"] == 1


def test_top(deploykit, small):
    def listed(*options):
        lines = deploykit("inspect", small, *options).stdout.splitlines()
        return [line for line in lines if line.startswith("  ")]

    assert len(listed("--top=3")) == 3
    assert len(listed("--top=0")) == 0
    assert len(listed()) == 10
    assert len(load_graph(small)) > 10


def test_long_lists_are_cut_in_the_text(deploykit, tmp_path):
    float32 = DType("float32")
    variables = [
        Node(f"v{n}", "VariableV2").with_attrs(dtype=float32, shape=(2,)) for n in range(12)
    ]
    variables = [v.with_attrs(container="", shared_name="") for v in variables]
    nodes = [Node("x", "Placeholder").with_attrs(dtype=float32, shape=(1,)), *variables]
    nodes.append(Node("out", "Relu", ("x",)).with_attrs(T=float32))
    path = tmp_path / "many.pb"
    path.write_bytes(b"".join(Graph(nodes).serialized()))
    text = deploykit("inspect", path).stdout
    assert text == Containing("v9 float32 [2]", " 2 ", "--json")
    assert "variables:  12: v0 float32 [2], " in text
    assert " 24 " in text
    assert len(deploykit("inspect", path, "--json").document["variables"]) == 12
