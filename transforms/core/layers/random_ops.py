"""Ops that draw random numbers.

Keras takes the seed from a variable that each call advances. A frozen graph has no variable: each
call would draw the numbers of the first one. So the op becomes the stateful one, which draws new
numbers from the same distribution in every call.
"""

import logging
from collections.abc import Iterable

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, producer_name
from deploykit.transforms.core.ops import input_types, op_defs, output_types

logger = logging.getLogger("deploykit")

RANDOM_OPS = frozenset(
    {"RandomStandardNormal", "RandomUniform", "TruncatedNormal"}
    | {"StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomUniform"}
    | {"StatelessRandomUniformV2", "StatelessTruncatedNormal", "StatelessTruncatedNormalV2"}
)
"""Ops that draw the noise of dropout and of other random layers."""

_STATEFUL = {
    "StatelessRandomNormal": "RandomStandardNormal",
    "StatelessRandomUniform": "RandomUniform",
    "StatelessRandomUniformInt": "RandomUniformInt",
    "StatelessTruncatedNormal": "TruncatedNormal",
}
_SEEDS = frozenset({"alg", "counter", "key", "seed"})  # arguments of the stateless ops
_MOST_NAMES = 3


def draw_without_seeds(graph: Graph, variables: Iterable[str]) -> bool:
    """Replace the ops that draw by seeds from these variables; return whether there were any."""
    below = graph.descendants(list(variables), control=False)
    drawing = [node for node in graph if node.name in below and _op(node) is not None]
    drawing = [node for node in drawing if below & {*map(producer_name, _inputs(node, True))}]
    for node in drawing:
        graph.replace(node, _stateful(node))
    if drawing:
        shown = ", ".join(f"'{node.name}'" for node in drawing[:_MOST_NAMES])
        more = f" and {len(drawing) - _MOST_NAMES} more" if len(drawing) > _MOST_NAMES else ""
        logger.info("random numbers are drawn in every call: %s%s", shown, more)
        graph.prune()
    return bool(drawing)


def _op(node: Node) -> str | None:
    return _STATEFUL.get(node.op.removesuffix("V2"))


def _inputs(node: Node, are_seeds: bool) -> list[str]:
    """Return the data inputs that are part of the seed, or the others."""
    arguments = [argument.name in _SEEDS for argument in op_defs()[node.op].input_arg]
    pairs = zip(node.data_inputs, arguments, strict=True)
    return [tensor for tensor, is_seed in pairs if is_seed is are_seeds]


def _stateful(node: Node) -> Node:
    op, shapes, types = _op(node), input_types(node), output_types(node)
    assert op
    assert shapes
    assert types
    inputs = (*_inputs(node, False), *node.control_inputs)
    result = Node(node.name, op, inputs, device=node.device)
    kind = "Tout" if op == "RandomUniformInt" else "dtype"
    return result.with_attrs(**{"T": shapes[0], kind: types[0]})
