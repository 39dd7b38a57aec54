import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.sort_by_execution_order import sort_by_execution_order
from tests.support import assert_golden, building, raises, random, tf, transform
from tests.transforms.examples import Example


def tree() -> Graph:
    with building(["x"], ["sum"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
        left = tf.raw_ops.Relu(features=x, name="left")
        right = tf.raw_ops.MatMul(a=x, b=tf.constant(random(3, 3), name="w"), name="right")
        with tf.control_dependencies([left]):
            tf.raw_ops.AddV2(x=left, y=tf.raw_ops.Neg(x=right, name="neg"), name="sum")
    return Graph(reversed(list(graph)), graph.inputs, graph.outputs, graph.versions)


def is_in_execution_order(graph: Graph) -> bool:
    seen = set()
    for node in graph:
        if not all(producer_name(tensor) in seen for tensor in node.inputs):
            return False
        seen.add(node.name)
    return True


@pytest.mark.golden("sort_by_execution_order/tree")
def test_golden():
    graph = tree()
    result = transform(graph, "sort_by_execution_order")
    assert is_in_execution_order(result)
    assert_golden(graph, result)


@pytest.mark.parametrize("names", ["abcdef", "acebdf", "abecdf", "cdeafb"])
def test_a_graph_that_is_in_order_stays_as_it_is(names):
    chains = {"a": (), "b": ("a",), "c": (), "d": ("c",), "e": (), "f": ("e", "^a")}
    graph = Graph([Node(name, "Op", chains[name]) for name in names])
    before = str(graph)
    sort_by_execution_order(graph)
    assert str(graph) == before


def test_the_order_does_not_depend_on_the_edits_that_made_the_graph():
    graph = Graph([Node("c", "Op", ("a",)), Node("b", "Op", ("a",)), Node("a", "Op")])
    edited = graph.copy()
    edited.replace(edited["c"], edited["c"].with_attrs(T=1))
    edited.replace(edited["c"], edited["c"].with_attrs(T=None))
    sort_by_execution_order(graph)
    sort_by_execution_order(edited)
    assert str(graph) == str(edited)
    assert [node.name for node in graph] == ["a", "c", "b"]


def test_a_loop_is_no_cycle():
    merge = Node("merge", "Merge", ("enter", "next"))
    chain = [Node("next", "NextIteration", ("body",)), Node("body", "Relu", ("merge",)), merge]
    graph = Graph([*chain, Node("enter", "Enter", ("x",)), Node("x", "Placeholder")])
    sort_by_execution_order(graph)
    assert [node.name for node in graph] == ["x", "enter", "merge", "body", "next"]


def test_a_cycle_is_an_error():
    graph = Graph([Node("a", "Relu", ("b",)), Node("b", "Relu", ("a",))])
    with raises(GraphError, "cycle", count=2):
        sort_by_execution_order(graph)


def test_a_chain_of_20_000_nodes():
    count = 20_000
    nodes = [Node(f"n{i}", "Relu", (f"n{i - 1}",) if i else ()) for i in range(count)]
    graph = Graph(reversed(nodes))
    sort_by_execution_order(graph)
    assert [node.name for node in graph] == [node.name for node in nodes]


GRAPHS = [Example("sort_by_execution_order", tree)]
