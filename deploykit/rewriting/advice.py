"""What a user may not have meant: a graph that still decodes, 8-bit ops that are slow."""

from collections.abc import Iterator

from deploykit.transforms.core import pipeline
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.node import Node

SLOW = (
    "quantize_nodes makes a graph five to eight times slower than float on today's processors; "
    "the fast way to 8 bits is deploykit quantize --calibration DATA"
)
_READING_OPS = frozenset({"IteratorGetNext", "ReadFile"})


def advice(before: Graph, after: Graph, transforms: str, inputs_given: bool) -> Iterator[str]:
    """Yield what to tell of a graph that this transform string has changed."""
    if not inputs_given:
        for node in after:
            if _decodes(node):
                yield _stays(before, node)
                break
    if any(step.name == "quantize_nodes" for step in pipeline.parse(transforms)):
        yield SLOW


def _decodes(node: Node) -> bool:
    """Say whether a node decodes or parses what lies in files, as samples do."""
    return node.op.startswith(("Decode", "Parse", "Reader")) or node.op in _READING_OPS


def _stays(before: Graph, node: Node) -> str:
    layer = _first_layer(before, node.name)
    example = "NAME" if layer is None else layer.data_inputs[0]
    return (
        f"node '{node.name}' ({node.op}) stays in front of the model, as no --inputs are given; "
        f"with --inputs {example}, the tensor that the model is to be fed, strip_unused_nodes cuts "
        "it off"
    )


def _first_layer(graph: Graph, decoder: str) -> Node | None:
    """Return the first layer that computes on what a node decodes."""
    below = graph.descendants([decoder], control=False) if decoder in graph else set()
    layers = (graph[name] for name in graph.order() if name in below)
    return next((node for node in layers if node.op in LAYER_OPS), None)
