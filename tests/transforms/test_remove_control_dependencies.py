from dataclasses import replace

import pytest

from tests.support import assert_golden, build, error, ops, random, transform
from tests.transforms.examples import Example
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.remove_control_dependencies import remove_control_dependencies


def frozen(weights: int = 3) -> Graph:
    """Return what convert_variables_to_constants_v2 leaves: one NoOp that waits for all weights."""

    def make():
        import tensorflow as tf

        y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
        read = []
        for i in range(weights):
            w = tf.constant(random(3, 3, seed=i), name=f"w{i}")
            read.append(tf.raw_ops.Identity(input=w, name=f"read{i}"))
            y = tf.raw_ops.MatMul(a=y, b=read[-1], name=f"layer{i}")
        with tf.control_dependencies(read):
            done = tf.raw_ops.NoOp(name="done")
        with tf.control_dependencies([done]):
            tf.raw_ops.Identity(input=y, name="out")

    return build(make, ["x"], ["out"])


def control_inputs(graph: Graph) -> list[str]:
    return [tensor for node in graph for tensor in node.control_inputs]


def test_golden():
    graph = transform(frozen(), "remove_control_dependencies")
    assert_golden("remove_control_dependencies/frozen", str(graph))


def test_the_values_stay():
    graph = frozen()
    assert len(control_inputs(graph)) == 4
    result = transform(graph, "remove_control_dependencies")
    assert control_inputs(result) == []
    assert "NoOp" not in ops(result)
    assert error(graph, result, {"x": random(2, 3, seed=9)}) == 0


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [Node("x", "Placeholder"), Node("out", "Relu", ("x",))],
        [Node("s", "Split", ("a", "x")), Node("a", "Const"), Node("x", "Relu", ("s:1",))],
    ],
)
def test_a_graph_without_control_inputs_is_left_alone(nodes):
    graph = Graph(nodes)
    remove_control_dependencies(graph)
    assert all(a is b for a, b in zip(graph, nodes, strict=True))


def test_data_inputs_keep_their_order_and_ports():
    graph = Graph([Node("a", "A"), Node("b", "B"), Node("c", "C", ("b:2", "a", "a:1", "^b"))])
    remove_control_dependencies(graph)
    assert graph["c"].inputs == ("b:2", "a", "a:1")
    assert graph.consumers("b") == [graph["c"]]


def test_the_check_catches_a_removal_that_leaves_out_nodes_without_data_inputs():
    graph = frozen()
    for node in graph:
        if node.data_inputs:
            graph.replace(node, replace(node, inputs=node.data_inputs))
    assert control_inputs(graph) != []


def test_20_000_control_inputs_of_one_node():
    nodes = [Node(f"c{i}", "Const") for i in range(20_000)]
    graph = Graph([*nodes, Node("done", "NoOp", tuple(f"^{node.name}" for node in nodes))])
    remove_control_dependencies(graph)
    assert control_inputs(graph) == []


GRAPHS = [Example("remove_control_dependencies", frozen, lost="it is asked to")]
