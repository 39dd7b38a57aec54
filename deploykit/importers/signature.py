"""The inputs and outputs of a model: as requested, or derived from its graph."""

import contextlib
from collections.abc import Iterable, Sequence

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    PLACEHOLDER_OPS,
    VARIABLE_OPS,
    op_defs,
    output_types,
)
from deploykit.transforms.untrusted.side_effects import WAITS, effect_of

# Unread nodes of training graphs that are not outputs: they save, update, assert or log.
_NO_ANSWER_OPS = VARIABLE_OPS | frozenset(
    {
        "Const",
        "IsVariableInitialized",
        "MergeSummary",
        "Rank",
        "Shape",
        "ShardedFilename",
        "Size",
        "VarIsInitializedOp",
    }
)
_NO_ANSWER_PREFIXES = ("Assign", "Scatter", "Save", "Restore", "Resource", "Sparse")
_MAX_LISTED = 20  # outputs in a message
_NO_ANSWER_SCOPES = ("gradients", "save", "report_uninitialized_variables")


def guess_inputs(graph: Graph) -> tuple[str, ...]:
    """Return the placeholders, including those whose default reads a queue."""
    return tuple(
        node.name for node in graph if node.op in PLACEHOLDER_OPS or _is_queue_switch(graph, node)
    )


def _is_queue_switch(graph: Graph, node: Node) -> bool:
    """Return whether a node is a placeholder whose default value comes from a queue."""
    if node.op != "PlaceholderWithDefault" or producer_name(node.inputs[0]) not in graph:
        return False
    default = graph.producer(node.inputs[0])
    return effect_of(default.op, default.attrs) == WAITS


def is_handle(node: Node, port: int = 0) -> bool:
    """Return whether a tensor is known to be of a type that no caller can fetch.

    A variable is not, because freezing puts its value in place of its handle.
    """
    if node.op == "VarHandleOp":
        return False
    types = output_types(node) if node.op in op_defs() else None
    return types is not None and port < len(types) and types[port] in ("resource", "variant")


def guess_outputs(graph: Graph) -> tuple[str, ...]:
    """Return the names of nodes that depend on an input and that no other node reads.

    A training graph's gradients, updates, savers and summaries are excluded. So are nodes that
    need more inputs than another output, as the loss needs labels, and handles such as those of a
    TensorArray. Without inputs, nodes that depend on a queue or an iterator are returned.
    GraphError: there is no such node.
    """
    fed = _fed(graph)
    training = any("Apply" in op for op in graph.ops)
    ends = [n for n in graph if n.name in fed and not _read(graph, n, training)]
    unread = [node for node in ends if _answers(node)]
    if training:
        unread = _least_fed(graph, unread)
    if not unread:
        used = graph.descendants([n.name for n in graph if _takes(n)], control=False)
        ends = [n for n in graph if not graph.has_consumers(n.name) and _answers(n)]
        unread = [node for node in ends if node.name in used] or ends
    if not unread:
        raise GraphError("outputs-not-guessed")
    return tuple(node.name for node in unread)


def check_outputs(graph: Graph, tensors: Iterable[str], known: Sequence[str] = ()) -> None:
    """Raise GraphError for a name that is not a tensor of the graph; it lists the outputs.

    A tensor that no caller can fetch is refused too.

    Args:
        graph: the graph.
        tensors: the output names that the user specified.
        known: the names of its outputs; default: guessed.
    """
    for tensor in tensors:
        name, port = split(tensor)
        if name not in graph:
            hint = nearest(name, list(dict.fromkeys([*known, *(n.name for n in graph)])))
            wrong = f"the graph has no node '{name}', named as output{hint}"
        else:
            node = graph[name]
            types = output_types(node) if node.op in op_defs() else None
            if types is None or 0 <= port < len(types):  # results of functions are checked later
                if types is not None and is_handle(node, port):
                    raise GraphError("output-is-handle", name=tensor, type=types[port])
                continue
            count = f"{len(types)} output{'' if len(types) == 1 else 's'}"
            wrong = f"'{tensor}' is named as output, but node '{name}' ({node.op}) has {count}"
        if not known:
            with contextlib.suppress(GraphError):
                known = guess_outputs(graph)
        listed = f" The model's outputs: {', '.join(known[:_MAX_LISTED])}." if known else ""
        raise GraphError("outputs-wrong", problem=wrong, hint=listed)


def _fed(graph: Graph) -> set[str]:
    """Return the names of the nodes that depend on a placeholder other than a boolean switch."""
    fed = [n.name for n in graph if n.op in FEEDABLE_OPS and n.attr("dtype") != "bool"]
    return graph.descendants(fed, control=False)


def _takes(node: Node) -> bool:
    """Return whether a node reads samples from a queue, a reader or an iterator."""
    return node.op.startswith("IteratorGetNext") or effect_of(node.op, node.attrs) == WAITS


def _read(graph: Graph, node: Node, training: bool) -> bool:
    """Return whether a node has consumers; in training graphs, gradients do not count."""
    if not training:
        return graph.has_consumers(node.name)
    return any(_scope(consumer) != "gradients" for consumer in graph.consumers(node.name))


def _least_fed(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Return the nodes whose placeholders are not a proper superset of another node's."""
    needs = [
        {name for name in graph.ancestors([node.name]) if graph[name].op in PLACEHOLDER_OPS}
        for node in nodes
    ]
    return [n for n, need in zip(nodes, needs, strict=True) if not any(o < need for o in needs)]


def _answers(node: Node) -> bool:
    if node.op in _NO_ANSWER_OPS or node.op in PLACEHOLDER_OPS or node.op.endswith("Summary"):
        return False
    if node.op.startswith(_NO_ANSWER_PREFIXES) or "Apply" in node.op:
        return False
    if _scope(node) in _NO_ANSWER_SCOPES:
        return False
    return not is_handle(node) and (node.op not in op_defs() or output_types(node) != [])


def _scope(node: Node) -> str:
    return node.name.split("/")[0].rstrip("_0123456789")
