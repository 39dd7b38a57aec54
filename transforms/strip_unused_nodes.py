"""The nodes that the outputs need; inputs that were computed become Placeholders."""

import re

from deploykit.transforms.common.errors import GraphError, PipelineError, nearest
from deploykit.transforms.ir.functions import Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.ops import input_types, output_types
from deploykit.transforms.ir.tensors import DType, type_name, type_number
from deploykit.transforms.remove_attribute import remove_attribute
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import static_shapes

Requested = tuple[DType | None, Shape | None]  # None keeps that of the tensor

_SIZE = re.compile(r"-1|[0-9]{1,18}", re.ASCII)


def strip_unused_nodes(
    graph: Graph,
    *,
    type: str | None = None,  # noqa: A002  GTT's name
    shape: str | None = None,
    name: tuple[str, ...] = (),
    type_for_name: tuple[str, ...] = (),
    shape_for_name: tuple[str, ...] = (),
) -> None:
    """Keep only the nodes that the outputs need, and cut the graph at its inputs.

    An input that is not a Placeholder becomes one with its type and shape; a Placeholder without a
    shape gets the given shape. If the cut is at several outputs of a node, the first keeps the
    node's name and the others become NODE_PORT.

    Args:
        type: type of all inputs that become Placeholders, such as float or int32.
        shape: their shape, such as "1,224,224,3"; -1 or ? is an unknown size, "" a scalar.
        name: an input with a separate type and shape; may be repeated.
        type_for_name: type of the input at the same position of `name`.
        shape_for_name: shape of the input at the same position of `name`.
    """
    everywhere = (_parsed_type(type), _parsed_shape(shape))
    inputs = [(tensor, graph.producer(tensor)) for tensor in graph.inputs]
    lacks_shape = {t for t, n in inputs if shape is not None and n.attr("shape") is None}
    cut = [t for t, node in inputs if node.op != "Placeholder" or t in lacks_shape]
    expected: dict[str, Requested] = dict.fromkeys(cut, everywhere)
    expected |= _wanted_by_name(graph, name, type_for_name, shape_for_name)
    types = {tensor: _type(graph, tensor, expected[tensor][0]) for tensor in expected}
    _check_cut(graph)
    given = {tensor: shape for tensor, (_, shape) in expected.items() if shape is not None}
    shapes = static_shapes(graph, expected.keys() - given.keys()) | given
    if given:
        # TensorFlow refuses recorded shapes that contradict a shape given here
        remove_attribute(graph, attribute_name="_output_shapes")
    moves: dict[str, str] = {}
    for tensor in sorted(expected, key=split):
        node, port = graph.producer(tensor), split(tensor)[1]
        is_made = node.op != "Placeholder"
        placeholder = Node(node.name, "Placeholder", device=node.device) if is_made else node
        placeholder = placeholder.with_attrs(dtype=types[tensor], shape=shapes[tensor])
        if node.name in moves.values():
            moves[tensor] = graph.unique_name(f"{node.name}_{port}")
            graph.add(placeholder.with_name(moves[tensor]))
        else:
            moves[tensor] = node.name
            graph.replace(node, placeholder)
    if moves:
        graph.redirect({old: new for old, new in moves.items() if old != new})
        graph.inputs = tuple(moves.get(tensor, tensor) for tensor in graph.inputs)
    graph.prune()


def _parsed_type(text: str | None) -> DType | None:
    return None if text is None else type_name(type_number(text.strip()))


def _parsed_shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    sizes = [size.strip().replace("?", "-1") for size in text.split(",")] if text.strip() else []
    if not all(map(_SIZE.fullmatch, sizes)):
        raise PipelineError("shape-form", got=text)
    return tuple(map(int, sizes))


def _wanted_by_name(
    graph: Graph, names: tuple[str, ...], types: tuple[str, ...], shapes: tuple[str, ...]
) -> dict[str, Requested]:
    """Return the type and shape that are given for single inputs."""
    if not len(names) == len(types) == len(shapes):
        raise PipelineError(
            "placeholder-options-count", names=len(names), types=len(types), shapes=len(shapes)
        )
    expected: dict[str, Requested] = {}
    for name, type_, shape in zip(names, types, shapes, strict=True):
        tensor = normal(name)
        if tensor not in graph.inputs:
            hint = nearest(tensor, graph.inputs)
            raise PipelineError(
                "unknown-name", kind="input", name=name, hint=hint, known=graph.inputs
            )
        expected[tensor] = (_parsed_type(type_), _parsed_shape(shape))
    return expected


def _check_cut(graph: Graph) -> None:
    """Raise GraphError if an output of a node is needed that is cut at its other outputs."""
    fed = frozenset(graph.inputs)
    names: set[str] = set()
    waiting = list(graph.outputs)
    while waiting:
        tensor = waiting.pop()
        name, port = split(tensor)
        if graph.is_input(name):
            if tensor not in fed and port >= 0:
                raise GraphError(
                    "placeholder-output-needed", node=name, op=graph[name].op, tensor=tensor
                )
        elif name not in names:
            names.add(name)
            waiting += graph[name].inputs
    for tensor in graph.outputs:
        if tensor in fed and split(tensor)[1] > 0:
            raise GraphError("input-and-output", name=tensor)


def _type_that_is_read(graph: Graph, tensor: str) -> DType | None:
    library = Library(graph)
    for reader in graph.readers(producer_name(tensor)):
        types = input_types(reader, library.op_def(reader.op))
        for read, result in zip(map(normal, reader.data_inputs), types or (), strict=False):
            if read == tensor:
                return DType(result.removesuffix("_ref"))
    return None


def _type(graph: Graph, tensor: str, requested: DType | None) -> DType:
    """Return the type of an input; a requested type must not contradict it."""
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node, Library(graph).op_def(node.op))
    if types is not None and port >= len(types):
        raise GraphError("input-several-outputs", name=tensor, op=node.op, count=len(types))
    real = DType(types[port].removesuffix("_ref")) if types is not None else None
    real = real or requested or _type_that_is_read(graph, tensor)
    if real is None:
        raise GraphError("input-type-unknown", name=tensor, op=node.op)
    if requested is not None and requested != real:
        raise GraphError("input-type-other", name=tensor, type=real, expected=requested)
    return real
