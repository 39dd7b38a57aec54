"""The shapes of tensors: what attributes say, what follows, else what TensorFlow infers."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, producer_name, split
from deploykit.transforms.core.ops import FEEDABLE_OPS
from deploykit.transforms.core.protos import GraphDef
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.shapes.known_shapes import Shapes
from deploykit.transforms.core.shapes.sizes import Shape

_SHAPE_ATTR_OPS = FEEDABLE_OPS | {"VariableV2"}


def static_shapes(graph: Graph, tensors: Iterable[str]) -> dict[str, Shape | None]:
    """Return the shapes of tensors; TensorFlow infers, in a child process, what does not follow.

    -1 stands for an unknown size, None for an unknown rank. A first axis alone that is unknown is
    an open batch, of which TensorFlow knows no more.
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
    if not inner:
        return shapes
    following = Shapes(graph)
    shapes |= {tensor: following.shape(tensor) for tensor in inner}
    return shapes | _inferred(graph, sorted(t for t in inner if not _is_clear(shapes[t])))


def _is_clear(shape: Shape | None) -> bool:
    return shape is not None and -1 not in shape[1:]


def _declared(node: Node) -> list[Any] | None:
    """Return the shape of each output as the attributes say it, or None where they do not."""
    if node.op in _SHAPE_ATTR_OPS:
        return [node.attr("shape")]
    if node.op == "Const" and "value" in node.attrs:
        return [node.shape]
    shapes = node.attr("_output_shapes")
    return shapes if isinstance(shapes, list) else None


def _inferred(graph: Graph, tensors: list[str]) -> dict[str, Shape | None]:
    if not tensors:
        return {}
    needed = graph.ancestors(map(producer_name, tensors))
    nodes = [
        node.with_attrs(_class=None, _output_shapes=None).to_proto()
        for node in graph
        if node.name in needed
    ]
    graph_def = GraphDef(node=nodes, versions=graph.versions, library=graph.library)
    inferred: dict[str, Shape | None] = {}
    with suppress(GraphError):  # where TensorFlow cannot load that, no more is known
        inferred = call(
            "deploykit.transforms.core.running.session:static_shapes",
            graph_def.SerializeToString(),
            tensors,
        )
    return inferred
