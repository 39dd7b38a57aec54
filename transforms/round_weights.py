"""Weights with few different values compress well, with nearly the same accuracy."""

import math

import numpy as np

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

MIN_SIZE = 16  # smaller constants are often important


def round_weights(graph: Graph, *, num_steps: int = 256) -> None:
    """Round large float32 constants to a few values each, so that the file compresses better.

    The values are multiples of one step within the old range: zero stays zero, and no value changes
    by more than half a step. The size of the uncompressed file does not change.

    Args:
        num_steps: maximum number of different values of a constant, at least 2.
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
        if not graph.skip(node, _reason(graph, node, low, high)):
            graph.replace(node, node.with_attrs(value=_rounded(values, low, high, num_steps)))


def _reason(graph: Graph, node: Node, low: float, high: float) -> str:
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if graph.is_output(node.name):
        return "it is an output of the graph"
    if not math.isfinite(high - low):  # NaN and Inf appear in low and high
        return "it contains NaN or Inf"
    return "all its values are equal" if low == high else ""


def _rounded(values: Array, low: float, high: float, num_steps: int) -> Array:
    """Return the nearest multiples of a step, clipped to the range: at most `num_steps` values.

    The range spans num_steps - 1 steps, which can touch num_steps + 1 multiples.
    """
    step = (high - low) / (num_steps - 1)
    steps = np.divide(values, step, dtype=np.float64)
    steps += 0.5  # round all halves up: rounding to even could give one value more
    np.floor(steps, out=steps)
    steps *= step
    return np.clip(steps, low, high, out=steps).astype(np.float32)
