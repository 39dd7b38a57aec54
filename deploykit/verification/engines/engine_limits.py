"""Limits of OpenVINO that hold for all inputs, so that samples need not reveal them."""

import re
from collections.abc import Iterator

from deploykit.transforms.ir.functions import Library, reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.verification.synthetic.sample_inputs import type_and_shape

_NO_NUMBERS = ("string", "resource", "variant")
_WIDE = ("int64", "uint32", "uint64")
_PRODUCTS = frozenset({"Cumprod", "LeftShift", "MatMul", "Mul", "Pow", "Prod", "Square"})
_DRAWS = re.compile(r"Multinomial|Parameterized\w+|Random\w+|TruncatedNormal")
_SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})  # they do not read values


def unfit(graph: Graph) -> str:
    """Return why OpenVINO cannot run a graph correctly, or an empty string.

    It has no strings. For duplicate indices, its ScatterNd keeps the last value instead of the sum.
    It computes integers in 32 bits on CPUs, so int64 products such as hashes are only right for
    small ids. Its random numbers differ, with a seed at the latest from the second run.
    """
    for kind, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            type_ = type_and_shape(graph, tensor)[0]
            if type_ in _NO_NUMBERS:
                op = graph[producer_name(tensor)].op
                return f"{kind} '{tensor}' ({op}) has dtype {type_}, which OpenVINO does not have"
    for node in graph:
        if node.op == "ScatterNd" and graph.constant(node.data_inputs[0]) is None:
            return (
                f"node '{node.name}' (ScatterNd) sums values with the same index, but OpenVINO "
                "keeps only the last"
            )
    for name, op in ops_of(graph):
        if _DRAWS.fullmatch(op):
            return f"node '{name}' ({op}) draws random numbers, which differ between engines"
    if (result := _product(graph)) is not None:
        return (
            f"node '{result.name}' ({result.op}) multiplies {result.attr('T')} that depend on "
            "inputs, but OpenVINO computes integers in 32 bits"
        )
    return ""


def ops_of(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the name and op of each node, including those in functions that may be called."""
    yield from ((node.name, node.op) for node in graph)
    library = Library(graph)
    for name in reachable(graph):
        yield from ((node.name, node.op) for node in library.functions[name].node_def)


def _product(graph: Graph) -> Node | None:
    """Return a node that multiplies wide integers that depend on input values, or None."""
    live = graph.ancestors(map(producer_name, graph.outputs))
    waiting = [name for name in map(producer_name, graph.inputs) if name in live]
    seen = set(waiting)
    readers: dict[str, list[str]] = {}
    for name in live:
        for tensor in graph[name].data_inputs:
            readers.setdefault(producer_name(tensor), []).append(name)
    while waiting:
        for name in readers.get(waiting.pop(), ()):
            node = graph[name]
            if name in seen or node.op in _SIZES:
                continue
            if node.op in _PRODUCTS and node.attr("T") in _WIDE:
                return node
            seen.add(name)
            waiting.append(name)
    return None
