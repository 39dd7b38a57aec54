"""What trains a model or watches its training adds nothing to its answers."""

import numpy as np

from deploykit.transforms.core.control_flow import pass_on
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import input_types
from deploykit.transforms.core.pattern import Any, Const, Match, Op
from deploykit.transforms.remove_nodes import remove_nodes

PASSING_OPS = ("CheckNumerics", "CheckNumericsV2", "PreventGradient", "Print", "StopGradient")
WATCHING_OPS = frozenset(
    {"Assert", "PrintV2", "AudioSummary", "AudioSummaryV2", "HistogramSummary", "ImageSummary"}
    | {"MergeSummary", "ScalarSummary", "TensorSummary", "TensorSummaryV2", "WriteAudioSummary"}
    | {"WriteGraphSummary", "WriteHistogramSummary", "WriteImageSummary", "WriteRawProtoSummary"}
    | {"WriteScalarSummary", "WriteSummary"}
)

UNIFORM = Op("RandomUniform|StatelessRandomUniform|StatelessRandomUniformV2")
NOISES = (UNIFORM, Op("Add|AddV2", Op("Mul", UNIFORM, Const("width")), Const("low")))
SCALED = (Op("Mul", Any("value"), Const("scale")), Op("RealDiv", Any("value"), Const("divisor")))
DROPOUTS = tuple(
    dropout
    for noise in NOISES
    for scaled in SCALED
    for dropout in (
        Op("SelectV2", Op("GreaterEqual", noise, Const("rate")), scaled, Const("zero")),
        Op("Mul", scaled, Op("Cast", Op("GreaterEqual", noise, Const("rate")))),
        Op("Mul", scaled, Op("Floor", Op("Add|AddV2", noise, Const("kept")))),
    )
)


def remove_training_nodes(graph: Graph) -> None:
    """Remove dropout, CheckNumerics, StopGradient, Print, Assert and summaries.

    Dropout becomes an Identity, which is its mean; its rate must be constant, so run fold_constants
    before. What waits for an Assert or a Print waits for what that waited for.
    """
    for pattern in DROPOUTS:
        for match in graph.match(pattern):
            if graph.is_input(match.root.name):
                continue
            if not _keeps_the_mean(match):
                graph.skip(match.root, "it drops values, but does not keep their mean")
                continue
            identity = Node(match.root.name, "Identity", (match.tensor("value"),))
            identity = identity.with_attrs(T=match.root.attrs["T"])
            graph.replace(match.root, identity.with_control_inputs(*match.root.control_inputs))
    _remove_watching(graph)
    widest = max((len(node.inputs) for node in graph if node.op in PASSING_OPS), default=1)
    remove_nodes(graph, op=PASSING_OPS, max_inputs=max(widest, 1))


def _keeps_the_mean(match: Match) -> bool:
    """Say whether what is kept is scaled by the inverse of how often it is kept."""

    def constant(name: str, default: float) -> float:
        value = np.asarray(match[name].value if name in match.nodes else default, np.float64)
        return float(value.reshape(())) if value.size == 1 else np.nan

    kept = constant("kept", 1 - constant("rate", 0.0))
    scale = constant("scale", 1 / (constant("divisor", 1.0) or np.nan))
    is_uniform = (constant("low", 0.0), constant("width", 1.0)) == (0.0, 1.0)
    return is_uniform and constant("zero", 0.0) == 0.0 and abs(scale * kept - 1) < 1e-2


def _remove_watching(graph: Graph) -> None:
    """Put a NoOp in the place of what only looks, and wait for none that waits for nothing."""
    conditional = graph.conditional_names()
    moves: dict[str, tuple[str, ...]] = {}
    for name in reversed(graph.order()):
        node = graph[name]
        if node.op not in WATCHING_OPS or graph.is_input(name):
            continue
        if graph.is_output(name) or graph.readers(name):
            graph.skip(node, "its value is an output of the graph or read")
            continue
        if name in conditional:  # who waits for it only runs where this branch is taken
            types = input_types(node)
            stand_in = pass_on(name, node.data_inputs, types, node.control_inputs, node.device)
        else:
            stand_in = Node(name, "NoOp", node.control_inputs, device=node.device)
            if not node.control_inputs:
                moves[f"^{name}"] = ()
        graph.replace(node, stand_in)
    graph.redirect(moves)
