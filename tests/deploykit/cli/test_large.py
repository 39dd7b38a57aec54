"""Large graphs go through the default pipeline: nothing recurses, nothing is quadratic."""

import numpy as np

import deploykit
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.tensors import DType

COUNT = 100_000


def relu(name, *inputs):
    return Node(name, "Relu", inputs).with_attrs(T=DType("float32"))


X = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))


def test_chain():
    nodes = [X]
    for number in range(COUNT):
        nodes.append(relu(f"n{number}", nodes[-1].name))
    graph = deploykit.optimize(Graph(nodes, ["x"], [nodes[-1].name]))
    assert len(graph) == COUNT + 1


def test_fan_out_of_constants_and_identities():
    attrs = {"T": DType("float32")}
    nodes = [X, Node.constant("c", np.ones((2, 3), np.float32))]
    for number in range(COUNT // 4):
        nodes.append(Node(f"i{number}", "Identity", ("x",)).with_attrs(**attrs))
        nodes.append(Node(f"d{number}", "Neg", ("c",)).with_attrs(**attrs))
        nodes.append(Node(f"a{number}", "AddV2", (f"i{number}", f"d{number}")).with_attrs(**attrs))
        nodes.append(relu(f"n{number}", f"a{number}"))
    outputs = [node.name for node in nodes if node.op == "Relu"]
    graph = deploykit.optimize(Graph(nodes, ["x"], outputs))
    assert sum(node.op in ("Identity", "Neg") for node in graph) == 0
