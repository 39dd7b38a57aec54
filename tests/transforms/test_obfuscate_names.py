import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.obfuscate_names import obfuscate_names
from tests.support import building, error, random, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


def secret() -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        product = tf.raw_ops.MatMul(a=x, b=random(4, 6), name="secret/product")
        parts = tf.raw_ops.Split(axis=1, value=product, num_split=2, name="secret/parts")
        with tf.control_dependencies([product]):
            tf.raw_ops.Sub(x=parts[1], y=parts[0], name="out")
    colocated = graph["out"].with_attrs(_class=["loc:@secret/parts"])
    graph.replace(graph["out"], colocated)
    return graph


def chain(names: list[str], outputs: list[str]) -> Graph:
    inputs = [(), *((name,) for name in names[:-1])]
    nodes = [Node(n, "Relu" if i else "Placeholder", i) for n, i in zip(names, inputs, strict=True)]
    return Graph(nodes, names[:1], outputs)


@pytest.mark.parametrize("end", ["", ":0"])
def test_inputs_and_outputs_keep_their_names_however_they_are_written(end):
    graph = secret()
    graph.inputs, graph.outputs = [f"x{end}"], [f"out{end}", "secret/parts:1"]
    result = transform(graph, "obfuscate_names")
    assert {"x", "out", "secret/parts"} <= {node.name for node in result}
    assert result.outputs == ("out", "secret/parts:1")
    assert error(graph, result, X) == 0


def test_the_numbers_have_62_digits_and_go_in_the_order_of_the_nodes():
    names = [f"node{i}" for i in range(5000)]
    graph = chain(names, [names[-1]])
    obfuscate_names(graph)
    found = [node.name for node in graph]
    assert found[:12] == ["node0", *"0123456789a"]
    assert found[62:65] == ["Z", "10", "11"]
    assert found[63 + 61 * 62 :][0] == "100"
    assert found[-1] == "node4999"
    assert len(set(found)) == 5000
    graph.check()


def test_numbers_that_are_taken_are_passed_over():
    graph = chain(["in", *(f"n{i}" for i in range(70)), "10", "19"], ["10", "19"])
    obfuscate_names(graph)
    found = [node.name for node in graph]
    assert found[63:66] == ["11", "12", "13"]
    assert found[-2:] == ["10", "19"]
    assert len(set(found)) == 73
    graph.check()


def test_names_may_swap():
    graph = chain(["x", "2", "1", "0", "y"], ["y"])
    obfuscate_names(graph)
    assert [(n.name, n.inputs) for n in graph][1:4] == [("0", ("x",)), ("1", ("0",)), ("2", ("1",))]
    obfuscate_names(graph)
    assert [n.name for n in graph] == ["x", "0", "1", "2", "y"]


def test_a_loop():
    """A while loop of TensorFlow 1 is a cycle, and its nodes read what comes later."""

    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        tf.compat.v1.disable_control_flow_v2()
        try:
            _, y = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 1.5), (0, x))
        finally:
            tf.compat.v1.enable_control_flow_v2()
        tf.identity(y, name="out")
    result = transform(graph, "obfuscate_names")
    assert not any("while" in node.name for node in result)
    assert error(graph, result, X) == 0


def test_a_graph_of_inputs_and_outputs_is_left_alone():
    graph = chain(["x", "y"], ["y"])
    before = list(graph)
    obfuscate_names(graph)
    assert all(a is b for a, b in zip(before, graph, strict=True))


GRAPHS = [Example("obfuscate_names", secret, golden="secret")]
