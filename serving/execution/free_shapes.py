"""Inputs that may come in any shape, as what reads them works element by element.

TensorFlow compares no feed with its signature, so TensorFlow Serving answers `[2.0, 3.0]` where
half_plus_two says `[None, 1]`, as its first example and its own tests do. But some kernels end
the process over a shape that they were not made for: only inputs that reach none of them are free.
"""

from collections.abc import Mapping

from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.core.functions import CALL_OPS
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import producer_name
from deploykit.transforms.core.order import reached
from deploykit.transforms.core.protos import MetaGraphDef

_ELEMENTWISE = frozenset(
    ("Abs", "Add", "AddV2", "Exp", "Identity", "Maximum", "Minimum", "Mul", "Neg", "RealDiv",
     "Relu", "Sigmoid", "Sub", "Tanh")
)  # fmt: skip
_BESIDE = frozenset(("Const", "NoOp", "ReadVariableOp"))  # in a function: what else stands there


def free_inputs(meta: MetaGraphDef, signatures: Mapping[str, Signature]) -> frozenset[str]:
    """Return the tensors that are inputs and may have any shape."""
    tensors = {
        tensor.name
        for signature in signatures.values()
        for tensor in signature.inputs.values()
        if _single(tensor)
    }
    if not tensors:
        return frozenset()
    graph = Graph.from_graph_def(meta.graph_def)
    bodies = {
        function.signature.name: [(node.op, node.attr["f"].func.name) for node in function.node_def]
        for function in graph.library.function
    }
    return frozenset(each for each in tensors if _is_free(graph, bodies, producer_name(each)))


def _single(tensor: Tensor) -> bool:
    """Whether each size is open or 1: what it meets is then most likely one number, not many."""
    return tensor.shape is not None and all(size in (-1, 1) for size in tensor.shape)


def _is_free(graph: Graph, bodies: Mapping[str, list[tuple[str, str]]], name: str) -> bool:
    readers = [graph[each] for each in graph.descendants([name], control=False) - {name}]
    functions = reached(
        (node.attrs["f"].func.name for node in readers if node.op in CALL_OPS),
        lambda each: [callee for op, callee in bodies.get(each, ()) if op in CALL_OPS],
    )
    inside = {op for each in functions for op, _ in bodies.get(each, [("", "")])}
    known = _ELEMENTWISE | CALL_OPS
    return known.issuperset(node.op for node in readers) and inside <= known | _BESIDE
