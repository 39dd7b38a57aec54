"""Ops that TensorFlow does not have, such as custom ops: they are an error only if needed."""

import logging

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.remove_unused_functions import remove_unused_functions
from deploykit.transforms.strip_unused_nodes import strip_unused_nodes
from deploykit.transforms.untrusted.side_effects import cut_off, inputs_behind
from deploykit.transforms.untrusted.validate import validate

logger = logging.getLogger("deploykit")


def leave_out_unknown_ops(graph: Graph) -> bool:
    """Prune a graph to what its outputs need if it contains ops that TensorFlow does not have.

    Return whether it was pruned. A graph without outputs cannot run and is not changed.

    GraphError: the outputs need such an op; the message contains workarounds.
    """
    unknown = unknown_ops(graph)
    if not unknown or not graph.outputs:
        return False
    graph.prune()
    remove_unused_functions(graph)
    if unknown_ops(graph):
        strip_unused_nodes(graph)  # cuts at fed inputs
        remove_unused_functions(graph)
    left = unknown_ops(graph)
    if left:
        try:
            validate(graph)
        except GraphError as error:
            behind = inputs_behind(graph, {name for name, _ in left})
            such = f", such as {cut_off(behind)}" if behind else ""
            raise GraphError("unknown-op-in-graph", reason=error, such=such) from None
    name, op = unknown[0]
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    logger.info(
        "TensorFlow has no op '%s' (node '%s'%s): no output needs it, so it is dropped",
        op,
        name,
        more,
    )
    return True


def unknown_ops(graph: Graph) -> list[tuple[str, str]]:
    """Return (node, op) for each op that neither TensorFlow nor the function library has."""
    library = graph.library.function
    known = op_defs().keys() | {function.signature.name for function in library}
    results = []
    if not graph.ops <= known:  # skips the scan of up to millions of nodes
        results = [(node.name, node.op) for node in graph if node.op not in known]
    for function in library:
        name = function.signature.name
        results += [(f"{name}/{n.name}", n.op) for n in function.node_def if n.op not in known]
    return results
