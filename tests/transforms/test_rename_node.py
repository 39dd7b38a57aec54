import pytest

from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir.graph import Graph
from tests.support import (
    assert_golden,
    building,
    error,
    random,
    run,
    says,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = random(2, 4, seed=1)


def halves() -> Graph:
    """Return a graph in which both outputs of `s` are read, `out` waits for it and lies with it."""

    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        s = tf.raw_ops.Split(axis=1, value=x, num_split=2, name="s")
        product = tf.raw_ops.Mul(x=s[0], y=s[1], name="product")
        with tf.control_dependencies([s[1]]):
            tf.raw_ops.Neg(x=product, name="out")
    graph.replace(graph["out"], graph["out"].with_attrs(_class=["loc:@s", "loc:@product"]))
    return graph


def rename(graph: Graph, old: str, new: str) -> Graph:
    return transform(graph, f"rename_node(old_node_name={old}, new_node_name={new})")


@pytest.mark.golden("rename_node/halves")
def test_golden():
    graph = halves()
    assert_golden(graph, rename(graph, "s", "deep/parts"))


def test_all_that_names_the_node_is_told():
    graph = halves()
    result = rename(graph, "s", "deep/parts")
    assert result["product"].inputs == ("deep/parts", "deep/parts:1")
    assert result["out"].inputs == ("product", "^deep/parts")
    assert result["out"].attr("_class") == ["loc:@deep/parts", "loc:@product"]
    assert "s" not in result
    assert error(graph, result, {"x": X}) == 0


def test_inputs_and_outputs_go_by_their_new_names():
    graph = halves()
    result = rename(rename(graph, "x", "image"), "out", "answer")
    assert result.inputs == ("image",)
    assert result.outputs == ("answer",)
    assert (run(result, {"image": X})[0] == run(graph, {"x": X})[0]).all()
    assert transform(result, "strip_unused_nodes").outputs == ("answer",)


def test_an_output_keeps_its_port():
    graph = halves()
    graph.outputs = ["s:1", "out"]
    assert rename(graph, "s:0", "t").outputs == ("t:1", "out")


def test_the_nodes_keep_their_order():
    graph = halves()
    assert [n.name for n in rename(graph, "s", "t")] == [
        {"s": "t"}.get(node.name, node.name) for node in graph
    ]


def test_nodes_that_do_not_name_it_are_left_alone():
    graph = halves()
    result = rename(graph, "x", "y")
    assert all(result[name] is graph[name] for name in ("product", "out", "s/split_dim"))


@pytest.mark.parametrize(
    ("old", "new", "error_type", "message"),
    [
        ("sum", "t", GraphError, says("missing", name="sum")),
        ("s", "x", GraphError, says("new-name-taken", name="x")),
        ("s", "s", GraphError, says("new-name-taken", name="s")),
        ("s", '"a b"', PipelineError, says("unexpected", what="new_node_name", got="a b")),
        ("s", '"t:0"', PipelineError, says("unexpected")),
        ("s", '""', PipelineError, says("unexpected")),
    ],
)
def test_what_cannot_be(old, new, error_type, message):
    with pytest.raises(error_type, match=message):
        rename(halves(), old, new)


GRAPHS = [Example("rename_node(old_node_name=s, new_node_name=halves)", halves)]
