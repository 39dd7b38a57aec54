"""Workarounds for OpenVINO 2026.4: a fusion bug, and rounding that differs from TensorFlow."""

from dataclasses import replace

import numpy as np

from deploykit.transforms.int8.fake_quants import OPS, TOP, VARS, form_of_tensor
from deploykit.transforms.int8.quantized_ops import number_range
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.fused_ops import ADD_OPS

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
    """Return whether OpenVINO may compute a wrong value for a tensor that is rounded."""
    waiting, is_cut = [tensor], False
    for item in waiting:  # the list grows in the loop
        if graph.is_input(item):
            if is_cut:
                return True
            continue
        node = graph.producer(item)
        if node.op in _REDUCING:
            return True
        if node.op in _SCALING and _has_signs(graph, node):
            return True
        if node.op in FEEDABLE_OPS and is_cut:
            return True
        if node.op in _BETWEEN:
            is_cut = is_cut or node.op in _CUTTING
            waiting += [data_input for data_input in node.data_inputs if data_input not in waiting]
    return False


def _has_signs(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies by several numbers, some of them negative."""
    constants = [graph.constant(tensor) for tensor in node.data_inputs]
    return any(
        const is not None and const.value.size > 1 and bool((np.asarray(const.value) < 0).any())
        for const in constants
    )


FLOAT = DType("float32")
APART = "_apart"
"""The attribute of a Minimum that only OpenVINO needs."""


def keep_apart(graph: Graph, made: str) -> None:
    """Prevent OpenVINO from fusing a layer with a sum before the layer's fake-quant.

    OpenVINO's fused kernel omits the fake-quant in between, which leaves 32 dB SQNR in a network
    with one such sum. A Minimum at the end of the range prevents it without an effect on values.
    """
    for add in graph.readers(made):
        if add.op not in ADD_OPS:
            continue
        for tensor in dict.fromkeys(add.data_inputs):
            node = graph.producer(tensor)
            form = form_of_tensor(graph, node) if node.op in OPS else ""
            if isinstance(form, str):
                continue
            same = _minimum(graph, node, tensor, form.top * form.step + form.offset)
            add = graph.replace(add, add.reading({tensor: same}))


def widen(graph: Graph) -> None:
    """Write the ranges of fake-quants so that OpenVINO rounds like TensorFlow.

    OpenVINO rounds a zero point between two codes differently, so ranges start and end at a code.
    It also shifts the values of 255 levels by half a step if a layer reads them. These fake-quants
    get one more level, which no value reaches.
    """
    for node in tuple(graph):
        form = form_of_tensor(graph, node) if node.op == VARS else ""
        if isinstance(form, str):
            continue
        if not node.attr("narrow_range", False):
            ends = form.offset, form.peak + form.offset
            graph.replace(node, _with_range(graph, node, *ends, node.data_inputs[0]))
            continue
        cut = _minimum(graph, node, node.data_inputs[0], form.top * form.step + form.offset)
        wide = _with_range(graph, node, form.offset, form.peak + form.offset, cut)
        graph.replace(graph[node.name], wide.with_attrs(narrow_range=False, **{TOP: form.top}))


def taken_back(graph: Graph) -> None:
    """Remove the changes of `keep_apart` and `widen`."""
    for node in tuple(graph):
        if node.attr(APART):
            graph.redirect({node.name: node.data_inputs[0]})
            graph.remove(node)
    for node in tuple(graph):
        if node.op == VARS and TOP in node.attrs:
            form = form_of_tensor(graph, node)
            assert not isinstance(form, str)
            high = form.top * form.step + form.offset
            narrow = _with_range(graph, node, form.offset, high, node.data_inputs[0])
            graph.replace(node, narrow.with_attrs(narrow_range=True, **{TOP: None}))


def _minimum(graph: Graph, node: Node, tensor: str, high: float) -> str:
    """Add a Minimum of a tensor and a number next to a fake-quant; return its name."""
    name, free = graph.unique_name(f"{node.name}/apart"), replace(node, device="")
    end = graph.constant_beside(free, np.array(high, np.float32), f"{name}/max").name
    return graph.put(name, "Minimum", tensor, end, like=node, **{"T": FLOAT, APART: True})


def _with_range(graph: Graph, node: Node, low: float, high: float, tensor: str) -> Node:
    return node.with_data_inputs(
        tensor, *number_range(graph, node, f"{node.name}/", low, high, ("low", "high"))
    )
