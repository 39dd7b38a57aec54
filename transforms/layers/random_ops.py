"""Ops that draw random numbers, and dropout as each version of TensorFlow writes it."""

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.ops import input_types, op_defs, output_types
from deploykit.transforms.ir.pattern import Any, Const, Match, Op

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
_MAX_NAMES = 3


def draw_without_seeds(graph: Graph, variables: Iterable[str]) -> bool:
    """Replace ops that draw with seeds from these variables; return whether there were any."""
    below = graph.descendants(list(variables), control=False)
    drawing = [node for node in graph if node.name in below and _op(node) is not None]
    drawing = [node for node in drawing if below & {*map(producer_name, _inputs(node, True))}]
    for node in drawing:
        graph.replace(node, _stateful(node))
    if drawing:
        shown = ", ".join(f"'{node.name}'" for node in drawing[:_MAX_NAMES])
        more = f" and {len(drawing) - _MAX_NAMES} more" if len(drawing) > _MAX_NAMES else ""
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


_UNIFORM = Op("RandomUniform|StatelessRandomUniform|StatelessRandomUniformV2", name="uniform")
_WIDENED = Op("Mul", _UNIFORM, Const("width"), name="widened")
_NOISES = (_UNIFORM, Op("Add|AddV2", _WIDENED, Const("low"), name="noise"))
_SCALED = (
    Op("Mul", Any("value"), Const("scale"), name="scaled"),
    Op("Div|RealDiv", Any("value"), Const("divisor"), name="scaled"),
)
_DROPOUTS = tuple(
    dropout
    for noise in _NOISES
    for scaled in _SCALED
    for is_kept in [Op("GreaterEqual", noise, Const("rate"), name="is_kept")]
    for dropout in (
        Op("SelectV2", is_kept, scaled, Const("zero")),
        Op("Mul", scaled, Op("Cast", is_kept, name="mask")),
        Op("Mul", scaled, Op("Floor", Op("Add|AddV2", noise, Const("kept"), name="sum"),
                             name="mask")),
    )
)  # fmt: skip


def dropouts(graph: Graph) -> Iterator[tuple[Match, list[Node]]]:
    """Yield each dropout without fed nodes, with its nodes in execution order."""
    for pattern in _DROPOUTS:
        for match in graph.match(pattern):
            nodes = [node for node in match.nodes.values() if node.op != "Const"]
            nodes = [*reversed(nodes), match.root]
            if not any(graph.is_input(node.name) for node in nodes):
                yield match, nodes


def pass_value_on(graph: Graph, match: Match, nodes: list[Node]) -> None:
    """Replace a dropout by an Identity of its input."""
    identity = Node(match.root.name, "Identity", (match.tensor("value"),))
    graph.absorb(nodes, into=identity.with_attrs(T=match.root.attrs["T"]))


def keep_probability(match: Match) -> tuple[float, float]:
    """Return the probability with which a dropout keeps a value, and the factor of kept values.

    NaN: it is not a dropout, as its noise is not uniform in [0, 1), or it drops values to nonzero.
    """

    def constant(name: str, default: float) -> float:
        value = np.asarray(match[name].value if name in match.nodes else default, np.float64)
        return float(value.reshape(())) if value.size == 1 else np.nan

    keep_probability = constant("kept", 1 - constant("rate", 0.0))
    scale = constant("scale", 1 / (constant("divisor", 1.0) or np.nan))
    is_uniform = (constant("low", 0.0), constant("width", 1.0)) == (0.0, 1.0)
    return (keep_probability if is_uniform and constant("zero", 0.0) == 0.0 else np.nan), scale
