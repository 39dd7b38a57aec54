"""An elementwise op gives the same result before and after a Reshape."""

import math
from collections.abc import Collection

from deploykit.transforms.convert_layout import ELEMENTWISE_OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.shapes.sizes import Shape, require
from deploykit.transforms.shapes.static_shapes import Shapes

ALONE = (ELEMENTWISE_OPS - {"Identity"}) | {"BiasAdd", "Erf", "Erfc", "Pow", "SquaredDifference"}
"""Elementwise ops whose constants may repeat along the shape."""


def sink_reshapes(graph: Graph) -> None:
    """Move a Reshape of a MatMul result behind the biases and activations that follow it.

    One kernel can then compute them with the product, and a second Reshape that restores the rows
    is not needed. The transform moves steps that read the reshaped values and constants: a single
    number, or one value for each element of a row. Run flatten_products before.
    """
    _join(graph)
    shapes = Shapes(graph)
    for name in graph.order():
        if name not in graph:
            continue
        node = graph[name]
        product = graph.producer(node.data_inputs[0]) if node.op == "Reshape" else None
        if product is None or product.op != "MatMul" or graph.is_input(name):
            continue
        if graph.is_input(product.name):
            continue
        width, shape = _width(graph, product), shapes.shape(name)
        row = None if width is None or shape is None else _row(shape, width)
        if row is not None:
            steps = _steps(graph, node, row)
            if steps:
                _sink(graph, node, steps, row)
    _join(graph)


def _width(graph: Graph, product: Node) -> int | None:
    const = graph.constant(product.data_inputs[1])
    if const is None or const.value.ndim != 2:
        return None
    transposed = product.attr("transpose_b", False)
    return int(const.value.shape[0 if transposed else 1])


def _row(shape: Shape, width: int) -> Shape | None:
    """Return the last axes of a shape that index the elements of a row, or None."""
    for start in range(len(shape) - 1, -1, -1):
        tail = shape[start:]
        if -1 in tail or math.prod(tail) > width:
            return None
        if math.prod(tail) == width:
            return tail
    return None


def _steps(graph: Graph, reshape: Node, row: Shape) -> list[Node]:
    """Return the steps after a Reshape that can run before it, in execution order."""
    inside = {reshape.name: reshape}
    waiting = list(graph.readers(reshape.name))
    while waiting:
        step = next((n for n in waiting if _is_alone(graph, n, inside, row)), None)
        if step is None:
            break
        inside[step.name] = step
        waiting = [item for item in waiting if item.name != step.name]
        known = {item.name for item in waiting} | inside.keys()
        waiting += [reader for reader in graph.readers(step.name) if reader.name not in known]
    return [node for node in inside.values() if node is not reshape]


def _is_alone(graph: Graph, step: Node, inside: Collection[str], row: Shape) -> bool:
    if step.op not in ALONE or graph.is_input(step.name) or step.attr("data_format") == "NCHW":
        return False
    others = [tensor for tensor in step.data_inputs if normal(tensor) not in inside]
    return all(_repeats(graph, tensor, row) for tensor in others)


def _repeats(graph: Graph, tensor: str, row: Shape) -> bool:
    """Return whether a tensor is a constant with one number, or one for each element of a row."""
    const = graph.constant(tensor)
    if const is None:
        return False
    shape = const.value.shape
    return (const.value.size == 1 and len(shape) <= len(row)) or shape == tuple(row)


def _sink(graph: Graph, reshape: Node, steps: list[Node], row: Shape) -> None:
    """Run the steps on rows, and reshape their results for other readers."""
    names = {step.name for step in steps}
    rows = {reshape.name: reshape.data_inputs[0]}
    for step in steps:
        inputs = [rows.get(normal(t)) or _flat(graph, step, t, row) for t in step.data_inputs]
        new = step.with_name(graph.unique_name(f"{step.name}/rows"))
        if new.op == "BiasAdd":
            new = new.with_attrs(data_format="NHWC")
        rows[step.name] = graph.add(new.with_data_inputs(*inputs)).name
    for step in reversed(steps):
        others = {consumer.name for consumer in graph.consumers(step.name)} - names
        if others or graph.is_output(step.name):
            made = reshape.with_name(step.name)
            made = made.with_data_inputs(rows[step.name], reshape.data_inputs[1])
            graph.replace(step, made)
        else:
            graph.remove(step)


def _flat(graph: Graph, step: Node, tensor: str, row: Shape) -> str:
    """Return the constant of a step as one value for each element of a row."""
    const = require(graph.constant(tensor))
    if len(row) == 1 or (const.value.size == 1 and not const.value.ndim):
        return tensor
    name = f"{producer_name(tensor)}/row"
    size = -1 if const.value.size > 1 else ()
    return graph.constant_beside(const, const.value.reshape(size), name).name


def _join(graph: Graph) -> None:
    """Connect a Reshape of a Reshape to constant sizes directly to the first input."""
    for name in graph.order():
        node = graph[name]
        if node.op != "Reshape" or graph.is_input(name):
            continue
        sizes = graph.constant(node.data_inputs[1])
        before = graph.producer(node.data_inputs[0])
        if sizes is None or before.op != "Reshape" or graph.is_input(before.name):
            continue
        graph.replace(node, node.with_data_inputs(before.data_inputs[0], node.data_inputs[1]))
