import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, building, error, random, says, skipped, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


def layers() -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        product = tf.raw_ops.MatMul(a=x, b=random(4, 4), transpose_b=True, name="product")
        tf.raw_ops.LeakyRelu(features=product, alpha=0.5, name="out")
    for name in ("product", "out"):
        graph.replace(graph[name], graph[name].with_attrs(_old=name))
    return graph


@pytest.mark.golden("rename_attribute/layers")
def test_golden():
    graph = layers()
    text = "rename_attribute(old_attribute_name=_old, new_attribute_name=_new)"
    assert_golden(graph, transform(graph, text))


@pytest.mark.parametrize(
    ("op", "renamed"), [("", {"product", "out"}), (', op_name="*"', {"product", "out"}),
                        (", op_name=MatMul", {"product"}), (", op_name=Conv2D", set())]
)  # fmt: skip
def test_per_op(op, renamed):
    graph = layers()
    text = f"rename_attribute(old_attribute_name=_old, new_attribute_name=_new{op})"
    result = transform(graph, text)
    assert {node.name for node in result if node.attr("_new") == node.name} == renamed
    assert not any({"_old", "_new"} <= set(node.attrs) for node in result)
    assert error(graph, result, X) == 0


def test_there_and_back():
    graph = layers()
    graph.prune()
    there = "rename_attribute(old_attribute_name=transpose_b, new_attribute_name=flip)"
    back = "rename_attribute(old_attribute_name=flip, new_attribute_name=transpose_b)"
    assert str(transform(graph, f"{there} {back}")) == str(graph)
    assert error(graph, transform(graph, there), X) > 0.1  # the default, false, took its place


def test_a_node_that_has_both_keeps_both():
    """The original tool drops the old one without a word."""
    graph = layers()
    graph.prune()
    text = "rename_attribute(old_attribute_name=transpose_b, new_attribute_name=transpose_a)"
    result = transform(graph, text)
    assert str(result) == str(graph)
    assert result.skipped == [skipped("product", "attribute-exists", attribute="transpose_a")]


@pytest.mark.parametrize("names", [("nothing", "_new"), ("_old", "_old")])
def test_left_alone(names):
    graph = layers()
    graph.prune()
    text = "rename_attribute(old_attribute_name={}, new_attribute_name={})".format(*names)
    result = transform(graph, text)
    assert all(a is b for a, b in zip(graph, result, strict=True))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("old_attribute_name=a", says("parameter-missing", name="new_attribute_name")),
        ("new_attribute_name=a", says("parameter-missing", name="old_attribute_name")),
        (
            "old_attribute_name=a, new_attribute_name=b, op_name=Nonsense",
            says("missing", kind="op", name="Nonsense"),
        ),
        (
            "old_attribute_name=a, old_attribute_name=b, new_attribute_name=c",
            says("parameter-twice"),
        ),
    ],
)
def test_wrong_parameters(parameters, message):
    with pytest.raises(PipelineError, match=message):
        transform(layers(), f"rename_attribute({parameters})")


GRAPHS = [Example("rename_attribute(old_attribute_name=_old, new_attribute_name=_new)", layers)]
