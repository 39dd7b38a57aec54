"""A node whose inputs are all constant is a constant."""

import math
from collections.abc import Collection, Mapping

import numpy as np

from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import LAST_VERSION_WITHOUT_SCALARS, output_types
from deploykit.transforms.ir.tensors import Array, held_bytes, numpy_type
from deploykit.transforms.remove_attribute import remove_attribute
from deploykit.transforms.runtime.constants import PURE_OPS, Constants, compute

SLACK = 512  # bytes that a folded node may add to the file: scalars and shapes always fold
_ROUNDS = 4  # each continues after the results that were too large
_ASKING_OPS = frozenset({"Rank", "Shape", "Size"})
_SHARED, _DEAD = "^shared", "^dead"  # not valid as node names


def fold_constants(
    graph: Graph,
    *,
    exclude_op: tuple[str, ...] = (),
    exclude_node: tuple[str, ...] = (),
    clear_output_shapes: bool = True,
    max_constant_size_in_bytes: int = 10 << 20,
) -> None:
    """Evaluate nodes that depend only on constants, and replace them by constants.

    It evaluates pure ops only. It does not make the file larger: a result that takes more bytes
    than the constants that it replaces is not written. Quantized weights stay quantized.

    Limits: it does not evaluate values above 512 MiB, or values that need such a value, and stops
    after NumPy has computed 2 GiB of values. TensorFlow runs for at most 30 s, or --timeout.

    Args:
        exclude_op: ops that are not evaluated.
        exclude_node: nodes that are not evaluated.
        clear_output_shapes: drop the `_output_shapes` attributes, which may be out of date.
        max_constant_size_in_bytes: larger results are not written.
    """
    if clear_output_shapes:
        remove_attribute(graph, attribute_name="_output_shapes")
    ops = (PURE_OPS | {"NoOp"}) - set(exclude_op)
    left = set(exclude_node)
    _fold_static_shapes(graph, ops, left)
    for _ in range(_ROUNDS):
        constants = Constants(graph, ops, left)
        _bypass(graph, constants)
        refused = _fold(graph, constants, max_constant_size_in_bytes)
        if not refused:
            break
        left |= refused


def _fold_static_shapes(graph: Graph, ops: Collection[str], left: Collection[str]) -> None:
    """Fold nodes that compute sizes of a placeholder, as far as these are known."""
    if graph.ops.isdisjoint(_ASKING_OPS):
        return
    constants = Constants(graph)
    for node in graph:
        if node.op not in ops or node.name in left or graph.is_input(node.name):
            continue
        value = None
        if node.op in _ASKING_OPS:
            shape = _static_shape(graph, node.inputs[0])
            if shape is not None and (node.op == "Rank" or min(shape, default=0) >= 0):
                known = {"Shape": shape, "Size": math.prod(shape), "Rank": len(shape)}[node.op]
                value = np.array(known, numpy_type(node.attr("out_type", "int32")))
        elif node.op == "StridedSlice":
            value = _known_sizes(graph, constants, node, left)
        if value is not None:
            graph.absorb([node], into=Node.constant(node.name, value, device=node.device))


def _static_shape(graph: Graph, tensor: str) -> tuple[int, ...] | None:
    """Return the shape of a placeholder with -1 for unknown sizes, or None."""
    node, port = graph.producer(tensor), split(tensor)[1]
    if node.op not in ("Placeholder", "PlaceholderWithDefault") or port > 0:
        return None
    shape: tuple[int, ...] | None = node.attr("shape")
    if not shape and graph.versions.producer <= LAST_VERSION_WITHOUT_SCALARS:
        shape = None
    noted = node.attr("_output_shapes")
    if shape is None and isinstance(noted, list) and noted and isinstance(noted[0], tuple):
        shape = noted[0]
    return shape


def _known_sizes(
    graph: Graph, constants: Constants, node: Node, left: Collection[str]
) -> Array | None:
    """Return the sizes that a StridedSlice takes from a placeholder's shape, if known."""
    source = graph.producer(node.inputs[0])
    if source.op != "Shape" or source.control_inputs or source.name in left:
        return None
    shape = None if graph.is_input(source.name) else _static_shape(graph, source.inputs[0])
    bounds = [constants.value(tensor) for tensor in node.data_inputs[1:]]
    known = [bound for bound in bounds if bound is not None]
    if shape is None or len(known) < len(bounds):
        return None
    sizes = np.array(shape, numpy_type(source.attr("out_type", "int32")))
    value = compute(node, [sizes, *known])
    return None if value is None or (value < 0).any() else value


