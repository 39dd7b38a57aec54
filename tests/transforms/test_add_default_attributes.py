import pytest

from deploykit.transforms.add_default_attributes import add_default_attributes
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import FunctionDefLibrary
from tests.support import building, raises, tf, transform
from tests.transforms.examples import Example

LRN_DEFAULTS = {"depth_radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5}


def two_lrns() -> Graph:
    """Return two LRN nodes, one with all attributes and one without any that has a default."""

    with building(["x"], ["bare"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[1, 2, 2, 8], name="x")
        full = {"depth_radius": 3, "bias": 2.0, "alpha": 0.5, "beta": 0.75}
        first = tf.raw_ops.LRN(input=x, **full, name="full")
        tf.raw_ops.LRN(input=first, name="bare")
    return without_defaults(graph, "bare")


def without_defaults(graph: Graph, name: str) -> Graph:
    """Return the graph with every attribute of a node removed that has a default."""
    optional = [a.name for a in op_defs()[graph[name].op].attr if a.HasField("default_value")]
    graph.replace(graph[name], graph[name].with_attrs(**dict.fromkeys(optional)))
    return graph


def missing(graph: Graph) -> list[str]:
    """Return what is missing, as NODE.ATTRIBUTE."""
    return [
        f"{node.name}.{attr.name}"
        for node in graph
        for attr in op_defs()[node.op].attr
        if attr.name not in node.attrs
    ]


def test_the_bare_node_gets_the_defaults_and_the_other_keeps_its_own():
    graph = two_lrns()
    assert missing(graph) == ["bare.depth_radius", "bare.bias", "bare.alpha", "bare.beta", "bare.T"]
    result = transform(graph, "add_default_attributes")
    assert missing(result) == []
    for name, value in LRN_DEFAULTS.items():
        assert result["bare"].attr(name) == value
    assert result["full"] == graph["full"]


def test_a_default_that_is_an_empty_list_is_written():
    graph = Graph([Node("c", "Conv2D", ("x", "w")), Node("x", "Placeholder"), Node("w", "Const")])
    add_default_attributes(graph)
    assert graph["c"].attr("dilations") == [1, 1, 1, 1]
    assert graph["c"].attr("data_format") == "NHWC"
    assert graph["c"].attrs["explicit_paddings"].WhichOneof("value") == "list"
    assert graph["x"].attrs["shape"].shape.unknown_rank
    assert "strides" not in graph["c"].attrs  # it has no default


def test_a_call_of_a_function_of_the_graph_is_left_alone():
    library = FunctionDefLibrary()
    library.function.add().signature.name = "scaled"
    call = Node("call", "scaled")
    graph = Graph([call], library=library)
    add_default_attributes(graph)
    assert graph["call"] is call


@pytest.mark.parametrize(
    "node",
    [
        Node("n", "NoOp"),
        Node("n", "Relu").with_attrs(T=1),
        Node("n", "LRN").with_attrs(depth_radius=1, bias=2.0, alpha=3.0, beta=4.0, T=1),
    ],
)
def test_a_complete_node_is_left_alone(node):
    graph = Graph([node])
    add_default_attributes(graph)
    assert graph["n"] is node


def test_an_unknown_op_is_an_error_with_the_nearest_names():
    with raises(GraphError, "unknown-op-of-node", node="n", op="Rellu"):
        add_default_attributes(Graph([Node("n", "Rellu")]))


GRAPHS = [Example("add_default_attributes", two_lrns, golden="two_lrns")]
