"""GELU is found however it is written, and nothing else is."""

import math

import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.composites import gelu_of
from tests.support import building

ROOT = math.sqrt(0.5)
TANH = math.sqrt(2 / math.pi)


def tf():
    import tensorflow

    return tensorflow


EXACT = {
    "erf": lambda x: 0.5 * x * (1.0 + tf().math.erf(x / 2**0.5)),
    "erf last": lambda x: (1.0 + tf().math.erf(x * ROOT)) * x * 0.5,
    "erfc": lambda x: x * (tf().math.erfc(x * -ROOT) * 0.5),
    "tf.nn.gelu": lambda x: tf().nn.gelu(x, approximate=False),
    "erf minus": lambda x: x * (0.5 - 0.5 * tf().math.erf(-ROOT * x)),
}
APPROXIMATE = {
    "tf.nn.gelu": lambda x: tf().nn.gelu(x, approximate=True),
    "pow": lambda x: 0.5 * x * (1.0 + tf().tanh(TANH * (x + 0.044715 * tf().pow(x, 3.0)))),
    "products": lambda x: x * (0.5 + 0.5 * tf().tanh(x * TANH * (1.0 + 0.044715 * x * x))),
}
OTHERS = {
    "swish": lambda x: x * tf().sigmoid(x),
    "by sigmoid": lambda x: x * tf().sigmoid(1.702 * x),
    "another coefficient": lambda x: 0.5 * x * (1.0 + tf().tanh(TANH * (x + 0.0437 * x * x * x))),
    "no half": lambda x: x * (1.0 + tf().math.erf(x * ROOT)),
    "shifted": lambda x: (x + 0.001) * 0.5 * (1.0 + tf().math.erf(x * ROOT)),
    "of two tensors": lambda x: tf().nn.relu(x) * 0.5 * (1.0 + tf().math.erf(x * ROOT)),
    "the square": lambda x: x * x,
    "erf alone": lambda x: tf().math.erf(x),
}


def net(function) -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf().compat.v1.placeholder(tf().float32, (None, 4), name="x")
        y = function(tf().identity(x, name="y"))
        tf().abs(y, name="out")
    graph.prune()
    return graph


@pytest.mark.parametrize(
    ("kind", "function"),
    [("GeluExact", each) for each in EXACT.values()]
    + [("GeluApproximate", each) for each in APPROXIMATE.values()],
    ids=[*EXACT, *APPROXIMATE],
)
def test_found_in_each_form(kind, function):
    graph = net(function)
    found = gelu_of(graph, graph["y"])
    assert found is not None
    assert found.kind == kind
    assert found.nodes[-1].name == graph["out"].inputs[0]
    between = {node.name for node in graph if node.op != "Const"} - {"x", "y", "out"}
    assert {node.name for node in found.nodes} == between


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_other_functions_are_none(function):
    graph = net(function)
    assert gelu_of(graph, graph["y"]) is None


def test_what_is_needed_elsewhere_is_none():
    found = gelu_of(graph := net(EXACT["erf"]), graph["y"])
    for name in ("y", *(node.name for node in found.nodes[:-1])):
        graph.outputs = ("out", name)
        assert gelu_of(graph, graph["y"]) is None
    graph.outputs = ("out",)
    for node in found.nodes:
        graph.inputs = ("x", node.name)
        assert gelu_of(graph, graph["y"]) is None


def test_a_part_that_somebody_waits_for_is_needed():
    graph = net(EXACT["erf"])
    step = gelu_of(graph, graph["y"]).nodes[0]
    graph.replace(graph["out"], graph["out"].with_control_inputs(f"^{step.name}"))
    assert gelu_of(graph, graph["y"]) is None
