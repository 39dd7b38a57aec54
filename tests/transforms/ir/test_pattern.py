"""Patterns: what they take, what they do not, and what a match knows."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.pattern import (
    ANY,
    Any,
    Const,
    Op,
    needed_elsewhere,
    ports_read,
    select,
)
from tests.support import raises

SUM = Op("Add|AddV2", Op("Mul", Any("x"), Const("scale"), name="mul"), Const("offset"))


def graph_of(*nodes: tuple) -> Graph:
    constants = [Node.constant(name, np.float32(i)) for i, name in enumerate("cd")]
    return Graph([Node("x", "Placeholder"), *constants, *(Node(*node) for node in nodes)])


@pytest.mark.parametrize("factors", [("x", "c"), ("c", "x")])
@pytest.mark.parametrize("terms", [("mul", "d"), ("d", "mul")])
@pytest.mark.parametrize("op", ["Add", "AddV2"])
def test_operands_of_commutative_ops_match_in_both_orders(op, factors, terms):
    (match,) = graph_of(("mul", "Mul", factors), ("sum", op, terms)).match(SUM)
    assert match.root.name == "sum"
    assert (match["scale"].name, match["offset"].name) == ("c", "d")
    assert (match["mul"].name, match.tensor("x")) == ("mul", "x")


def test_names_come_from_the_order_that_matched():
    """The first order fails only at its second operand; what it found must not stay."""
    pattern = Op("Mul", Any("rest"), Const("scale"))
    (match,) = graph_of(("mul", "Mul", ("c", "x:1"))).match(pattern)
    assert (match.tensor("rest"), match["scale"].name) == ("x:1", "c")


@pytest.mark.parametrize(
    "nodes",
    [
        [("mul", "Mul", ("x", "c")), ("sum", "Sub", ("mul", "d"))],  # another op
        [("mul", "Mul", ("x", "c")), ("sum", "AddV2", ("mul", "x"))],  # not constant
        [("mul", "Mul", ("x", "c")), ("sum", "AddV2", ("mul:1", "d"))],  # another output
        [("mul", "Mul", ("x", "c", "d")), ("sum", "AddV2", ("mul", "d"))],  # three operands
        [("mul", "Mul", ("x", "x")), ("sum", "AddV2", ("mul", "d"))],
    ],
)
def test_what_does_not_match(nodes):
    assert list(graph_of(*nodes).match(SUM)) == []


def test_other_ops_match_in_their_order_alone():
    pattern = Op("Sub", Any("x"), Const("c"))
    assert len(list(graph_of(("n", "Sub", ("x", "c"))).match(pattern))) == 1
    assert list(graph_of(("n", "Sub", ("c", "x"))).match(pattern)) == []


def test_control_inputs_do_not_count_as_operands():
    graph = graph_of(("mul", "Mul", ("x", "c", "^d")), ("sum", "AddV2", ("mul", "d", "^x")))
    assert len(list(graph.match(SUM))) == 1


def test_without_operands_any_inputs_match():
    graph = graph_of(("a", "ConcatV2", ("x", "x", "c")), ("b", "NoOp", ("^a",)))
    assert [m.root.name for m in graph.match(Op("ConcatV2|NoOp"))] == ["a", "b"]


def test_a_const_is_found_through_identities_but_not_through_what_is_fed():
    nodes = [("i", "Identity", ("c",)), ("j", "Identity", ("i",)), ("n", "Relu", ("j",))]
    graph, pattern = graph_of(*nodes), Op("Relu", Const("weights"))
    (match,) = graph.match(pattern)
    assert match["weights"].name == "c"
    for fed in ("c", "i", "j"):
        graph.inputs = (fed,)
        assert list(graph.match(pattern)) == []


def test_nodes_that_are_gone_do_not_match():
    graph = graph_of(("a", "Relu", ("x",)), ("b", "Relu", ("x",)))
    found = []
    for match in graph.match(Op("Relu")):
        found.append(match.root.name)
        if "b" in graph:
            graph.remove(graph["b"])
    assert found == ["a"]


def chain_of(*others: tuple, outputs=("b",), inputs=("x",)) -> tuple[Graph, list[Node]]:
    graph = graph_of(("a", "Relu", ("x",)), ("b", "Relu", ("a",)), *others)
    graph.inputs, graph.outputs = inputs, outputs
    return graph, [graph["a"], graph["b"]]


def test_a_chain_that_nothing_else_reads_can_become_one_node():
    assert needed_elsewhere(*chain_of(("n", "Relu", ("b",)))) == ""


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        ([("n", "Relu", ("a",))], {}),
        ([("n", "NoOp", ("^a",))], {}),
        ([], {"outputs": ("a", "b")}),
        ([], {"inputs": ("a",)}),
        ([], {"inputs": ("b",)}),
    ],
)
def test_a_chain_whose_nodes_are_needed_stays(others, ends):
    assert needed_elsewhere(*chain_of(*others, **ends)) != ""


def test_a_chain_whose_node_is_read_twice_stays():
    graph = graph_of(("a", "Relu", ("x",)), ("b", "AddV2", ("a", "a")))
    graph.outputs = ("b",)
    assert needed_elsewhere(graph, [graph["a"], graph["b"]]) != ""


@pytest.mark.parametrize(
    ("ops", "prefixes", "expected"),
    [
        ((), (), "x c d in/a in/b out"),
        ((ANY,), (), "x c d in/a in/b out"),
        (("Relu",), (), "in/a out"),
        (("Relu", "Tanh"), (), "in/a in/b out"),
        (("Relu", ANY), (), "x c d in/a in/b out"),
        ((), ("in/",), "in/a in/b"),
        ((ANY,), ("in/", "o"), "in/a in/b out"),
        (("Relu",), ("in/",), "in/a"),
        (("Abs",), (), ""),
    ],
)
def test_selected_nodes_have_one_of_the_ops_and_one_of_the_prefixes(ops, prefixes, expected):
    graph = graph_of(("in/a", "Relu", ("x",)), ("in/b", "Tanh", ("x",)), ("out", "Relu", ("x",)))
    assert [node.name for node in select(graph, ops, prefixes)] == expected.split()


def test_an_op_that_nothing_has_cannot_be_selected_and_one_of_the_graph_can():
    graph = graph_of(("n", "NobodysOp", ("x",)))
    assert [node.name for node in select(graph, ["NobodysOp"])] == ["n"]
    with raises(PipelineError, "missing", kind="op", name="NobodysOps"):
        select(graph, ["Relu", "NobodysOps"])


def test_outputs_that_are_read():
    graph = graph_of(("s", "Split", ("c", "x")), ("r", "Relu", ("s:1",)), ("w", "NoOp", ("^s",)))
    assert ports_read(graph, [graph["s"], graph["r"]]) == {"s": {1, -1}, "r": set()}
