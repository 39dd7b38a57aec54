"""A node whose inputs are all constant is a constant."""

import math
from collections.abc import Iterable

import numpy as np

from transforms.core.evaluate import PURE_OPS, Constants
from transforms.core.graph import Graph
from transforms.core.node import Node, producer_name, split
from transforms.core.tensors import Array, numpy_type

# Folding may add this many bytes a node: the name and attributes that a Const has in the file.
_SLACK = 256
_SHARED = "^"  # no node bears this name


def fold_constants(
    graph: Graph,
    *,
    exclude_op: tuple[str, ...] = (),
    exclude_node: tuple[str, ...] = (),
    clear_output_shapes: bool = True,
    max_constant_size_in_bytes: int = 10 << 20,
) -> None:
    """Compute what depends on constants alone, and write the results into the graph.

    Only pure ops are computed. The file never grows for it: a result that is larger than the
    constants that it makes superfluous is not written. What is quantized stays quantized.

    Args:
        exclude_op: ops that are not computed.
        exclude_node: nodes that are not computed.
        clear_output_shapes: drop the `_output_shapes` attributes, which may be out of date.
        max_constant_size_in_bytes: larger results are not written.
    """
    if clear_output_shapes:
        for node in graph:
            if "_output_shapes" in node.attrs:
                graph.replace(node, node.with_attrs(_output_shapes=None))
    ops = PURE_OPS - set(exclude_op)
    _fold_static_shapes(graph, ops, exclude_node)
    refused: set[str] = set(exclude_node)
    for _ in range(2):  # the second time, below what turned out too large
        constants = Constants(graph, ops, refused)
        _bypass_identities(graph, constants)
        too_large = _fold(graph, constants, max_constant_size_in_bytes)
        if not too_large:
            break
        refused |= too_large


def _fold_static_shapes(graph: Graph, ops: Iterable[str], kept: Iterable[str]) -> None:
    """Fold Shape, Size and Rank of a placeholder whose shape is fully known."""
    for node in graph:
        if node.op not in ("Shape", "Size", "Rank") or node.op not in ops or node.name in kept:
            continue
        source = graph.producer(node.inputs[0])
        shape = source.attr("shape") if source.op == "Placeholder" else None
        if shape is None or graph.is_input(node.name) or any(size < 0 for size in shape):
            continue
        value = {"Shape": shape, "Size": math.prod(shape), "Rank": len(shape)}[node.op]
        array = np.array(value, numpy_type(node.attr("out_type", "int32")))
        new = Node.constant(node.name, array, device=node.device)
        graph.replace(node, new.with_control_inputs(*node.control_inputs))


def _bypass_identities(graph: Graph, constants: Constants) -> None:
    """Let readers of a constant behind an Identity read the constant itself: no byte is copied."""
    moves: dict[str, str | list[str]] = {}
    for node in graph:
        if node.op == "Identity" and node.name in constants and not graph.is_output(node.name):
            moves[node.name] = node.inputs[0]
            moves[f"^{node.name}"] = []
    graph.redirect(moves)


def _fold(graph: Graph, constants: Constants, max_bytes: int) -> set[str]:
    """Fold the constant nodes that others than constant nodes read; return what is too large."""
    wanted = _wanted(graph, constants)
    freed = _freed(graph, constants, set(wanted))
    tensors = [tensor for tensors in wanted.values() for tensor in tensors]
    values = constants.values(tensors)
    too_large = set()
    for name, needed in wanted.items():
        if any(tensor not in values for tensor in needed):
            graph.skip(graph[name], "its value cannot be computed")
            continue
        new = [_constant(graph, graph[name], tensor, values[tensor]) for tensor in needed]
        size = sum(node.attrs["value"].ByteSize() for node in new)
        if size > max_bytes or size > freed.get(name, 0) + _SLACK:
            graph.skip(graph[name], f"its value takes {size} bytes in the file")
            too_large.add(name)
            continue
        for tensor, node in zip(needed, new, strict=True):
            if tensor == name:
                graph.replace(graph[name], node)
            else:
                graph.redirect({tensor: graph.add(node).name})
    return too_large


def _wanted(graph: Graph, constants: Constants) -> dict[str, list[str]]:
    """Return the constant nodes to fold with those of their tensors that others read."""
    wanted: dict[str, dict[str, None]] = {}
    fetched = set(graph.outputs)
    for node in graph:
        if node.name not in constants:
            for tensor in node.data_inputs:
                if producer_name(tensor) in constants:
                    wanted.setdefault(producer_name(tensor), {})[tensor] = None
        for tensor in (node.name,) if node.name in fetched and node.name in constants else ():
            wanted.setdefault(node.name, {})[tensor] = None
    fetched_ports = {producer_name(tensor) for tensor in fetched if split(tensor)[1] > 0}
    return {
        name: list(tensors)
        for name, tensors in wanted.items()
        if graph[name].op != "Const" and name not in fetched_ports
    }


def _freed(graph: Graph, constants: Constants, folded: set[str]) -> dict[str, int]:
    """Return for each node to fold the bytes of the constants that nothing else needs."""
    owners: dict[str, str] = {}
    freed: dict[str, int] = {}
    for name in reversed(graph.order()):
        if name not in constants:
            continue
        if name in folded:
            owners[name] = name
            continue
        found = {owners.get(reader.name, _SHARED) for reader in graph.readers(name)}
        if graph.is_output(name):
            found.add(_SHARED)
        owners[name] = found.pop() if len(found) == 1 else _SHARED
        if graph[name].op == "Const":
            size = graph[name].attrs["value"].ByteSize()
            freed[owners[name]] = freed.get(owners[name], 0) + size
    return freed


def _constant(graph: Graph, node: Node, tensor: str, value: Array) -> Node:
    port = split(tensor)[1]
    name = node.name if port == 0 else graph.unique_name(f"{node.name}_{port}")
    return Node.constant(name, value, device=node.device)