def _bypass(graph: Graph, constants: Constants) -> None:
    """Connect readers of a constant behind an Identity to the constant itself, without a copy.

    Control inputs from constant nodes are removed, as there is nothing to wait for.
    """
    moves: dict[str, str | list[str]] = {}
    for node in graph:
        if node.name in constants and node.op != "Const":
            moves[f"^{node.name}"] = []
            if node.op == "Identity" and not graph.is_output(node.name):
                moves[node.name] = node.inputs[0]
    graph.redirect(moves)


def _fold(graph: Graph, constants: Constants, max_bytes: int) -> set[str]:
    """Fold the constant nodes that other nodes read; return the names of refused ones."""
    expected = _wanted(graph, constants)
    values, reason = _values(constants, [t for tensors in expected.values() for t in tensors])
    outputs = frozenset(graph.outputs)
    refused: set[str] = set()
    large: dict[str, list[Node]] = {}
    for name, tensors in expected.items():
        size = sum(held_bytes(values[tensor]) for tensor in tensors if tensor in values)
        why = ""
        if any(split(tensor)[1] > 0 and tensor in outputs for tensor in tensors):
            why = "a Const cannot have the name of a second output"
        elif any(tensor not in values for tensor in tensors):
            why = f"its value cannot be computed{reason}"
        elif size > max_bytes:
            why = f"its value takes {size} bytes, more than {max_bytes}"
        if why:
            graph.skip(graph[name], why)
            refused.add(name)
            continue
        new = [_constant(graph[name], tensor, values[tensor]) for tensor in tensors]
        if sum(map(_bytes, new)) <= SLACK:
            _write(graph, name, tensors, new)
        else:
            large[name] = new
    freed = _freed(graph, constants, large) if large else {}
    for name, new in large.items():
        size = sum(map(_bytes, new))
        if size > freed.get(name, 0) + SLACK:
            why = f"its value takes {size} bytes in the file, and the constants that it replaces"
            graph.skip(graph[name], f"{why} {freed.get(name, 0)}")
            refused.add(name)
        else:
            _write(graph, name, expected[name], new)
    return refused


def _wanted(graph: Graph, constants: Constants) -> dict[str, list[str]]:
    """Return the constant nodes to fold, with their tensors that other nodes read."""
    expected: dict[str, dict[str, None]] = {}
    read = [t for node in graph if node.name not in constants for t in node.data_inputs]
    for tensor in (*read, *graph.outputs):
        name = producer_name(tensor)
        if name in constants and graph[name].op not in ("Const", "NoOp"):
            expected.setdefault(name, {})[tensor] = None
    return {name: list(tensors) for name, tensors in expected.items()}


def _values(constants: Constants, tensors: list[str]) -> tuple[dict[str, Array], str]:
    """Return the values, and why values that only TensorFlow can compute are missing."""
    try:
        return constants.values(tensors), ""
    except Error as error:  # TensorFlow crashed, or took too long
        results = {tensor: constants.value(tensor) for tensor in tensors}
        return {t: value for t, value in results.items() if value is not None}, f": {error}"


def _constant(node: Node, tensor: str, value: Array) -> Node:
    port = split(tensor)[1]
    types = output_types(node)
    name = node.name if port == 0 else f"{node.name}/output_{port}"
    return Node.constant(name, value, types[port] if types else None, node.device)


def _bytes(node: Node) -> int:
    """Return roughly the bytes that the value of a Const takes in the file."""
    tensor = node.attrs["value"].tensor
    return len(tensor.tensor_content) or tensor.ByteSize()


def _write(graph: Graph, name: str, tensors: list[str], new: list[Node]) -> None:
    for tensor, node in zip(tensors, new, strict=True):
        if tensor == name:
            graph.replace(graph[name], node)
        else:
            added = graph.add(node.with_name(graph.unique_name(node.name)))
            graph.redirect({tensor: added.name})


def _freed(graph: Graph, constants: Constants, large: Mapping[str, list[Node]]) -> dict[str, int]:
    """Return for each node to fold the bytes of constants that become unused.

    Every constant node has an owner: the only node to fold that needs it, if there is one.
    """
    owners: dict[str, str] = {}
    freed: dict[str, int] = {}
    for name in reversed(graph.order()):
        if name not in constants:
            continue
        if name in large:
            owners[name] = name
            continue
        result = {owners.get(reader.name, _SHARED) for reader in graph.readers(name)} - {_DEAD}
        if graph.is_output(name):
            result.add(_SHARED)
        owners[name] = _DEAD if not result else result.pop() if len(result) == 1 else _SHARED
        if graph[name].op == "Const":
            freed[owners[name]] = freed.get(owners[name], 0) + _bytes(graph[name])
    return freed
