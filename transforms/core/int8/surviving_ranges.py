"""What survives of a tensor: the range that all its readers cut it off at, as a Relu6 does at 6."""

import math

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8 import gtt_codes
from deploykit.transforms.core.node import Node

Range = tuple[float, float]  # it holds zero

EVERYTHING = (-math.inf, math.inf)

_CUT_AT = {"Relu": math.inf, "Relu6": 6.0}
_PASS_ON = frozenset({"Dequantize", "Identity", "MaxPool", "Requantize", "Reshape", "Squeeze"})


def surviving_ranges(graph: Graph) -> dict[str, Range]:
    """Return for each tensor a range: values beyond an end have the effect of that end.

    One pass from the outputs up; an 8-bit op cuts off and passes on what its float op does.
    """
    found = dict.fromkeys(graph.outputs, EVERYTHING)
    for name in reversed(graph.order()):
        node = graph[name]
        if node.op == "RequantizationRange":  # what it finds is no value that others compute with
            continue
        for place, tensor in enumerate(node.data_inputs):
            own = found.get(name, EVERYTHING)
            low, high = EVERYTHING if place else _before(graph, node, own)
            if tensor in found:
                low, high = min(low, found[tensor][0]), max(high, found[tensor][1])
            found[tensor] = min(low, 0.0), max(high, 0.0)
    return found


def _before(graph: Graph, node: Node, own: Range) -> Range:
    """Return what survives of the first input of a node, of whose result `own` survives."""
    op = node.op.removeprefix("Quantized")
    if op in _CUT_AT:
        return 0.0, min(own[1], _CUT_AT[op])
    if op in _PASS_ON:
        return own
    # Through a bias, a cut of one end does harm: InceptionV3 ends at 25 dB, not 32.
    bias = _bias(graph, node) if op == "BiasAdd" and math.isfinite(own[1]) else None
    return EVERYTHING if bias is None else (own[0] - bias[1], own[1] - bias[0])


def _bias(graph: Graph, node: Node) -> Range | None:
    """Return the range of a constant bias, or None."""
    if node.op == "BiasAdd":
        constant = gtt_codes.float_constant(graph, node.data_inputs[1])
        ends = [] if constant is None else [constant[1].min(initial=0), constant[1].max(initial=0)]
    else:
        found = [graph.constant(tensor) for tensor in node.data_inputs[4:]]
        ends = [end.value for end in found if end is not None and not end.shape]
    return (float(ends[0]), float(ends[1])) if len(ends) == 2 and np.isfinite(ends).all() else None
