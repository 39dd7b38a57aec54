"""What a model must be for 8 bits with calibration; what it is not is said at once."""

from collections.abc import Iterable

from deploykit.transforms.core.errors import GraphError, nearest
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import OPS
from deploykit.transforms.core.layers.layers import LAYER_OPS

NAMED = 3  # layers in a message
EIGHT_BIT_OPS = frozenset({*OPS.values(), "Dequantize", "QuantizeV2", "QuantizedConv2D",
                           "QuantizedMatMul", "Requantize"})  # fmt: skip


def refuse_quantized(graph: Graph) -> None:
    """Raise GraphError where a graph is in 8 bits already."""
    found = next((node for node in graph if node.op in EIGHT_BIT_OPS), None)
    if found is not None:
        raise GraphError(
            f"the graph is quantized already (node '{found.name}' is a {found.op}); give the float "
            "model"
        )


def refuse_unknown_layers(graph: Graph, names: Iterable[str]) -> None:
    """Raise GraphError where a name is not that of a layer."""
    layers = [node.name for node in graph if node.op in LAYER_OPS]
    for name in names:
        if name not in layers:
            what = (
                f"node '{name}' is a {graph[name].op}, not a layer"
                if name in graph
                else (f"there is no layer '{name}'")
            )
            hint = nearest(name, layers)
            if not hint and layers:
                hint = f"; layers are {', '.join(layers[:NAMED])}"
            raise GraphError(f"{what}{hint}")


def has_layers(graph: Graph) -> bool:
    """Say whether there is a layer in float32, or in a function, where its type may be open."""
    return any(node.op in LAYER_OPS and node.attr("T") == "float32" for node in graph) or any(
        node.op in LAYER_OPS for function in graph.library.function for node in function.node_def
    )
