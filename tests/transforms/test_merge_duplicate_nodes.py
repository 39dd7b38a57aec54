import numpy as np
import pytest

from deploykit.transforms import merge_duplicate_nodes as module
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.merge_duplicate_nodes import merge_duplicate_nodes
from tests.support import building, built, error, ops, random, skipped, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 3, seed=9)}


@built(["x"], ["out"])
def twice():
    """Return a graph that computes relu(x @ w + b) twice, from constants that are equal."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    results = []
    for i in range(2):
        w, b = tf.constant(random(3, 4), name=f"w{i}"), tf.constant(random(4), name=f"b{i}")
        layer = tf.raw_ops.MatMul(a=x, b=w, name=f"layer{i}")
        biased = tf.raw_ops.BiasAdd(value=layer, bias=b, name=f"biased{i}")
        results.append(tf.raw_ops.Relu(features=biased, name=f"result{i}"))
    other = tf.raw_ops.Neg(x=results[1], name="other")
    tf.raw_ops.Pack(values=[*results, other], name="out")


def test_several_outputs_and_control_inputs():
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
        found = [tf.raw_ops.TopKV2(input=x, k=tf.constant(2), name=f"top{i}") for i in range(3)]
        with tf.control_dependencies([top.values for top in found]):
            tf.raw_ops.NoOp(name="done")
        with tf.control_dependencies([found[0].values]):
            a = tf.raw_ops.Neg(x=found[1].values, name="a")
        with tf.control_dependencies([found[2].values]):
            b = tf.raw_ops.Neg(x=found[0].values, name="b")
        both = tf.raw_ops.AddV2(x=a, y=b, name="sum")
        indices = tf.raw_ops.Cast(x=found[2].indices, DstT=tf.float32, name="indices")
        tf.raw_ops.Mul(x=both, y=indices, name="out")
    result = transform(graph, "merge_duplicate_nodes")
    assert ops(result)["TopKV2"] == ops(result)["Neg"] == 1
    assert result["indices"].inputs == ("top0:1",)
    assert result["a"].inputs == ("top0", "^top0")
    assert error(graph, result, X) == 0


@pytest.mark.parametrize("outputs", [["result1", "out"], ["out", "result1:0"]])
def test_an_output_is_the_one_that_stays(outputs):
    graph = twice()
    graph.outputs = outputs
    result = transform(graph, "merge_duplicate_nodes")
    assert "result1" in result
    assert "result0" not in result
    assert result["result1"].inputs == ("biased0",)
    assert error(graph, result, X) == 0


def test_two_outputs_that_are_equal_both_stay():
    graph = twice()
    graph.outputs = ["result0", "result1:0", "out"]
    merge_duplicate_nodes(graph)
    assert graph["result0"].inputs == graph["result1"].inputs == ("biased0",)
    assert graph.skipped == [skipped("result1", "twin-fetched-too", twin="result0")]


def test_what_reads_two_equal_outputs_is_merged():
    graph = twice()
    again = graph.add(graph["other"].with_name("again").with_data_inputs("result0"))
    graph.outputs = ["result0", "result1", "out"]
    graph.add(Node("sum", "AddV2", ("other", again.name), graph["other"].attrs))
    merge_duplicate_nodes(graph)
    assert graph["sum"].inputs == ("other", "other")


def node(name: str, op: str, *inputs: str, device: str = "", **attrs) -> Node:
    made = Node(name, op, inputs, device=device)
    return made.with_attrs(T=DType("float32"), **attrs)


LEFT_ALONE = {
    "another op": [node("a", "Neg", "x"), node("b", "Abs", "x")],
    "another input": [node("a", "Neg", "x"), node("b", "Neg", "y")],
    "another port": [node("a", "Neg", "s"), node("b", "Neg", "s:1")],
    "inputs in another order": [node("a", "Sub", "x", "y"), node("b", "Sub", "y", "x")],
    "another attribute": [
        node("a", "LeakyRelu", "x", alpha=0.25),
        node("b", "LeakyRelu", "x", alpha=0.5),
    ],
    "one attribute more": [node("a", "LeakyRelu", "x"), node("b", "LeakyRelu", "x", alpha=0.5)],
    "another device": [node("a", "Neg", "x", device="/cpu:0"), node("b", "Neg", "x")],
    "another control input": [node("a", "Neg", "x", "^y"), node("b", "Neg", "x", "^s")],
    "one control input more": [node("a", "Neg", "x"), node("b", "Neg", "x", "^y")],
    "Placeholders": [node("a", "Placeholder"), node("b", "Placeholder")],
    "Placeholders with a default": [
        node("a", "PlaceholderWithDefault", "x"),
        node("b", "PlaceholderWithDefault", "x"),
    ],
    "random numbers": [node("a", "RandomUniform", "x"), node("b", "RandomUniform", "x")],
    "random pooling": [node("a", "FractionalMaxPool", "x"), node("b", "FractionalMaxPool", "x")],
    "a file that is read": [node("a", "ReadFile", "x"), node("b", "ReadFile", "x")],
    "variables": [node("a", "VariableV2"), node("b", "VariableV2")],
    "assignments": [node("a", "Assign", "v", "x"), node("b", "Assign", "v", "x")],
    "branches": [node("a", "Switch", "x", "y"), node("b", "Switch", "x", "y")],
    "loops": [node("a", "Enter", "x"), node("b", "Enter", "x")],
    "function calls": [node("a", "PartitionedCall", "x"), node("b", "PartitionedCall", "x")],
    "unknown ops": [node("a", "MyOp", "x"), node("b", "MyOp", "x")],
    "constants of another type": [
        Node.constant("a", np.zeros(4, np.int32)),
        Node.constant("b", np.zeros(4, np.float32)),
    ],
    "constants of another shape": [
        Node.constant("a", np.zeros((1, 4))),
        Node.constant("b", np.zeros(4)),
    ],
    "zeros of another sign": [
        Node.constant("a", np.array([0.0, 1.0])),
        Node.constant("b", np.array([-0.0, 1.0])),
    ],
    "a constant in one branch": [
        Node.constant("a", np.zeros(4)),
        Node.constant("b", np.zeros(4)).with_control_inputs("^x"),
    ],
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    sources = [Node("v", "VariableV2"), Node("s", "Split", ("x", "x"))]
    sources = [Node("x", "Placeholder"), Node("y", "Placeholder"), *sources]
    readers = [Node("read_a", "Relu", ("a",)), Node("read_b", "Relu6", ("b",))]
    graph = Graph([*sources, *LEFT_ALONE[case], *readers], ["x", "y"], ["read_a", "read_b"])
    before = str(graph)
    merge_duplicate_nodes(graph)
    assert str(graph) == before


@pytest.mark.parametrize(
    "value",
    [
        np.array([np.nan, np.inf, -0.0]),
        np.array([b"a", b"b"], object),
        np.array(True),
        np.zeros((0, 3)),
        random(1000),
    ],
)
def test_equal_constants_are_merged_whatever_they_hold(value):
    constants = [Node.constant(name, value) for name in "abc"]
    graph = Graph([*constants, Node("out", "Pack", ("a", "b", "c"))], outputs=["out"])
    merge_duplicate_nodes(graph)
    assert graph["out"].inputs == ("a", "a", "a")
    assert len(graph) == 2


def test_the_order_of_control_inputs_does_not_matter():
    graph = Graph(
        [
            *[Node(name, "Placeholder") for name in "xyz"],
            node("a", "Neg", "x", "^y", "^z"),
            node("b", "Neg", "x", "^z", "^y"),
            node("out", "Add", "a", "b"),
        ],
        "xyz",
        ["out"],
    )
    merge_duplicate_nodes(graph)
    assert graph["out"].inputs == ("a", "a")


def test_the_nodes_keep_their_order():
    names = [node.name for node in twice()]
    kept = [node.name for node in transform(twice(), "merge_duplicate_nodes")]
    assert kept == [name for name in names if name in kept]


def test_nodes_that_only_share_a_hash_are_not_merged(monkeypatch):
    monkeypatch.setattr(module, "_attrs_hash", lambda node: 0)
    graph = twice()
    result = transform(graph, "merge_duplicate_nodes")
    assert len(result) == len(graph) - 5
    assert error(graph, result, X) == 0


def test_a_colocation_with_a_node_that_went_is_dropped():
    graph = twice()
    name = graph["layer1"].inputs[1]
    graph.replace(graph["layer1"], graph["layer1"].with_attrs(_class=[f"loc:@{name}"]))
    result = transform(graph, "merge_duplicate_nodes")
    assert name not in result
    assert "_class" not in result["layer1"].attrs
    assert error(graph, result, X) == 0


def test_two_chains_of_10_000_nodes():
    nodes = [Node("x", "Placeholder")]
    for i in range(10_000):
        nodes += [Node(f"{c}{i}", "Neg", (f"{c}{i - 1}" if i else "x",)) for c in "ab"]
    graph = Graph([*nodes, Node("out", "Add", ("a9999", "b9999"))], ["x"], ["out"])
    merge_duplicate_nodes(graph)
    assert graph["out"].inputs == ("a9999", "a9999")
    assert len(graph) == 10_002


GRAPHS = [Example("merge_duplicate_nodes", twice, golden="twice")]
