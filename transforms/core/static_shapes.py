"""The shapes of tensors: what attributes say, else what TensorFlow infers in a child process."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from transforms.core.child import call
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node, producer_name, split
from transforms.core.ops import FEEDABLE_OPS
from transforms.core.protos import GraphDef

Shape = tuple[int, ...]

_SHAPE_ATTR_OPS = FEEDABLE_OPS | {"VariableV2"}


def static_shapes(graph: Graph, tensors: Iterable[str]) -> dict[str, Shape | None]:
    """Return the shapes of tensors; TensorFlow infers what no attribute says.

    -1 stands for an unknown size, None for an unknown rank.
    """
    shapes: dict[str, Shape | None] = {}
    inner = []
    for tensor in tensors:
        declared = _declared(graph.producer(tensor))
        port = split(tensor)[1]
        if declared is not None and port < len(declared):
            shapes[tensor] = declared[port]
        else:
            inner.append(tensor)
    return shapes | _inferred(graph, sorted(inner))


def _declared(node: Node) -> list[Any] | None:
    """Return the shape of each output as the attributes say it, or None where they do not."""
    if node.op in _SHAPE_ATTR_OPS:
        return [node.attr("shape")]
    if node.op == "Const" and "value" in node.attrs:
        return [node.shape]
    shapes = node.attr("_output_shapes")
    return shapes if isinstance(shapes, list) else None


def _inferred(graph: Graph, tensors: list[str]) -> dict[str, Shape | None]:
    unknown: dict[str, Shape | None] = dict.fromkeys(tensors)
    if not tensors:
        return unknown
    needed = graph.ancestors(map(producer_name, tensors))
    nodes = [
        node.with_attrs(_class=None, _output_shapes=None).to_proto()
        for node in graph
        if node.name in needed
    ]
    graph_def = GraphDef(node=nodes, versions=graph.versions, library=graph.library)
    with suppress(GraphError):  # where TensorFlow cannot load that, the ranks stay unknown
        unknown |= call(
            "transforms.core.session:static_shapes", graph_def.SerializeToString(), tensors
        )
    return unknown
