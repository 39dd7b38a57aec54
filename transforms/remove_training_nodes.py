"""Nodes that train a model or monitor its training do not change its predictions."""

from deploykit.transforms.ir.control_flow import pass_on
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import input_types
from deploykit.transforms.layers.random_ops import dropouts, keep_probability, pass_value_on
from deploykit.transforms.remove_nodes import remove_nodes

PASSING_OPS = ("CheckNumerics", "CheckNumericsV2", "PreventGradient", "Print", "StopGradient")
WATCHING_OPS = frozenset(
    {"Assert", "PrintV2", "AudioSummary", "AudioSummaryV2", "HistogramSummary", "ImageSummary"}
    | {"MergeSummary", "ScalarSummary", "TensorSummary", "TensorSummaryV2", "WriteAudioSummary"}
    | {"WriteGraphSummary", "WriteHistogramSummary", "WriteImageSummary", "WriteRawProtoSummary"}
    | {"WriteScalarSummary", "WriteSummary"}
)


_CLOSE = 1e-2  # tolerance of 1: a rate and a scale may be rounded to float16


def remove_training_nodes(graph: Graph) -> None:
    """Remove dropout, CheckNumerics, StopGradient, Print, Assert and summaries.

    Dropout becomes an Identity, which is its mean; its rate must be constant, so run fold_constants
    before. Nodes that wait for an Assert or a Print then wait for the inputs of that node.
    """
    for match, nodes in dropouts(graph):
        probability, scale = keep_probability(match)
        if not abs(scale * probability - 1) < _CLOSE:
            graph.skip(match.root, "it drops values, but does not keep their mean")
            continue
        pass_value_on(graph, match, nodes)
    _remove_watching(graph)
    widest = max((len(node.inputs) for node in graph if node.op in PASSING_OPS), default=1)
    remove_nodes(graph, op=PASSING_OPS, max_inputs=max(widest, 1))


def _remove_watching(graph: Graph) -> None:
    """Replace monitoring ops by NoOps, and remove NoOps without control inputs."""
    conditional = graph.conditional_names()
    moves: dict[str, tuple[str, ...]] = {}
    for name in reversed(graph.order()):
        node = graph[name]
        if node.op not in WATCHING_OPS or graph.is_input(name):
            continue
        if graph.is_output(name) or graph.readers(name):
            graph.skip(node, "its value is an output of the graph or read")
            continue
        if name in conditional:  # nodes that wait for it run only if this branch is taken
            types = input_types(node)
            stand_in = pass_on(name, node.data_inputs, types, node.control_inputs, node.device)
        else:
            stand_in = Node(name, "NoOp", node.control_inputs, device=node.device)
            if not node.control_inputs:
                moves[f"^{name}"] = ()
        graph.replace(node, stand_in)
    graph.redirect(moves)
