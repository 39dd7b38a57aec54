"""Fake-quants: their output values, and the int8 codes of the weights that they round.

The values are multiples of a step, from the lowest to the highest. TensorFlow shifts ("nudges") the
ends of a range until zero is one of them: this module repeats its kernels' float32 arithmetic.

A batch norm after a layer multiplies each output channel of its weights: the codes do not change,
and the step of the channel is multiplied by the factor.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.int8.affine_codes import CODES, Form
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS, WEIGHTS, channel_axes
from deploykit.transforms.runtime.constants import PURE_OPS, Constants

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
    inverse: Array | None = None
    """float32, the factor by which the kernel multiplies; None if it divides by the step."""

    def multiples(self, values: Array) -> Array:
        """Return float32 values as multiples of the step, as the kernels round them."""
        step = self.step
        below, above = self.lowest * step, self.highest * step
        shifted = np.clip(values, below, above) - below
        scaled = shifted / step if self.inverse is None else shifted * self.inverse
        rounded: Array = np.floor(scaled + self.lowest + np.float32(0.5))
        return rounded


def grid_of(graph: Graph, node: Node) -> FakeQuantGrid | str:
    """Return the grid of a fake-quant, or the reason why int8 has no such grid."""
    bits = node.attr("num_bits", BITS)
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
    grid = _grid(node, low, high)
    if (grid.step < np.finfo(np.float32).tiny).any():
        return f"the range of fake-quant '{node.name}' is empty"
    return grid


def _grid(node: Node, low: Array, high: Array) -> FakeQuantGrid:
    """Return the grid of a fake-quant with any number of bits, for the ends of its range."""
    is_zero = (low == 0) & (high == 0)
    first = np.float32(bool(node.attr("narrow_range", False)))
    last = np.float32(2 ** node.attr("num_bits", BITS) - 1)
    width = np.where(is_zero, last - first, high - low)
    step = width / (last - first)
    zero = np.clip(first - low / step, first, last)
    zero = np.floor(zero + np.float32(0.5))  # rounds halves away from zero, as in C
    lowest, highest = (np.where(is_zero, np.float32(0), end - zero) for end in (first, last))
    inverse = None if node.op == VARS else (last - first) / width
    return FakeQuantGrid(step, lowest, highest, inverse)


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


_NEAR = 1e-3  # of a step: rounding error of a multiple in float32
_MOST_CLIPPED = 0.3
"""Share of codes of 128 in channels with several. Saturated channels have about 0.5 (45 dB)."""
_INT8 = np.iinfo(np.int8)


@dataclass(frozen=True)
class StatedWeights:
    """The weight codes that a graph's fake-quants define."""

    codes: Sequence[Array]
    """int16 arrays, -128 to 128, in the shape in which a node that is not constant reads them."""
    refused: Mapping[str, str]
    """Reason for each fake-quant of weights that remains in the graph, and for each layer if its
    weights match no codes."""


def take_weights(graph: Graph) -> StatedWeights:
    """Replace the fake-quants of constants by their results; return the codes of weights."""
    refused: dict[str, str] = {}
    values, steps, others = dict[str, Array](), dict[str, Array](), dict[str, Array]()
    layers = _layers_of(graph)
    for node in graph:
        if node.op not in OPS or graph.is_output(node.name) or graph.is_input(node.name):
            continue
        const = graph.constant(node.data_inputs[0])
        if const is None:
            continue
        if node.name not in layers:  # such as a bias, which has no codes
            if (result := _rounded_constant(graph, node, const.value)) is not None:
                others[node.name] = result
        elif isinstance(rounded := _rounded(graph, node, const.value), str):
            refused[node.name] = rounded
        else:
            values[node.name], steps[node.name] = rounded
    rounded_graph, scaled = (_with_constants(graph, each) for each in (values, steps))
    codes, scales = _codes(rounded_graph, scaled, values), Constants(scaled, PURE_OPS)
    for name, step in steps.items():
        for layer in layers[name]:
            refused[layer] = _mismatch(graph[layer], name, step, scales)
    for name, value in (values | others).items():
        const = Node.constant(name, value, device=graph[name].device)
        graph.absorb([graph[name]], into=const)
    return StatedWeights(codes, refused)


def _mismatch(layer: Node, name: str, step: Array, scales: Constants) -> str:
    """Return the reason for a layer whose weights match no codes.

    `step` is the step of each element behind the fake-quant `name`; `scales` computes the steps
    that the layer reads.
    """
    read = normal(layer.data_inputs[WEIGHTS])
    found = scales.values([read]).get(read) if np.ptp(step) else None
    if found is not None:
        axes = tuple(axis for axis in range(found.ndim) if axis not in channel_axes(layer))
        if np.ptp(found, axis=axes).any():
            return (f"fake-quant '{name}' gives its weights several steps in one output channel, "
                    "int8 kernels take one")  # fmt: skip
    return f"its weights are not multiples of one step per output channel of fake-quant '{name}'"


def _layers_of(graph: Graph) -> dict[str, list[str]]:
    """Return the layers whose constant weights each fake-quant contributes to."""
    result = defaultdict[str, list[str]](list)
    fed = graph.descendants(map(producer_name, graph.inputs), control=False)
    for layer in graph:
        if layer.op in LAYER_OPS and (made := producer_name(layer.data_inputs[WEIGHTS])) not in fed:
            for name in graph.ancestors([made]):
                if graph[name].op in OPS:
                    result[name].append(layer.name)
    return dict(result)


