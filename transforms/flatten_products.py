"""A batch of matrices times constant weights is one matrix product of all their rows."""

import math
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.fused_ops import ADD_OPS
from deploykit.transforms.layers.layers import FLOATS, bias_add, only_reader
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes

INT32 = DType("int32")
_BATCHED = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_KINDS = {"BatchMatMulV3": ("Ta", "Tb", "Tout")}  # of the others: T


@dataclass(frozen=True)
class _Product:
    """A product of rows and weights, without the shape of the result."""

    rows: str
    """The tensor whose last axes the product sums over."""
    summed: int
    """Number of elements of a row."""
    weights: Array
    """float32 or another float type [summed, made]."""
    const: Node
    kept: int
    """Number of leading axes that index the rows."""
    made: tuple[int, ...]
    """The sizes of the result's axes after them."""
    by_head: Shape = ()
    """For a product of all heads: sizes of the axes that index the rows. In the result, the first
    axis of `made`, the heads, comes before the last of them."""
    bias: Node | None = None
    """For a product of all heads: the node that adds a constant to each of its columns."""


def flatten_products(graph: Graph) -> None:
    """Replace Einsum and batched products with constant weights by MatMul, between Reshapes.

    Other transforms handle MatMul as a layer: `quantize_static` quantizes it to int8. A MatMul that
    reads reshaped rows, as tf.tensordot writes it, reads them through a constant shape. A product
    whose weights have an axis for attention heads, and whose rows have none, becomes one product of
    all heads and a Transpose; its bias is added before. The values stay the same, except for the
    summation order of oneDNN or Eigen. Not changed are other products that move axes, or whose
    weights differ between the matrices of the batch.
    """
    shapes = Shapes(graph)
    for node in list(graph):
        if node.op == "Einsum" or node.op in _BATCHED:
            read = _einsum if node.op == "Einsum" else _batched
            result = read(graph, node, shapes)
            if isinstance(result, str):
                graph.skip(node, result)
                continue
            _rewrite(graph, node, result, shapes.shape(result.rows))
        elif node.op == "MatMul":
            _read_rows(graph, node)
    _fix_sizes(graph)


def _fix_sizes(graph: Graph) -> None:
    """Make the sizes of a Reshape constant, where all but one are known for any input."""
    shapes = Shapes(graph)
    for node in list(graph):
        if node.op == "Reshape" and graph.constant(node.data_inputs[1]) is None:
            shape = shapes.shape(node.name)
            if shape is None or shape.count(-1) > 1 or 0 in shape or graph.is_input(node.name):
                continue
            sizes = _sizes(graph, node, list(shape))
            fixed = node.with_data_inputs(node.data_inputs[0], sizes).with_attrs(Tshape=INT32)
            graph.absorb([node], into=fixed)


def _batched(graph: Graph, node: Node, shapes: Shapes) -> _Product | str:
    """Return a product of a batch of matrices, or a reason; '' if the weights are not constant."""
    rows, second = node.data_inputs
    const, shape = graph.constant(second), shapes.shape(rows)
    if const is None or not _can_be_changed(graph, node):
        return ""
    if node.attr("adj_x", False):
        return "its first factor is transposed"
    if shape is None or len(shape) < max(2, const.value.ndim):
        return "the rank of its first factor is unknown, or lower than that of its weights"
    if const.value.ndim < 2:
        return "its weights are not matrices"
    matrices = const.value.swapaxes(-1, -2) if node.attr("adj_y", False) else const.value
    if math.prod(matrices.shape[:-2]) != 1:
        return _of_heads(graph, node, const, matrices, shape)
    weights = matrices.reshape(matrices.shape[-2:])
    return _Product(rows, len(weights), weights, const, len(shape) - 1, weights.shape[1:])


def _of_heads(
    graph: Graph, node: Node, const: Node, matrices: Array, shape: Shape
) -> _Product | str:
    """Return the product of rows with the matrices of all heads, or the reason why it is not one.

    `matrices` are the value of `const`, [heads, summed, made] with leading axes of size 1; `shape`
    is that of the rows.
    """
    heads, summed, made = matrices.shape[-3:]
    if math.prod(matrices.shape[:-3]) != 1 or (len(shape) > 2 and shape[-3] != 1):
        return "its weights differ from one matrix of the batch to the next"
    numbered = (*shape[:-3], shape[-2])
    if not matrices.size or numbered.count(-1) > 1 or 0 in shape:
        return "its weights have an axis for heads, and its shape is not known"
    weights = matrices.reshape(heads, summed, made).transpose(1, 0, 2).reshape(summed, -1)
    bias = only_reader(graph, node)
    if bias is not None and not _adds_to_heads(graph, bias, (heads, 1, made)):
        bias = None
    rows, retained = _without_new_axes(graph, node.data_inputs[0]), len(numbered)
    return _Product(rows, summed, weights, const, retained, (heads, made), numbered, bias)


