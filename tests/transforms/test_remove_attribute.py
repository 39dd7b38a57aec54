import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import DType
from tests.support import building, error, raises, random, says, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


def marked() -> Graph:
    """Return x @ w, then relu, each with an attribute that no op declares."""

    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        product = tf.raw_ops.MatMul(a=x, b=random(4, 4), transpose_b=True, name="product")
        tf.raw_ops.LeakyRelu(features=product, alpha=0.5, name="out")
    for name in ("product", "out"):
        graph.replace(graph[name], graph[name].with_attrs(_mark=1))
    return graph


def having(graph: Graph, attribute: str) -> set[str]:
    return {node.name for node in graph if attribute in node.attrs}


@pytest.mark.parametrize(
    ("parameters", "left"),
    [
        ("attribute_name=_mark", set()),
        ('attribute_name=_mark, op_name="*"', set()),
        ("attribute_name=_mark, op_name=MatMul", {"out"}),
        ("attribute_name=_mark, op_name=Conv2D", {"product", "out"}),
    ],
)
def test_the_values_stay_when_nothing_reads_the_attribute(parameters, left):
    graph = marked()
    result = transform(graph, f"remove_attribute({parameters})")
    assert having(result, "_mark") == left
    assert error(graph, result, X) == 0


def test_the_default_takes_the_place_of_an_attribute():
    graph = marked()
    result = transform(graph, "remove_attribute(attribute_name=alpha)")
    expected = graph.copy()
    expected.replace(expected["out"], expected["out"].with_attrs(alpha=0.2))
    assert error(expected, result, X) == 0
    assert error(graph, result, X) > 0.1


@pytest.mark.parametrize("name", ["nothing", "mark", "T_", ""])
def test_nodes_without_the_attribute_are_left_alone(name):
    graph = marked()
    graph.prune()
    result = transform(graph, f'remove_attribute(attribute_name="{name}")')
    assert all(a is b for a, b in zip(graph, result, strict=True))


def test_only_the_attribute_goes():
    graph = marked()
    result = transform(graph, "remove_attribute(attribute_name=_mark, op_name=MatMul)")
    assert result["product"] == graph["product"].with_attrs(_mark=None)
    assert result["product"].attr("T") == DType("float32")


def test_an_op_that_does_not_exist_is_an_error():
    with pytest.raises(PipelineError, match=says("missing", kind="op", name="MatMull")):
        transform(marked(), "remove_attribute(attribute_name=_mark, op_name=MatMull)")
    with raises(PipelineError, "parameter-missing", name="attribute_name"):
        transform(marked(), "remove_attribute(op_name=MatMul)")


GRAPHS = [Example("remove_attribute(attribute_name=_mark)", marked, golden="marked")]
