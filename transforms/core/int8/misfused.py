"""What OpenVINO computes wrongly where a rounding follows, found with 2026.4.1 and its CPU plugin.

It lets the kernel of an op round what the op gives, or the rounding do what the op does:

* Max and Min over axes round before they are done: 0 to 25 dB are left of an 8-bit MatMul behind.
* A product with several numbers of which some are below zero gets its ends the wrong way around.
* An input that is cut off (Relu6, a Minimum) has no rows any more.

Ops that compute element by element may lie in between, as they become part of the same kernel, and
ops that move numbers, as it rounds before them.
"""

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import FEEDABLE_OPS

_REDUCING = frozenset({"Max", "Min"})
_CUTTING = frozenset({"ClipByValue", "Maximum", "Minimum", "Relu", "Relu6"})
_SCALING = frozenset({"Mul", "RealDiv"})
_ELEMENTWISE = (
    "Abs Add AddV2 BiasAdd Cast Elu Erf Exp Floor Identity LeakyRelu Log Neg Pow Round Rsqrt Selu "
    "Sigmoid Softplus Sqrt Square SquaredDifference Sub Tanh"
)
_MOVING = "ConcatV2 ExpandDims GatherV2 Pack Pad Reshape Slice Split Squeeze StridedSlice Transpose"
_BETWEEN = _CUTTING | _SCALING | {*_ELEMENTWISE.split(), *_MOVING.split()}


def is_misfused(graph: Graph, tensor: str) -> bool:
    """Say whether OpenVINO may compute a tensor wrongly that is rounded."""
    waiting, is_cut = [tensor], False
    for each in waiting:  # it grows
        if graph.is_input(each):
            if is_cut:
                return True
            continue
        node = graph.producer(each)
        if node.op in _REDUCING:
            return True
        if node.op in _SCALING and _has_signs(graph, node):
            return True
        if node.op in FEEDABLE_OPS and is_cut:
            return True
        if node.op in _BETWEEN:
            is_cut = is_cut or node.op in _CUTTING
            waiting += [found for found in node.data_inputs if found not in waiting]
    return False


def _has_signs(graph: Graph, node: Node) -> bool:
    """Say whether a node multiplies with several numbers, some of them below zero."""
    constants = [graph.constant(tensor) for tensor in node.data_inputs]
    return any(
        const is not None and const.value.size > 1 and bool((np.asarray(const.value) < 0).any())
        for const in constants
    )