def _without_new_axes(graph: Graph, tensor: str) -> str:
    """Return the tensor before ops that only add axes of size 1."""
    while not graph.is_input(tensor):
        node = graph.producer(tensor)
        if node.op != "ExpandDims" and not (node.op == "StridedSlice" and _takes_all(graph, node)):
            break
        tensor = node.data_inputs[0]
    return tensor


def _takes_all(graph: Graph, node: Node) -> bool:
    """Return whether a StridedSlice takes whole axes and adds new ones."""
    steps = graph.constant(node.data_inputs[3])
    if steps is None or node.attr("shrink_axis_mask", 0) or (steps.value != 1).any():
        return False
    masks = [node.attr(f"{name}_mask", 0) for name in ("begin", "end", "ellipsis", "new_axis")]
    begins, ends, ellipsis, new = masks
    whole = (begins & ends) | ellipsis | new
    return all(whole >> axis & 1 for axis in range(steps.value.size))


def _adds_to_heads(graph: Graph, add: Node, shape: Shape) -> bool:
    """Return whether a node adds one constant to each column of each head."""
    constants = [const for t in add.data_inputs if (const := graph.constant(t)) is not None]
    if add.op not in ADD_OPS or len(constants) != 1 or graph.is_input(add.name):
        return False
    value = constants[0].value
    leading = value.shape[:-3]
    return value.ndim >= 3 and value.shape[-3:] == shape and math.prod(leading) == 1


def _einsum(graph: Graph, node: Node, shapes: Shapes) -> _Product | str:
    """Return the product of an Einsum, or a reason; '' if the weights are not constant."""
    if len(node.data_inputs) != 2 or not _can_be_changed(graph, node):
        return ""
    constants = [graph.constant(tensor) for tensor in node.data_inputs]
    place = 1 if constants[1] is not None else 0
    const, rows = constants[place], node.data_inputs[1 - place]
    if const is None or graph.constant(rows) is not None:
        return ""
    terms, _, result = str(node.attr("equation")).replace(" ", "").partition("->")
    operands = terms.split(",")
    read, labels = operands[1 - place], operands[place]
    if "..." in terms:
        shape = shapes.shape(rows)
        if "..." in labels or shape is None:
            return "its weights have axes without a label, or those of the rows are not known"
        spare = "".join(chr(0x3B1 + axis) for axis in range(len(shape) + 3 - len(read)))
        read, result = read.replace("...", spare), result.replace("...", spare)
    summed = [label for label in read if label not in result]
    retained, made = read[: len(read) - len(summed)], [c for c in result if c not in read]
    plain = all(len(set(part)) == len(part) for part in (read, labels, result))
    if not plain or not summed or not retained or list(read) != [*retained, *summed]:
        return "it sums over other axes than the last ones of its rows"
    if sorted(labels) != sorted([*summed, *made]) or list(result) != [*retained, *made]:
        return "it moves axes, or its weights differ from one matrix of the batch to the next"
    ordered = const.value.transpose([labels.index(label) for label in (*summed, *made)])
    sizes = ordered.shape
    count = math.prod(sizes[: len(summed)])
    weights = ordered.reshape(count, -1) if ordered.size else np.zeros((0, 0))
    return _Product(rows, count, weights, const, len(retained), sizes[len(summed) :])


def _can_be_changed(graph: Graph, node: Node) -> bool:
    return _kind(node) in FLOATS and not graph.is_input(node.name)


def _kind(node: Node) -> DType | None:
    """Return the type of a product and its factors; None: the types differ."""
    kinds = {node.attr(name, "float32") for name in _KINDS.get(node.op, ("T",))}
    return DType(kinds.pop()) if len(kinds) == 1 else None


