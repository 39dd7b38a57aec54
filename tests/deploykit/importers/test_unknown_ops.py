"""Ops that this TensorFlow does not have: they matter only where the outputs need them."""

from dataclasses import replace

import numpy as np
import pytest

import deploykit
from deploykit.importers.unusual_ops import unknown_ops
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, build, run, says

pytestmark = pytest.mark.usefixtures("in_process")

X = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)


def net() -> Graph:
    """Return texts -> a library's op with three outputs -> two layers, and an op that logs."""

    def make():
        import tensorflow.compat.v1 as tf

        tf.placeholder(tf.string, [None], name="texts")
        values = tf.placeholder(tf.float32, None, name="values")
        sizes = tf.placeholder(tf.int32, [None], name="sizes")
        hidden = tf.matmul(tf.multiply(values, 2.0, name="scaled"), tf.eye(3), name="hidden")
        tf.add(hidden, tf.cast(tf.reduce_sum(sizes), tf.float32), name="scores")

    graph = build(make, outputs=["scores"])
    tokens = Node("tokens", "SentenceTokens", ("texts",)).with_attrs(T=DType("string"))
    graph.add(tokens)
    graph.redirect({"values": "tokens:1", "sizes": "tokens:2"})
    graph.remove(graph["values"])
    graph.remove(graph["sizes"])
    graph.add(Node("logged", "LogScores", ("scores",)))
    return graph


@pytest.fixture
def path(tmp_path) -> str:
    file = tmp_path / "net.pb"
    file.write_bytes(b"".join(net().serialized()))
    return str(file)


def test_a_cut_leaves_an_unknown_op_out(path, caplog):
    caplog.set_level("INFO", "deploykit")
    model = deploykit.open_model(path, inputs=["scaled"], outputs=["hidden"])
    assert caplog.text == Containing("TensorFlow", "'SentenceTokens'", "'tokens'", "1")
    assert {"SentenceTokens", "LogScores"}.isdisjoint(node.op for node in model.graph)
    narrowed = deploykit.open_model(model, outputs=["scaled"])
    for each in (model, narrowed):
        assert each.file_of(each.graph) is None  # TensorFlow does not import that file
    np.testing.assert_allclose(run(deploykit.optimize(model), {"scaled": X})[0], X)


def test_a_cut_at_the_results_of_an_unknown_op(path):
    model = deploykit.open_model(path, inputs=["tokens:1", "tokens:2"], outputs=["scores"])
    frozen = deploykit.freeze(model)
    assert [(n.name, n.attr("dtype")) for n in frozen if n.op == "Placeholder"] == [
        ("tokens", "float32"), ("tokens_2", "int32"),
    ]  # fmt: skip
    feeds = {"tokens": X, "tokens_2": np.array([1, 2], np.int32)}
    np.testing.assert_allclose(run(frozen, feeds)[0], 2 * X + 3)


def test_strip_unused_nodes_gives_the_shape_of_a_cut(path):
    graph = deploykit.transform(
        deploykit.open_model(path, inputs=["scaled"], outputs=["hidden"]),
        'strip_unused_nodes(type=float, shape="2,3")',
    )
    assert graph["scaled"].attr("shape") == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "outputs", "op", "such"),
    [([], "scores", "SentenceTokens", ", such as --inputs tokens:1,tokens:2"),
     (["tokens:1", "tokens:2"], "logged", "LogScores", "")],
)  # fmt: skip
def test_an_unknown_op_that_outputs_need_is_refused(path, inputs, outputs, op, such):
    with pytest.raises(GraphError, match=says("op-unknown")):
        deploykit.open_model(path, outputs=[outputs], inputs=inputs)


def test_diff_compares_unknown_ops_too(path, tmp_path):
    graph = net()
    graph.replace(graph["logged"], replace(graph["logged"], op="PrintScores"))
    other = tmp_path / "other.pb"
    other.write_bytes(b"".join(graph.serialized()))
    assert deploykit.diff(path, path).equal
    assert not deploykit.diff(path, other).equal


def test_nodes_are_looked_at_only_where_an_op_is_unknown(monkeypatch):
    graph = build(lambda: None)
    graph.add(Node("x", "NoOp"))
    monkeypatch.setattr(Graph, "__iter__", lambda graph: pytest.fail("nodes were looked at"))
    assert unknown_ops(graph) == []
    graph.add(Node("y", "LogScores"))
    monkeypatch.undo()
    assert unknown_ops(graph) == [("y", "LogScores")]


def test_a_function_with_an_unknown_op_that_nothing_calls(path, tmp_path):
    graph = net()
    function = graph.library.function.add()
    function.signature.name = "own"
    function.node_def.add(name="tokens", op="SentenceTokens")
    graph.remove(graph["logged"])
    model = deploykit.open_model(graph.to_graph_def(), inputs=["scaled"], outputs=["hidden"])
    assert not model.graph.library.function
