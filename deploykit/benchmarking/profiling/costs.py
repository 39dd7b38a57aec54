"""Cost of a graph at batch 1: bytes by node, and floating-point operations by op."""

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import VARIABLE_OPS, op_defs, output_types
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.layers.layers import PRIVATE_OPS, WEIGHTS
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes, variable_shape

GIVES_ON = frozenset(
    {"ExpandDims", "Identity", "PreventGradient", "Reshape", "Snapshot", "Squeeze", "StopGradient"}
)


def memory(graph: Graph, shapes: Shapes, top: int) -> dict[str, Any]:
    """Return the bytes of constants, variables and computed tensors, and the largest nodes.

    The bytes of a node are those of its first output. Computed tensors are added up as if no memory
    were reused. Nodes that pass on their input, such as Reshape, and nodes of unknown shape are
    skipped.
    """
    results: list[dict[str, Any]] = []
    sums = Counter({"constants": 0, "variables": 0, "computed": 0})
    for node in graph:
        type_ = _type(node)
        is_variable = node.op in VARIABLE_OPS
        shape = variable_shape(node) if is_variable else shapes.full_shape(node.name)
        if type_ is None or shape is None or node.op in GIVES_ON:
            continue
        size = prod(shape) * item_bytes(type_)
        kind = "constants" if node.op == "Const" else "computed"
        sums["variables" if is_variable else kind] += size
        results.append({"node": node.name, "op": node.op, "type": type_, "shape": list(shape),
                      "bytes": size})  # fmt: skip
    results = [result for result in results if result["bytes"]]
    results.sort(key=lambda item: -item["bytes"])
    return {f"{kind}_bytes": size for kind, size in sums.items()} | {"nodes": results[:top]}


def _type(node: Node) -> str | None:
    """Return the dtype of a node's first output, or of a variable's value."""
    if node.op in VARIABLE_OPS:
        type_ = node.attr("dtype")
        return None if type_ is None else str(type_)
    types = output_types(node) if node.op in op_defs() else None
    return str(types[0]) if types else None


def item_bytes(type_: str) -> int:
    """Return the bytes of an element; 0 for strings and handles, whose size is unknown."""
    if type_ == "string":
        return 0
    try:
        return numpy_type(type_).itemsize
    except GraphError:
        return 0


def flops(graph: Graph, shapes: Shapes) -> dict[str, Any]:
    """Return the floating-point operations of the layers; a multiply-add counts as two.

    `unknown` is the number of layers of unknown shape, which are skipped.
    """
    by_op: Counter[str] = Counter()
    unknown = 0
    for node in graph:
        if node.op not in FLOPS_OPS:
            continue
        read = 2 if node.op in PRIVATE_OPS else len(node.data_inputs)  # the rest is not multiplied
        operands = [shapes.full_shape(tensor) for tensor in node.data_inputs[:read]]
        known = [shape for shape in operands if shape is not None]
        result = shapes.full_shape(node.name)
        if result is None or len(known) < len(operands):
            unknown += 1
        else:
            by_op[node.op] += layer_flops(node, result, known)
    return {
        "total": sum(by_op.values()),
        "by_op": dict(by_op.most_common()),
        "unknown": unknown,
    }


def layer_flops(node: Node, result: Shape, shapes: list[Shape]) -> int:
    """Return the floating-point operations of a layer whose shapes are known."""
    return 2 * _FLOPS[node.op](node, result, shapes)


def _matmul(node: Node, result: Shape, shapes: list[Shape]) -> int:
    transposed = node.attr("transpose_a", False) or node.attr("adj_x", False)
    return prod(result) * shapes[0][-2 if transposed else -1]


_FLOPS: dict[str, Callable[[Node, Shape, list[Shape]], int]] = {
    "BatchMatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "BatchMatMulV3": _matmul,
    "Conv2D": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:-1]),
    # Each input value contributes to every position of the window and every channel.
    "Conv2DBackpropInput": lambda _, result, shapes: prod(shapes[2]) * prod(shapes[WEIGHTS][:3]),
    "Conv3D": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:-1]),
    "DepthwiseConv2dNative": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:2]),
    "MatMul": _matmul,
}
_FLOPS |= {op: _FLOPS[layer] for op, layer in PRIVATE_OPS.items()}
FLOPS_OPS = frozenset(_FLOPS)