def _rewrite(graph: Graph, node: Node, result: _Product, shape: Shape | None) -> None:
    if not result.weights.size:
        graph.skip(node, "its weights are empty")
        return
    kind = _kind(node)
    rows = _reshape(graph, node, f"{node.name}/rows", result.rows, [-1, result.summed])
    weights = result.const.value
    if weights.shape != result.weights.shape or (weights != result.weights).any():
        weights = np.ascontiguousarray(result.weights)
        name = f"{result.const.name}/matrix"
        second = graph.constant_beside(result.const, weights, name, result.const.attr("dtype")).name
    else:
        second = result.const.name
    flags = {"transpose_a": False, "transpose_b": False}
    made = graph.put(f"{node.name}/product", "MatMul", rows, second, like=node, T=kind, **flags)
    if result.by_head:
        _move_heads(graph, node, result, made)
        return
    retained = None if shape is None else shape[: result.kept]
    if retained is not None and retained.count(-1) <= 1 and 0 not in retained:
        sizes = _sizes(graph, node, [*retained, *result.made])
    else:
        sizes = _open_sizes(graph, node, result)
    last = Node(node.name, "Reshape", (made, sizes), {}, node.device)
    graph.absorb([node], into=last.with_attrs(T=kind, Tshape=INT32))


def _move_heads(graph: Graph, node: Node, product: _Product, made: str) -> None:
    """Add the bias, a Reshape and a Transpose after the product of all heads."""
    kind, replaced = _kind(node), [node]
    if product.bias is not None:
        (const,) = (c for t in product.bias.data_inputs if (c := graph.constant(t)) is not None)
        name = graph.unique_name(f"{node.name}/biased")
        add = bias_add(graph, name, graph[made], const.value.reshape(-1), "/bias")
        made, replaced = graph.add(add).name, [node, product.bias]
    sizes = [*product.by_head, *product.made]
    split = _reshape(graph, node, f"{node.name}/by_head", made, sizes)
    last = product.kept - 1
    order = np.array([*range(last), last + 1, last, last + 2], np.int32)
    axes = graph.constant_beside(node, order, f"{node.name}/order").name
    moved = Node(replaced[-1].name, "Transpose", (split, axes), {}, replaced[-1].device)
    graph.absorb(replaced, into=moved.with_attrs(T=kind, Tperm=INT32))


def _reshape(graph: Graph, node: Node, name: str, tensor: str, sizes: list[int]) -> str:
    shape = _sizes(graph, node, sizes)
    return graph.put(name, "Reshape", tensor, shape, like=node, T=_kind(node), Tshape=INT32)


def _sizes(graph: Graph, node: Node, sizes: list[int]) -> str:
    return graph.constant_beside(node, np.array(sizes, np.int32), f"{node.name}/shape").name


def _open_sizes(graph: Graph, node: Node, product: _Product) -> str:
    """Add nodes that compute the result shape from that of the rows; return the last name."""

    def add(part: str, op: str, *inputs: str, **attrs: object) -> str:
        return graph.put(f"{node.name}/{part}", op, *inputs, like=node, **attrs)

    whole = add("shape_of_rows", "Shape", product.rows, T=_kind(node), out_type=INT32)
    ends = [_sizes(graph, node, [place]) for place in (0, product.kept)]
    retained = add("kept", "Slice", whole, *ends, T=INT32, Index=INT32)
    made = _sizes(graph, node, list(product.made))
    zero = graph.constant_beside(node, np.array(0, np.int32), f"{node.name}/axis").name
    return add("shape_of_result", "ConcatV2", retained, made, zero, T=INT32, N=2, Tidx=INT32)


def _read_rows(graph: Graph, node: Node) -> None:
    """Make a MatMul with constant weights read rows that are reshaped by a constant shape."""
    const = graph.constant(node.data_inputs[1])
    before = graph.producer(node.data_inputs[0])
    if const is None or const.value.ndim != 2 or not const.value.size:
        return
    if node.attr("transpose_a", False) or before.op != "Reshape" or graph.is_input(node.name):
        return
    if graph.is_input(before.name):
        return
    summed = const.value.shape[1 if node.attr("transpose_b", False) else 0]
    source = before.data_inputs[0]
    while (step := graph.producer(source)).op in ("Reshape", "Transpose"):
        order = graph.constant(step.data_inputs[1]) if step.op == "Transpose" else None
        moves = order is None or order.value.tolist() != list(range(order.value.size))
        if graph.is_input(step.name) or (step.op == "Transpose" and moves):
            break
        source = step.data_inputs[0]
    shape = graph.constant(before.data_inputs[1])
    if source == before.data_inputs[0] and shape is not None:
        return
    rows = _reshape(graph, node, f"{node.name}/rows", source, [-1, summed])
    graph.absorb([before, node], into=node.with_data_inputs(rows, *node.data_inputs[1:]))
