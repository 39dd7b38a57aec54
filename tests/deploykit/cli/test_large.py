"""Large graphs go through the default pipeline: nothing recurses, nothing is quadratic."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType

COUNTS = pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])


def relu(name, *inputs):
    return Node(name, "Relu", inputs).with_attrs(T=DType("float32"))


X = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))


@COUNTS
def test_chain(count):
    nodes = [X]
    for number in range(count):
        nodes.append(relu(f"n{number}", nodes[-1].name))
    graph = deploykit.optimize(Graph(nodes, ["x"], [nodes[-1].name]))
    assert len(graph) == count + 1


@pytest.mark.sampled
@COUNTS
def test_fan_out_of_constants_and_identities(count):
    attrs = {"T": DType("float32")}
    nodes = [X, Node.constant("c", np.ones((2, 3), np.float32))]
    for number in range(count // 4):
        nodes.append(Node(f"i{number}", "Identity", ("x",)).with_attrs(**attrs))
        nodes.append(Node(f"d{number}", "Neg", ("c",)).with_attrs(**attrs))
        nodes.append(Node(f"a{number}", "AddV2", (f"i{number}", f"d{number}")).with_attrs(**attrs))
        nodes.append(relu(f"n{number}", f"a{number}"))
    outputs = [node.name for node in nodes if node.op == "Relu"]
    graph = deploykit.optimize(Graph(nodes, ["x"], outputs))
    assert sum(node.op in ("Identity", "Neg") for node in graph) == 0
