"""Weights that take few different values compress well, and serve almost as well."""

import math

import numpy as np

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

MIN_SIZE = 16  # smaller constants tend to be ones that count


def round_weights(graph: Graph, *, num_steps: int = 256) -> None:
    """Round large float32 constants to few values each, so that the file compresses better.

    The values are multiples of one step within the old range: zero stays zero, and none moves by
    more than half a step. The file itself keeps its size.

    Args:
        num_steps: how many different values a constant may have; at least 2.
    """
    if num_steps < 2:
        raise PipelineError("out-of-range", name="num_steps", expected="at least 2", got=num_steps)
    for node in graph:
        if node.op != "Const" or node.attr("dtype") != "float32":
            continue
        if math.prod(node.shape) < MIN_SIZE:
            continue
        values = node.value
        low, high = float(values.min()), float(values.max())
        reason = _reason(graph, node, low, high)
        if reason:
            graph.skip(node, reason)
        else:
            graph.replace(node, node.with_attrs(value=_rounded(values, low, high, num_steps)))


def _reason(graph: Graph, node: Node, low: float, high: float) -> str:
    """Return why a Const keeps its values, or an empty string."""
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if graph.is_output(node.name):
        return "it is an output of the graph"
    if not math.isfinite(high - low):  # NaN and Inf show in both
        return "it holds NaN or Inf"
    return "all its values are equal" if low == high else ""


def _rounded(values: Array, low: float, high: float, num_steps: int) -> Array:
    """Return the nearest multiples of a step, clipped to the range: `num_steps` at most.

    The range spans num_steps - 1 steps, so as many multiples as that and one more.
    """
    step = (high - low) / (num_steps - 1)
    steps = np.divide(values, step, dtype=np.float64)
    steps += 0.5  # halves go up, all of them: rounding them to even could make one value more
    np.floor(steps, out=steps)
    steps *= step
    return np.clip(steps, low, high, out=steps).astype(np.float32)
