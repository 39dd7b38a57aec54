"""The output values of a fake-quant: multiples of its step, from its lowest to its highest.

TensorFlow shifts ("nudges") the ends of a range until zero is one of the values. This module
repeats the float32 arithmetic of its kernels.
"""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.int8.affine_codes import CODES, Form
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

ARGS = "FakeQuantWithMinMaxArgs"
VARS = "FakeQuantWithMinMaxVars"
PER_CHANNEL = "FakeQuantWithMinMaxVarsPerChannel"
OPS = frozenset({ARGS, VARS, PER_CHANNEL})
BITS = 8
TOP = "_top"
"""Attribute of a fake-quant that uses fewer codes than its range contains: the largest one."""


@dataclass(frozen=True)
class FakeQuantGrid:
    """The multiples of a step from `lowest` to `highest`; one grid, or one per channel."""

    step: Array
    """float32, scalar or per channel."""
    lowest: Array
    """Integers as float32, the lowest value as a multiple of the step."""
    highest: Array

    def multiples(self, values: Array) -> Array:
        """Return float32 values as multiples of the step, as the kernels round them."""
        step = self.step
        below, above = self.lowest * step, self.highest * step
        scale = np.float32(1) / step
        zero = np.floor(-below * scale + np.float32(0.5))
        shifted = np.clip(values, below, above) - below
        rounded: Array = np.floor(shifted * scale - zero + np.float32(0.5))
        return rounded


def grid_of(graph: Graph, node: Node) -> FakeQuantGrid | str:
    """Return the grid of a fake-quant, or the reason why int8 has no such grid."""
    bits, is_narrow = node.attr("num_bits", BITS), bool(node.attr("narrow_range", False))
    if bits != BITS:
        return f"fake-quant '{node.name}' has {bits} bits, expected {BITS}"
    ends = _ends(graph, node)
    if ends is None:
        return f"the range of fake-quant '{node.name}' is not constant"
    low, high = ends
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return f"the range of fake-quant '{node.name}' is not finite"
    is_zero = (low == 0) & (high == 0)  # gives zeros, as in a channel without weights
    if not ((low < high) | is_zero).all() or is_zero.all():
        return f"the range of fake-quant '{node.name}' is empty"
    if (low > 0).any() or (high < 0).any():
        place = int(np.argmax(((low > 0) | (high < 0)).reshape(-1)))
        result = f"{low.reshape(-1)[place]:g} to {high.reshape(-1)[place]:g}"
        return f"the range of fake-quant '{node.name}' is {result}, which does not contain zero"
    first, last = np.float32(is_narrow), np.float32(CODES)
    step = np.where(is_zero, np.float32(1), (high - low) / (last - first))
    if (step < np.finfo(np.float32).tiny).any():
        return f"the range of fake-quant '{node.name}' is empty"
    zero = np.clip(first - low / step, first, last)
    zero = np.floor(zero + np.float32(0.5))  # rounds halves away from zero, as in C
    lowest, highest = (np.where(is_zero, np.float32(0), end - zero) for end in (first, last))
    return FakeQuantGrid(step, lowest, highest)


def form_of_tensor(graph: Graph, node: Node) -> Form | str:
    """Return the codes of a fake-quant's output, with 0 for its lowest value, or a reason."""
    grid = grid_of(graph, node)
    if isinstance(grid, str):
        return grid
    if grid.step.ndim:
        return f"fake-quant '{node.name}' has a range per channel, int8 kernels take one a tensor"
    step, lowest = float(grid.step), float(grid.lowest)
    top = int(node.attr(TOP, grid.highest - grid.lowest))
    return Form(False, CODES * step, lowest * step + 0.0, top)


def _ends(graph: Graph, node: Node) -> tuple[Array, Array] | None:
    if node.op == ARGS:
        low, high = node.attr("min", -6.0), node.attr("max", 6.0)
        return np.array(low, np.float32), np.array(high, np.float32)
    consts = [graph.constant(tensor) for tensor in node.data_inputs[1:]]
    values = [const.value for const in consts if const is not None]
    rank = int(node.op == PER_CHANNEL)
    if len(values) != 2 or any(value.ndim != rank for value in values):
        return None
    return values[0], values[1]
