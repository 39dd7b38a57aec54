"""Scaling the channels of a layer norm keeps the network's outputs, and lowers the int8 error."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, TensorRange, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.affine import lift, through
from deploykit.transforms.layers.composites import Row, norm_of, row_of
from deploykit.transforms.layers.fused_ops import ADD_OPS, chain
from deploykit.transforms.layers.layers import is_product, scaled, weights_of, with_weights
from deploykit.transforms.shapes.sizes import require
from deploykit.transforms.shapes.static_shapes import Shapes

FLOAT = DType("float32")
_SMALLEST = 1e-3  # of the median: lower limit of the range that scales a channel
_WORTHWHILE = 2.0  # noise power has to fall by this factor (3 dB) to add a Mul to the residual path


@dataclass(frozen=True)
class _Sum:
    """A residual sum: the Add node, the tensor of the layer norm, and the product that is added."""

    add: str
    tensor: str
    product: str


@dataclass(frozen=True)
class _Norm:
    """A layer norm and its readers."""

    row: Row
    steps: tuple[Node, ...]
    scale: Array
    offset: Array
    products: tuple[str, ...]
    sums: tuple[_Sum, ...]

    @property
    def name(self) -> str:
        return self.steps[-1].name


def balance_layer_norms(graph: Graph, *, ranges: str, exponent: float = 0.75) -> None:
    """Center and scale the channels of layer norms to reduce the int8 error of large channels.

    The layer norm's scale and offset shift each channel by its midrange and divide it by a power of
    its range. The products that read it undo both in their weights and biases. A residual sum that
    reads it as well gets one Mul, and the bias of the product in the sum undoes the midrange;
    without a clear gain the channels of such a layer norm are only centered. The result is exact in
    float32. A layer norm with any other reader is not changed. A changed tensor is named
    NAME_balanced, so calibrate the graph again. The scale is that of SmoothQuant (Xiao et al.,
    2022), computed from activation ranges only.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
        exponent: power of the range that divides each channel; 0 for no scale, 1 for equal ranges.
    """
    if not 0 <= exponent <= 1:
        raise GraphError("out-of-range", name="exponent", expected="between 0 and 1", got=exponent)
    known, shapes = load_ranges(ranges), Shapes(graph)
    for node in list(graph):
        row = row_of(graph, node) if node.op == "Rsqrt" and node.name in graph else None
        if row is None:
            continue
        result = _norm(graph, shapes, row)
        if isinstance(result, str):
            graph.skip(node, result)
            continue
        seen = _range(known, result)
        if seen is None:
            graph.skip(node, f"the ranges do not contain the channels of '{result.name}'")
        else:
            _balance(graph, result, seen, exponent)


def _norm(graph: Graph, shapes: Shapes, row: Row) -> _Norm | str:
    """Return a layer norm with its readers, or the reason why it cannot be balanced."""
    shape = shapes.shape(row.x)
    if shape is None or not shape or shape[-1] < 1 or graph[row.root].attr("T") != "float32":
        return "its number of channels is not known, or its type is not float32"
    norm = norm_of(graph, row, shape[-1])
    if norm is None:
        return "it is not a layer norm, or another node reads a part of it"
    steps, (scale, offset) = norm
    if not (np.isfinite(scale).all() and np.isfinite(offset).all()):
        return "its scale or offset contains NaN or Inf"
    products: list[str] = []
    sums: list[_Sum] = []
    waiting = [steps[-1].name]
    for name in waiting:  # the list grows in the loop
        if graph.is_output(name) or graph.is_input(name):
            return f"'{name}' is an input or an output of the graph"
        for reader in graph.readers(name):
            keeps_rows = (shapes.shape(reader.name) or ())[-1:] == shape[-1:]
            if reader.op == "Reshape" and reader.data_inputs[0] == name and keeps_rows:
                waiting.append(reader.name)
            elif is_product(graph, reader, name):
                products.append(reader.name)
            elif product := _summed_product(graph, shapes, reader, name, shape[-1]):
                sums.append(_Sum(reader.name, name, product))
            else:
                return f"'{reader.name}' ({reader.op}) cannot take a scale back"
    if not products:
        return "no product with constant weights reads it"
    added = {sum_.product for sum_ in sums}
    if len(added) < len(sums) or added & set(products):
        return "a product of it is added to it, or one product more than once"
    return _Norm(row, tuple(steps), scale, offset, tuple(products), tuple(sums))


def _summed_product(graph: Graph, shapes: Shapes, add: Node, tensor: str, channels: int) -> str:
    """Return the product that an Add adds to a tensor and that has no other reader, or ''."""
    if add.op not in ADD_OPS or graph.is_input(add.name) or add.data_inputs.count(tensor) != 1:
        return ""
    reader, node = add, graph.producer(next(t for t in add.data_inputs if t != tensor))
    if shapes.shape(tensor) is None or shapes.shape(node.name) != shapes.shape(tensor):
        return ""
    while node.op == "Reshape" and graph.feeds_only(node, reader):
        source = shapes.shape(node.data_inputs[0])
        if source is None or source[-1:] != (channels,):
            return ""
        reader, node = node, graph.producer(node.data_inputs[0])
    if not graph.feeds_only(node, reader):
        return ""
    read = [t for t in node.data_inputs if graph.constant(t) is None]
    product = node if node.op == "MatMul" or len(read) != 1 else graph.producer(read[0])
    is_last = is_product(graph, product) and chain(graph, product).nodes[-1].name == node.name
    return product.name if is_last else ""


def _range(known: Ranges, norm: _Norm) -> TensorRange | None:
    tensor = known.tensors.get(norm.name)
    if tensor is None or not len(tensor.channel_min) == len(tensor.channel_max) == norm.scale.size:
        return None
    return tensor


def _balance(graph: Graph, norm: _Norm, seen: TensorRange, exponent: float) -> None:
    low, high = np.array(seen.channel_min), np.array(seen.channel_max)
    middle, half = (low + high) / 2, (high - low) / 2
    factor = _factor(half, exponent)
    if norm.sums and _gain(graph, norm, half, factor) < _WORTHWHILE:
        factor = np.ones_like(factor)
    new = _rewritten(graph, norm, norm.scale * factor, (norm.offset - middle) * factor)
    for name in norm.products:
        layer = graph[name]
        change = through(graph, layer, middle)
        const = require(weights_of(graph, layer))
        rows = (1, -1) if layer.attr("transpose_b", False) else (-1, 1)
        weights = scaled(const.value, (1 / factor).reshape(rows))
        graph.replace(layer, with_weights(graph, layer, const, weights))
        lift(graph, name, change)
    for sum_ in norm.sums:
        if (factor != 1).any():
            _restore(graph, sum_, factor)
        lift(graph, sum_.product, middle, is_shifted=True)
    graph.redirect({norm.name: new, f"^{norm.name}": f"^{new}"})
    graph.absorb(norm.steps, into=graph[new])


def _factor(half: Array, exponent: float) -> Array:
    """Return the factor of each channel; that of the median range is 1."""
    positive = half[half > 0]
    if not positive.size:
        return np.ones_like(half)
    relative = np.maximum(half / np.median(positive), _SMALLEST)
    array: Array = relative**-exponent
    return array


def _gain(graph: Graph, norm: _Norm, half: Array, factor: Array) -> float:
    """Return the factor by which the rounding noise of the tensor in the products falls.

    Each channel gets the same noise power, which the widest channel determines; a product scales it
    with the square of its weights.
    """
    power = np.zeros(half.size)
    for name in norm.products:
        layer = graph[name]
        const = require(weights_of(graph, layer))
        axis = 0 if layer.attr("transpose_b", False) else 1
        power += np.square(const.value, dtype=np.float64).sum(axis)
    before = half.max() ** 2 * power.sum()
    after = (half * factor).max() ** 2 * (power / factor**2).sum()
    return float(before / after) if after > 0 else 1.0


def _rewritten(graph: Graph, norm: _Norm, scale: Array, offset: Array) -> str:
    """Add the layer norm with another scale and offset, in the ops of batch_normalization."""
    last, row = norm.steps[-1], norm.row
    name = graph.unique_name(f"{last.name}_balanced")

    def const(part: str, value: Array) -> str:
        return graph.constant_beside(last, value.astype(np.float32), f"{name}/{part}").name

    def step(op: str, part: str, *inputs: str) -> str:
        return graph.put(f"{name}/{part}", op, *inputs, like=last, T=FLOAT)

    factor = step("Mul", "mul", row.root, const("scale", scale))
    rest = step("Mul", "mul_2", row.mean, factor)
    parts = (
        step("Mul", "mul_1", row.x, factor),
        step("Sub", "sub", const("offset", offset), rest),
    )
    return graph.put(name, "AddV2", *parts, like=last, T=FLOAT)


def _restore(graph: Graph, sum_: _Sum, factor: Array) -> None:
    """Divide the input of a residual sum by the factor of each channel."""
    add, name = graph[sum_.add], graph.unique_name(f"{sum_.tensor}_restored")
    inverse = graph.constant_beside(add, (1 / factor).astype(np.float32), f"{name}/scale").name
    mul = graph.put(name, "Mul", sum_.tensor, inverse, like=add, T=FLOAT)
    graph.replace(add, add.reading({sum_.tensor: mul}))
