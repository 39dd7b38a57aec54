"""inline_partitionedcall: which calls it takes; test_inline_functions.py tests how they go."""

import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import assert_golden, building, error, ops, random, says, tf, transform
from tests.transforms.examples import Example
from tests.transforms.test_inline_functions import as_everywhere

X = {"x": random(4, 6)}


def calls(outer_op: str = "PartitionedCall", inner_op: str = "PartitionedCall") -> Graph:
    """Return a graph that calls a function which calls another, by these ops.

    The inner one gives the second output of TopKV2, which the original tool takes for the first.
    """

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 6], name="x")

        @tf.function
        def inner(a):
            values, indices = tf.math.top_k(a, 3, name="top")
            return tf.cast(indices, tf.float32), values

        @tf.function
        def outer(a):
            indices, values = inner(a * 2.0)
            return indices - values

        tf.identity(outer(x), name="out")
    graph.prune()
    for node in graph:
        if node.op == "PartitionedCall":
            graph.replace(node, Node(node.name, outer_op, node.inputs, node.attrs))
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == "PartitionedCall":
                node.op = inner_op
    return graph


def test_it_is_what_inline_functions_does_when_there_is_nothing_else():
    ours, whole = (
        transform(calls(), f"inline_{what}") for what in ("partitionedcall", "functions")
    )
    assert str(ours) == str(whole)


def test_other_calls_are_left_alone():
    graph = calls(inner_op="StatefulPartitionedCall")
    result = transform(graph, "inline_partitionedcall")
    assert ops(result)["StatefulPartitionedCall"] == 1
    assert result["PartitionedCall/PartitionedCall"].op == "StatefulPartitionedCall"
    assert error(graph, result, X) == 0
    graph = calls(outer_op="StatefulPartitionedCall")
    assert str(transform(graph, "inline_partitionedcall")) == str(graph)


def test_an_output_that_is_a_call_keeps_its_name():
    """The original tool loses it."""
    graph = calls()
    graph.outputs = ["PartitionedCall"]
    result = transform(graph, "inline_partitionedcall")
    assert result["PartitionedCall"].op == "Identity"
    assert error(graph, result, X) == 0


def test_a_function_that_is_missing_is_an_error():
    graph = calls()
    name = graph["PartitionedCall"].attr("f")
    del graph.library.function[:]
    with pytest.raises(GraphError, match=says("missing", name=name)):
        transform(graph, "inline_partitionedcall")


def test_the_library_stays():
    graph = calls()
    assert transform(graph, "inline_partitionedcall").library == graph.library


@pytest.mark.golden("inline_partitionedcall/calls")
def test_golden():
    graph = calls()
    assert_golden(as_everywhere(graph), transform(graph, "inline_partitionedcall"))


GRAPHS = [Example("inline_partitionedcall", calls)]
