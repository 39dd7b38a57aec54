"""Dropout as the versions of TensorFlow have written it."""

from collections.abc import Iterator

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.pattern import Any, Const, Match, Op

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
    """Yield each dropout of which no node is fed, with its nodes in execution order."""
    for pattern in _DROPOUTS:
        for match in graph.match(pattern):
            nodes = [node for node in match.nodes.values() if node.op != "Const"]
            nodes = [*reversed(nodes), match.root]
            if not any(graph.is_input(node.name) for node in nodes):
                yield match, nodes


def pass_value_on(graph: Graph, match: Match, nodes: list[Node]) -> None:
    """Put an Identity of its input in the place of a dropout."""
    identity = Node(match.root.name, "Identity", (match.tensor("value"),))
    graph.absorb(nodes, into=identity.with_attrs(T=match.root.attrs["T"]))


def keep_probability(match: Match) -> tuple[float, float]:
    """Return the probability with which a dropout keeps a value, and the factor of what it keeps.

    NaN: it is no dropout, as its noise is not uniform in [0, 1), or what it drops is not 0.
    """

    def constant(name: str, default: float) -> float:
        value = np.asarray(match[name].value if name in match.nodes else default, np.float64)
        return float(value.reshape(())) if value.size == 1 else np.nan

    kept = constant("kept", 1 - constant("rate", 0.0))
    scale = constant("scale", 1 / (constant("divisor", 1.0) or np.nan))
    is_uniform = (constant("low", 0.0), constant("width", 1.0)) == (0.0, 1.0)
    return (kept if is_uniform and constant("zero", 0.0) == 0.0 else np.nan), scale
