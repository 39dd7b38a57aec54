"""The comparison sees each kind of difference, and the worker each kind of end."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.differential.comparison import differences, left_over
from tests.differential.defects.fold_old_batch_norms import one_norm_for_two
from tests.differential.graphs import two_layers
from tests.support import Containing


def edit(name: str, **attrs):
    return lambda graph: graph.replace(graph[name], graph[name].with_attrs(**attrs))


def inputs(name: str, *tensors: str):
    return lambda graph: graph.replace(graph[name], replace(graph[name], inputs=tensors))


def another_op(graph: Graph) -> None:
    node = graph["relu"]
    graph.replace(node, Node("relu", "Elu", node.inputs, node.attrs))


def another_device(graph: Graph) -> None:
    node = graph["relu"]
    graph.replace(node, Node("relu", "Relu", node.inputs, node.attrs, "/CPU:0"))


def a_copy(graph: Graph) -> None:
    """Let one of two readers read a copy of what both read."""
    graph.add(graph["relu"].with_name("copy"))
    graph.replace(graph["b"], graph["b"].with_data_inputs("copy", "s"))


def another_output(graph: Graph) -> None:
    graph.outputs = ("dense",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit("mean", keep_dims=True), "keep_dims is True"),
        (edit("mean", keep_dims=None), "the attribute keep_dims"),
        (edit("axes", value=np.array([1, 3], np.int32)), "'axes': value is"),
        (edit("axes", value=np.array([1, 2], np.int64)), "'axes': value is"),
        (inputs("out", "dense/b", "dense"), "is Const, not"),
        (inputs("mul", "conv:1", "s"), "'mul': its inputs"),
        (inputs("scale"), "(), not ('^conv',)"),
        (inputs("checked", "sum", "^relu"), "'checked': its inputs"),
        (another_op, "is Elu, not"),
        (another_device, "'/CPU:0', not ''"),
        (a_copy, "in one place"),
        (another_output, "inputs or outputs"),
    ],
)
def test_differences_are_seen(change, said):
    before = two_layers()
    after = before.copy()
    assert not differences(before, after, 0)
    change(after)
    assert any(said in found for found in differences(before, after, 0))
    assert differences(after, before, 0)
    assert differences(before, after, 0, names=False)


def test_names_and_values_within_the_tolerance():
    before = two_layers()
    after = before.copy()
    weights = before["dense/w"].value * np.float32(1 + 1e-5)
    after.add(Node.constant("other", weights))
    after.redirect({"dense/w": "other"})
    assert not differences(before, after, 2e-5, names=False)
    assert differences(before, after, 2e-5) == [Containing("'dense/w'", "name is", "'other'")]
    assert "value is" in differences(before, after, 1e-6, names=False)[0]


def test_what_is_left_over():
    graph = two_layers()
    assert left_over(graph) == ["unused"]


def test_an_end_by_a_limit_is_told_from_an_error(original):
    graph = two_layers()
    endless = original.ask(one_norm_for_two(), "fold_old_batch_norms", seconds=0.5)
    assert endless.timed_out
    assert "not recognized" in original.ask(graph, "remove_devise").error
    assert original.ask(graph, "remove_device").graph_def