def _rounded_constant(graph: Graph, node: Node, value: Array) -> Array | None:
    """Return a fake-quant's result for a constant; None if its range is not known or not valid."""
    ends = _ends(graph, node)
    if ends is None or not np.isfinite(ends).all():
        return None
    low, high = ends
    if not ((low < high) | ((low == 0) & (high == 0))).all():
        return None
    grid = _grid(node, low, high)
    if (grid.step < np.finfo(np.float32).tiny).any():
        return None
    return (grid.multiples(value) * grid.step).astype(np.float32)


def match_codes(layer: Node, weights: Array, stated: Iterable[Array]) -> tuple[Array, Array] | None:
    """Return the codes of a layer's weights, -128 to 128, and float32 steps [output channels].

    None: the weights are no codes times a factor per output channel. Codes of channels with a
    negative factor change their sign.
    """
    axes = tuple(axis for axis in range(weights.ndim) if axis not in channel_axes(layer))
    exact = weights.astype(np.float64)
    for codes in stated:
        for form in _shaped(codes, weights.shape):
            factors = _factors(exact, form, axes)
            error = np.abs(exact - form * factors)
            if (error > _NEAR * np.abs(factors)).any():
                continue
            steps = np.abs(factors).astype(np.float32)
            signed = form * np.where(steps > 0, np.sign(factors), 0)  # a gamma of 0 gives zeros
            steps[steps == 0] = 1
            return signed.astype(np.int16), steps.reshape(-1)
    return None


def int8_codes(layer: Node, codes: Array) -> tuple[Array, int] | str:
    """Return a layer's codes with 128 clipped to 127, and the number of these; or a reason.

    A range from the negative to the positive peak of a channel gives the peak alone a code of 128.
    More such codes in a channel mean that the range is smaller than its weights. The more of them,
    the more is lost, as all errors have one sign.
    """
    clipped = codes > _INT8.max
    axes = tuple(axis for axis in range(codes.ndim) if axis not in channel_axes(layer))
    is_saturated = np.broadcast_to(clipped.sum(axes, keepdims=True) > 1, codes.shape)
    share = clipped[is_saturated].mean() if is_saturated.any() else 0.0
    if share > _MOST_CLIPPED:
        return (f"{100 * share:.0f} % of the weights in output channels that its fake-quant "
                f"saturates have the code 128, int8 kernels take at most {_INT8.max}")  # fmt: skip
    return np.minimum(codes, _INT8.max).astype(np.int8), int(clipped.sum())


def _rounded(graph: Graph, node: Node, value: Array) -> tuple[Array, Array] | str:
    """Return a fake-quant's result for a constant and the step of each element, or a reason."""
    grid = grid_of(graph, node)
    if isinstance(grid, str):
        return grid
    codes = grid.multiples(value)
    low, high = codes.min(initial=0), codes.max(initial=0)
    # The ends of a symmetric range are 127.5 steps from zero: float32 decides which of them is 128.
    if low < _INT8.min or high > -_INT8.min:
        return (f"the weights of fake-quant '{node.name}' have codes {low:g} to {high:g} about "
                "zero, int8 kernels take -128 to 127")  # fmt: skip
    step = np.broadcast_to(grid.step, value.shape)
    return (codes * step).astype(np.float32), np.ascontiguousarray(step)


def _with_constants(graph: Graph, values: Mapping[str, Array]) -> Graph:
    work = graph.copy()
    for name, value in values.items():
        work.replace(work[name], Node.constant(name, value, device=work[name].device))
    return work


def _codes(rounded: Graph, steps: Graph, used: Iterable[str]) -> list[Array]:
    """Return the codes of all constants that are computed from fake-quants and read by other nodes.

    Ops between a fake-quant and its reader may move the weights (Reshape, Transpose).
    """
    constants, scales = Constants(rounded, PURE_OPS), Constants(steps, PURE_OPS)
    made = rounded.descendants(used, control=False)
    read = dict.fromkeys(
        tensor
        for node in rounded
        if node.name not in constants
        for tensor in node.data_inputs
        if producer_name(tensor) in made and producer_name(tensor) in constants
    )
    values, apart = constants.values(read), scales.values(read)
    results = []
    for tensor in values.keys() & apart.keys():
        nothing = (values[tensor] == 0) & (apart[tensor] == 0)  # a mask behind the fake-quant
        with np.errstate(all="ignore"):
            multiples = np.where(nothing, 0, values[tensor] / apart[tensor])
        codes = np.rint(multiples)
        if np.isfinite(codes).all() and (np.abs(multiples - codes) < _NEAR).all():
            results.append(codes.astype(np.int16))
    return results


def _shaped(codes: Array, shape: tuple[int, ...]) -> list[Array]:
    """Return codes in the shape of the weights: reshaped, and for a matrix also transposed."""
    if codes.size != int(np.prod(shape)):
        return []
    plain = codes.astype(np.float64)
    forms = [plain.reshape(shape)]
    if len(shape) == 2:
        forms.append(plain.reshape(shape[::-1]).T)
    return forms


def _factors(weights: Array, codes: Array, axes: tuple[int, ...]) -> Array:
    """Return the best-fitting factor of each output channel, broadcastable against the codes."""
    squares = (codes * codes).sum(axes, keepdims=True)
    products = (weights * codes).sum(axes, keepdims=True)
    factors: Array = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    return factors
