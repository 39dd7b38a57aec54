"""Boolean placeholders that switch between training and inference.

Such a placeholder selects one of two branches, and a batch norm in a branch cannot be folded.
"""

import logging
import re
from collections.abc import Iterable

from deploykit.transforms.ir.control_flow import CASE_OPS, IF_OPS
from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import SWITCH_OPS, Node, producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.protos import NodeDef
from deploykit.transforms.ir.tensors import type_name
from deploykit.transforms.layers.affine import BATCH_NORM_OPS

logger = logging.getLogger("deploykit")

_TRAINING = re.compile(r"(^|_)(is_)?(train|training|trainable|learning_phase)(_|$)|istrain")
_INFERENCE = re.compile(r"infer|test|eval|predict|determin|frozen")
_LOGIC_OPS = frozenset({"Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Cast", "Reshape"})
_OF_BATCH_NORMS = BATCH_NORM_OPS | {"Rsqrt"}


def is_training_switch(node: Node) -> bool:
    """Return whether a node is a boolean placeholder with a name like `is_training`."""
    return _is_switch(node) and _TRAINING.search(_last(node)) is not None


def has_boolean_placeholder(nodes: Iterable[NodeDef]) -> bool:
    """Return whether the nodes of a GraphDef contain a boolean placeholder."""
    fed = (node for node in nodes if node.op in FEEDABLE_OPS)
    return any(type_name(node.attr["dtype"].type) == "bool" for node in fed)


def tell_what_hides_batch_norms(graph: Graph) -> None:
    """Log each boolean placeholder that prevents folding of batch norms, and how to pin it."""
    library = Library(graph)
    for node in graph:
        if _is_switch(node) and _hides_batch_norms(graph, library, node):
            value = "true" if _INFERENCE.search(_last(node)) else "false"
            logger.info(
                "placeholder '%s' keeps batch norms in branches, where they do not fold; if it is "
                "%s in use, pin it (--pin %s=%s)",
                node.name,
                value,
                node.name,
                value,
            )


def _is_switch(node: Node) -> bool:
    return node.op in FEEDABLE_OPS and node.attr("dtype") == "bool"


def _last(node: Node) -> str:
    return node.name.rsplit("/", 1)[-1].lower()


def _hides_batch_norms(graph: Graph, library: Library, placeholder: Node) -> bool:
    """Return whether a branch that a placeholder selects contains part of a batch norm."""
    conditions, switches = {placeholder.name}, set[str]()
    functions: set[str] = set()
    waiting = [placeholder.name]
    while waiting:
        name = waiting.pop()
        for reader in graph.readers(name):
            if reader.op in SWITCH_OPS and producer_name(reader.data_inputs[1]) == name:
                switches.add(reader.name)
            elif reader.op in IF_OPS | CASE_OPS and producer_name(reader.data_inputs[0]) == name:
                functions.update(names_in(reader.attrs.values()))
            elif reader.op in _LOGIC_OPS and reader.name not in conditions:
                conditions.add(reader.name)
                waiting.append(reader.name)
    below = graph.descendants(switches, control=False) if switches else set()
    called = library.below(library[name].signature.name for name in functions)
    ops = {graph[name].op for name in below}
    ops |= {proto.op for name in called for proto in library[name].node_def}
    return not ops.isdisjoint(_OF_BATCH_NORMS)
