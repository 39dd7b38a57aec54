"""Checks the inputs of a request: aliases, inputs of any shape, the number of examples, and empty
batches.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from deploykit.serving.protocol.codec import decode
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.functions import CALL_OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.protos import MetaGraphDef, NodeDef
from deploykit.transforms.ir.tensors import Array


def rows_of(signature: Signature, feeds: Mapping[str, Array]) -> int | None:
    """Return the number of examples of a request; None: it cannot share a batch."""
    counts = {len(array) if array.ndim else None for array in feeds.values()}
    count = counts.pop() if len(counts) == 1 else None
    return count if count and may_share(signature) else None


def may_share(signature: Signature) -> bool:
    """Return whether requests can share a batch, which joins them on the first axis.

    The first dimension of all tensors is unknown, and no input has its samples on another axis.
    """
    if signature.batch_axes:
        return False
    return all(map(is_open, (*signature.inputs.values(), *signature.outputs.values())))


def with_defaults(signature: Signature, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return all inputs, with defaults filled in. ServingError: an alias is missing or unknown."""
    defaults = signature.proto.defaults
    sent = {alias for alias in inputs if alias not in signature.inputs}
    missing = {a for a in signature.inputs if a not in inputs and a not in defaults}
    if len(inputs) != len(signature.inputs) and (sent or missing) and not defaults:
        raise refused(
            "signature-inputs-differ",
            count=len(inputs),
            expected_count=len(signature.inputs),
            names=as_set(inputs),
            expected=as_set(signature.inputs),
            extra=as_set(sent),
            missing=as_set(missing),
        )
    for alias in sorted(missing):
        raise refused(
            "signature-input-missing",
            alias=alias,
            name=signature.inputs[alias].name,
            expected=as_set(signature.inputs),
        )
    if sent:
        raise refused("signature-inputs-extra", extra=as_set(sent))
    given = {a: decode(defaults[a], a) for a in signature.inputs if a not in inputs}
    return {**inputs, **given}


def requested(signature: Signature, outputs: Sequence[str]) -> list[str]:
    """Return the aliases of the outputs to fetch. ServingError: one is unknown or repeated."""
    for number, alias in enumerate(outputs):
        if alias not in signature.outputs:
            raise refused("signature-output-missing", alias=alias, known=as_set(signature.outputs))
        if alias in outputs[:number]:
            raise refused("signature-output-twice", alias=alias)
    return list(outputs or signature.outputs)


def as_set(aliases: Iterable[str]) -> str:
    """Return aliases as TensorFlow Serving writes a set."""
    return f"{{{','.join(sorted(aliases))}}}"


_ELEMENTWISE = frozenset(
    ("Abs", "Add", "AddV2", "Exp", "Identity", "Maximum", "Minimum", "Mul", "Neg", "RealDiv",
     "Relu", "Sigmoid", "Sub", "Tanh")
)  # fmt: skip
_BESIDE = frozenset(("Const", "NoOp", "ReadVariableOp"))  # further ops that a function may contain


def free_inputs(meta: MetaGraphDef, signatures: Mapping[str, Signature]) -> frozenset[str]:
    """Return the input tensors that may have any shape, as only elementwise ops read them.

    Each declared size is unknown or 1, as of a scalar parameter.
    """
    tensors = {
        tensor.name
        for signature in signatures.values()
        for tensor in signature.inputs.values()
        if tensor.shape is not None and all(size in (-1, 1) for size in tensor.shape)
    }
    if not tensors:
        return frozenset()
    graph = Graph.from_graph_def(meta.graph_def)
    bodies = {
        function.signature.name: [(node.op, node.attr["f"].func.name) for node in function.node_def]
        for function in graph.library.function
    }
    return frozenset(tensor for tensor in tensors if _is_free(graph, bodies, producer_name(tensor)))


def _is_free(graph: Graph, bodies: Mapping[str, list[tuple[str, str]]], name: str) -> bool:
    readers = [
        graph[descendant] for descendant in graph.descendants([name], control=False) - {name}
    ]
    functions = reached(
        (node.attrs["f"].func.name for node in readers if node.op in CALL_OPS),
        lambda item: [callee for op, callee in bodies.get(item, ()) if op in CALL_OPS],
    )
    inside = {op for function in functions for op, _ in bodies.get(function, [("", "")])}
    known = _ELEMENTWISE | CALL_OPS
    return known.issuperset(node.op for node in readers) and inside <= known | _BESIDE


_HARMED = re.compile(r"_?(Fused)?Quantized\w+|_MklNative\w+")


def needs_rows(meta: MetaGraphDef) -> bool:
    """Return whether a model has an op that is known to fail on an empty batch."""
    graph = meta.graph_def
    bodies = (graph.node, *(function.node_def for function in graph.library.function))
    return any(map(_is_harmed, bodies))


def one_row(inputs: Mapping[str, Tensor], feeds: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return the feeds with a row of zeros for an empty batch, or None if the batch is not empty.

    ServingError: an array is empty in another dimension, or only some inputs are empty.
    """
    empty = sorted(alias for alias, array in feeds.items() if not array.size)
    if not empty:
        return None
    batched = [alias for alias in feeds if is_open(inputs[alias]) and feeds[alias].ndim]
    for alias in empty:
        shape = feeds[alias].shape
        if alias not in batched or 0 in shape[1:]:
            raise refused("empty-batch-shape", alias=alias, shape=shape)
    for alias in sorted(set(batched) - set(empty)):
        raise refused("empty-batch-mixed", empty=empty[0], alias=alias, count=len(feeds[alias]))
    rows = {
        alias: np.full(
            (1, *feeds[alias].shape[1:]),
            b"" if feeds[alias].dtype == np.object_ else 0,
            feeds[alias].dtype,
        )
        for alias in empty
    }
    return {**feeds, **rows}


def without_row(tensor: Tensor, array: Array) -> Array:
    """Return an output without the row that stands for an empty batch."""
    return array[:0] if is_open(tensor) and array.ndim and len(array) == 1 else array


def is_open(tensor: Tensor) -> bool:
    """Return whether a tensor may have any number of rows."""
    return tensor.shape is None or (len(tensor.shape) > 0 and tensor.shape[0] < 0)


def _is_harmed(nodes: Iterable[NodeDef]) -> bool:
    kinds = {node.name: node.op for node in nodes}
    return any(
        _HARMED.fullmatch(node.op)
        or (
            node.op == "Dequantize"
            and node.attr["mode"].s == b"SCALED"
            and kinds.get(node.input[0].split(":")[0]) != "Const"  # weights have no batch dimension
        )
        for node in nodes
    )
