"""What an engine cannot compute whatever it is fed, so that no sample need show it."""

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
_SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})  # of what they read, not its values


def unfit(graph: Graph) -> str:
    """Return why OpenVINO cannot compute a graph, or an empty string.

    It has no texts. Of what ScatterNd puts in one place it keeps the last instead of the sum. It
    computes whole numbers in 32 bits on CPUs: ids of that size, multiplied in 64 as a hash does it,
    are right for small ids alone. Random numbers are others in each engine, and where the model has
    a seed, others from the second call on.
    """
    for kind, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            type_ = type_and_shape(graph, tensor)[0]
            if type_ in _NO_NUMBERS:
                op = graph[producer_name(tensor)].op
                return f"{kind} '{tensor}' ({op}) is of type {type_}, which OpenVINO does not have"
    for node in graph:
        if node.op == "ScatterNd" and graph.constant(node.data_inputs[0]) is None:
            return (
                f"node '{node.name}' (ScatterNd) sums what comes to one place, of which OpenVINO "
                "keeps the last"
            )
    for name, op in ops_of(graph):
        if _DRAWS.fullmatch(op):
            return f"node '{name}' ({op}) draws random numbers, so no two engines give the same"
    if (result := _product(graph)) is not None:
        return (
            f"node '{result.name}' ({result.op}) multiplies {result.attr('T')} that depend on "
            "what is "
            "fed, but OpenVINO computes whole numbers in 32 bits"
        )
    return ""


def ops_of(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the name and the op of each node, also of those in functions that may be called."""
    yield from ((node.name, node.op) for node in graph)
    library = Library(graph)
    for name in reachable(graph):
        yield from ((node.name, node.op) for node in library.functions[name].node_def)


def _product(graph: Graph) -> Node | None:
    """Return a node that multiplies long whole numbers made of the values of inputs."""
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
