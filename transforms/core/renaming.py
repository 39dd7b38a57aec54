"""A node is the same under another name, if all that names it is told."""

from collections.abc import Mapping
from dataclasses import replace

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, split, tensor_name

_COLOCATED = "loc:@"


def rename(graph: Graph, names: Mapping[str, str]) -> None:
    """Give nodes other names, and tell inputs, colocations and the graph's inputs and outputs.

    Names may be swapped, as all nodes change at once; they keep their order.
    GraphError: two nodes would bear one name.
    """

    def moved(tensor: str) -> str:
        name, port = split(tensor)
        return tensor_name(names[name], port) if name in names else tensor

    def renamed(node: Node) -> Node:
        inputs = tuple(map(moved, node.inputs))
        name = names.get(node.name, node.name)
        if name != node.name or inputs != node.inputs:
            node = replace(node, name=name, inputs=inputs)
        classes = node.attr("_class") if "_class" in node.attrs else None
        if isinstance(classes, list):
            told = [_told(str(each), names) for each in classes]
            node = node if told == classes else node.with_attrs(_class=told)
        return node

    nodes = list(graph)
    for node in nodes:  # without readers, each may go whatever the order
        graph.replace(node, replace(node, inputs=()))
    for node in nodes:
        graph.remove(node)
    for node in nodes:
        graph.add(renamed(node))
    graph.inputs = tuple(map(moved, graph.inputs))
    graph.outputs = tuple(map(moved, graph.outputs))


def _told(colocation: str, names: Mapping[str, str]) -> str:
    name = colocation.removeprefix(_COLOCATED)
    return f"{_COLOCATED}{names[name]}" if name != colocation and name in names else colocation
