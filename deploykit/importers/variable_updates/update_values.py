"""The value of a variable after an update, and products with zero whose other factor must stay
finite.
"""

import re
from collections.abc import Iterable

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.shapes.static_shapes import Shapes

_SUMS = {"AssignAdd": "AddV2", "AssignSub": "Sub"}
_SCATTER = re.compile(r"(?:Resource)?Scatter(Nd)?(Update|Add|Sub|Min|Max)")
_SLICES = ("ResourceStridedSliceAssign", "StridedSliceAssign")
_MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


def reads_value_before(update: Node) -> bool:
    """Return whether the value after an update depends on the value before it."""
    return _assigned(update) != "Assign"


def value_behind(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    """Add a node with the value after an update; return its name, or None if it is unsupported.

    `before` is the tensor with the variable's previous value; an Assign does not read it.
    """
    assigned = _assigned(update)
    given = update.data_inputs[1:]
    if assigned == "Assign":
        return _add(graph, update, "Identity", given[:1], T=dtype)
    if assigned in _SUMS:
        return _add(graph, update, _SUMS[assigned], (before, *given), T=dtype)
    if update.op in _SLICES:
        retained = {name: update.attr(name) for name in (*_MASKS, "Index") if name in update.attrs}
        return _add(
            graph, update, "TensorStridedSliceUpdate", (before, *given), T=dtype, **retained
        )
    return _scattered(graph, update, before, dtype)


def _scattered(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    match = _SCATTER.fullmatch(update.op)
    if match is None:
        return None
    indices, values = update.data_inputs[1:3]
    index_type = update.attr("Tindices")
    if not match[1]:  # whole rows, which a scalar may fill
        if not Shapes(graph).shape(values):
            return None
        axis = Node.constant(graph.unique_name(f"{update.name}/axis"), np.array(-1, np.int32))
        graph.add(axis)
        rows = Node(graph.unique_name(f"{update.name}/rows"), "ExpandDims", (indices, axis.name))
        indices = graph.add(rows.with_attrs(T=index_type, Tdim=DType("int32"))).name
    op = f"TensorScatter{match[2]}"
    return _add(graph, update, op, (before, indices, values), T=dtype, Tindices=index_type)


def _add(graph: Graph, update: Node, op: str, inputs: tuple[str, ...], **attrs: object) -> str:
    name = graph.unique_name(f"{update.name}/value")
    return graph.add(Node(name, op, tuple(inputs)).with_attrs(**attrs)).name


def _assigned(update: Node) -> str:
    return update.op.removesuffix("VariableOp")


def is_zero(graph: Graph, tensor: str) -> bool:
    """Return whether all values of a tensor are 0 for all inputs."""
    node = graph.producer(tensor)
    if node.op in FEEDABLE_OPS or graph.is_input(node.name):
        return False
    if node.op == "ZerosLike":
        return True
    source = node.data_inputs[1] if node.op == "Fill" else tensor
    constant = graph.constant(source)
    return constant is not None and constant.attr("dtype") != "string" and not constant.value.any()


_PRODUCTS = frozenset({"Mul", "MulNoNan"})


class ZeroProducts:
    """The products of a graph with a factor that is 0 for all inputs.

    Infinity and NaN times 0 are NaN, except for integers and for MulNoNan with 0 as its second
    input.
    """

    def __init__(self, graph: Graph) -> None:
        """Find the products in the graph."""
        self._graph = graph
        self._factors = {
            node.name: factors
            for node in graph
            if node.op in _PRODUCTS
            for factors in [
                [data_input for data_input in node.data_inputs if not is_zero(graph, data_input)]
            ]
            if len(factors) < len(node.data_inputs)
        }
        self.names = frozenset(self._factors)
        self.certain = frozenset(name for name in self.names if self._is_certain(graph[name]))
        """Names of products that are 0 for any value of the other factor."""

    def _is_certain(self, product: Node) -> bool:
        if product.op == "MulNoNan":
            return is_zero(self._graph, product.data_inputs[1])
        return str(product.attr("T")).startswith(("int", "uint"))

    def watched(self, products: Iterable[str]) -> list[str]:
        """Add a node for each factor of products that must be finite; return the node names."""
        graph = self._graph
        results = []
        for product in sorted(products):
            for factor in self._factors[product]:
                name = graph.unique_name(f"{product}/factor")
                node = Node(name, "Identity", (factor,)).with_attrs(T=graph[product].attrs["T"])
                results.append(graph.add(node).name)
        return results
