"""Static shapes of tensors: from attributes, shape rules, or TensorFlow's inference."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    LAST_VERSION_WITHOUT_SCALARS,
    output_types,
)
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.constants import compute
from deploykit.transforms.runtime.numpy_kernels import KERNELS, UNCLEAR
from deploykit.transforms.shapes.rules import EVERY_PORT, RULES
from deploykit.transforms.shapes.sizes import (
    SIZE_TYPES,
    UNKNOWN,
    Shape,
    if_full,
    is_partial,
    require,
)

_MAX_SIZES = 1024  # a tensor with more elements contains no sizes
_JOINING = frozenset({"Concat", "ConcatV2", "Pack"})
_MOVING = frozenset(
    {"Cast", "ExpandDims", "GatherV2", "Identity", "Reshape", "Slice", "Squeeze", "StridedSlice"}
)


class Shapes:
    """The shapes of a graph's tensors at the time of creation."""

    def __init__(self, graph: Graph, batch: int = -1) -> None:
        """Infer the shapes; an unknown first axis of an input has the size `batch`."""
        self._graph = graph
        self._batch = batch
        self._shapes: dict[str, Shape] = {}
        self._values: dict[str, Array] = {}
        for name in graph.order():
            node = graph[name]
            try:
                shape = self._find(node)
                if shape is not None:
                    self._shapes[name] = shape
                    self._keep_value(node, shape)
            except (*UNCLEAR, Error):
                continue

    def shape(self, tensor: str) -> Shape | None:
        """Return a tensor's shape, -1 for unknown sizes, or None if its rank is unknown."""
        name, port = split(tensor)
        if port == 0 or (name in self._shapes and self._graph[name].op in EVERY_PORT):
            return self._shapes.get(name)
        elements = element_shapes(self._graph, self._graph[name]) if port > 0 else ()
        return elements[port] if port < len(elements) else None

    def full_shape(self, tensor: str) -> Shape | None:
        """Return a tensor's shape, or None if a size is unknown."""
        return if_full(self.shape(tensor))

    def _find(self, node: Node) -> Shape | None:
        if node.op in FEEDABLE_OPS:
            return self._fed(node)
        if node.op == "ReadVariableOp":
            handle = self._graph.producer(node.data_inputs[0])
            held: Shape | None = handle.attr("shape") if handle.op == "VarHandleOp" else None
            return held
        if elements := element_shapes(self._graph, node):
            return elements[0]
        rule = RULES.get(node.op)
        if rule is None or node.attr("data_format") == "NCHW_VECT_C":
            return None
        # a loop's NextIteration comes later: its shape is not known yet
        shapes = [self.shape(tensor) for tensor in node.data_inputs]
        return rule(node, shapes, [self._values.get(tensor) for tensor in node.data_inputs])

    def _fed(self, node: Node) -> Shape | None:
        shape: Shape | None = node.attr("shape")
        if shape:
            return (self._batch if shape[0] < 0 else shape[0], *shape[1:])
        old = self._graph.versions.producer <= LAST_VERSION_WITHOUT_SCALARS
        return None if old and node.op == "Placeholder" else shape

    def _keep_value(self, node: Node, shape: Shape) -> None:
        """Store the known elements of a small tensor: they may be used as sizes."""
        if min(shape, default=0) < 0 or math.prod(shape) > _MAX_SIZES:
            return
        value = None if self._graph.is_input(node.name) else self._compute(node)
        types = output_types(node) if value is None else None
        if types and types[0] in SIZE_TYPES:
            value = np.full(shape, UNKNOWN, numpy_type(types[0]))
        if value is not None and value.dtype.kind in "biuf":
            self._values[node.name] = value

    def _compute(self, node: Node) -> Array | None:
        if node.op == "Const":
            return node.value
        if node.op == "Shape":
            sizes = require(self.shape(node.data_inputs[0]))
            out_type = numpy_type(node.attr("out_type", "int32"))
            return np.array([UNKNOWN if size < 0 else size for size in sizes], out_type)
        operands = [self._values.get(tensor) for tensor in node.data_inputs]
        known = [operand for operand in operands if operand is not None]
        if node.op not in KERNELS or not known or len(known) < len(operands):
            return None
        if any(map(is_partial, known)) and not _only_moves(node, known):
            return None
        return compute(node, known)


def element_shapes(graph: Graph, node: Node) -> Sequence[Shape | None]:
    """Return the shape of each output of a node that reads from a queue or an iterator.

    The queue or the node declares them. The result is empty if neither does, and for any other
    node.
    """
    if node.op.startswith("IteratorGetNext"):
        return tuple(node.attr("output_shapes") or ())
    if not node.op.startswith("QueueDequeue"):
        return ()
    shapes = tuple(graph.producer(node.data_inputs[0]).attr("shapes") or ())
    if node.op in ("QueueDequeue", "QueueDequeueV2"):
        return shapes
    count = graph.constant(node.data_inputs[1]) if "Many" in node.op else None
    batch = -1 if count is None else int(count.value)
    return tuple(None if shape is None else (batch, *shape) for shape in shapes)


def variable_shape(node: Node) -> Shape | None:
    """Return the shape of a variable, or None if a size is unknown."""
    return if_full(node.attr("shape"))


def _only_moves(node: Node, operands: Sequence[Array]) -> bool:
    """Return whether an op only moves elements, to known positions."""
    if node.op == "Cast" and node.attr("DstT") not in SIZE_TYPES:
        return False
    return node.op in _JOINING or (node.op in _MOVING and not any(map(is_partial, operands[1:])))


_SHAPE_ATTR_OPS = FEEDABLE_OPS | {"VariableV2"}


def static_shapes(graph: Graph, tensors: Iterable[str]) -> dict[str, Shape | None]:
    """Return the shapes of tensors; a child process with TensorFlow infers the remaining ones.

    -1 is an unknown size, None an unknown rank. If only the first axis is unknown, it is an open
    batch, and TensorFlow is not needed.
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
    unclear = [t for t in inner if (shape := shapes[t]) is None or -1 in shape[1:]]
    return shapes | _inferred(graph, sorted(unclear))


def _declared(node: Node) -> list[Any] | None:
    """Return the shape of each output from the attributes, or None if they do not contain it."""
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
    with suppress(GraphError):  # if TensorFlow cannot load the graph, the shapes stay unknown
        inferred = call(
            "deploykit.transforms.runtime.session:static_shapes",
            graph_def.SerializeToString(),
            tensors,
        )
    return inferred
