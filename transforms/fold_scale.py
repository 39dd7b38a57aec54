"""A scale and shift before a layer can be part of the layer's weights and bias."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.fold_batch_norms import fold_steps
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.pattern import Op, needed_elsewhere
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import ARITHMETIC_OPS, BIAS_OPS, Affine, read_step
from deploykit.transforms.layers.layers import (
    LAYER_OPS,
    bias_add,
    channel_axes,
    channels_first,
    scaled,
    weights_of,
    with_weights,
)
from deploykit.transforms.layers.padding import zeros_around
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.shapes.static_shapes import static_shapes

LAYER = Op("Conv2D|Conv3D|DepthwiseConv2dNative|MatMul", name="layer")


def fold_scale(graph: Graph) -> None:
    """Fold constant scales and shifts into the layer before them, or else into the one after them.

    After a layer, it folds what fold_batch_norms does, and scales by a single number. Before a
    layer, as in the normalization of an image, a scale per channel always folds. A shift folds only
    if the layer does not pad its input with zeros; otherwise it remains as one Add.
    """
    fold_steps(graph, ARITHMETIC_OPS | BIAS_OPS, scalars=True)
    _fold_before(graph)
    fold_steps(graph, ARITHMETIC_OPS | BIAS_OPS, scalars=True)


@dataclass(frozen=True)
class _StepsBefore:
    """The steps before a layer, last one first, their input tensor, and their combined effect."""

    layer: Node
    weights: Node
    steps: tuple[Node, ...]
    source: str
    affine: Affine
    has_vector: bool
    """Whether the constant of a step has dimensions, so it could broadcast its input."""


def _fold_before(graph: Graph) -> None:
    constants = Constants(graph)
    chains = [
        chain
        for match in graph.match(LAYER)
        if (chain := _chain(graph, constants, match["layer"])) is not None
    ]
    shapes = static_shapes(graph, {chain.source for chain in chains if chain.has_vector})
    for chain in chains:
        layer, shape = chain.layer, shapes.get(chain.source)
        channels, axis = chain.weights.shape[_input_axis(layer)], 1 if channels_first(layer) else -1
        is_known = shape is not None and len(shape) == LAYER_OPS[layer.op]
        if chain.has_vector and not (shape and is_known and shape[axis] == channels):
            graph.skip(layer, f"'{chain.source}' is not known to have {channels} channels")
            continue
        graph.skip(layer, _fold(graph, chain))


def _input_axis(layer: Node) -> int:
    return LAYER_OPS[layer.op] - 2 if layer.op != "MatMul" else 1 - channel_axes(layer)[0]


def _chain(graph: Graph, constants: Constants, layer: Node) -> _StepsBefore | None:
    """Return the layer with the affine steps that only it reads, or None if there are none."""
    weights = weights_of(graph, layer)
    if weights is None or graph.is_input(layer.name) or layer.attr("transpose_a", False):
        return None
    channels = weights.shape[_input_axis(layer)]
    steps: list[Node] = []
    affine, source, reader, has_vector = Affine(), layer.data_inputs[0], layer, False
    while True:
        step, port = graph.producer(source), split(source)[1]
        operands = [t for t in step.data_inputs if producer_name(t) not in constants]
        if step.op not in ARITHMETIC_OPS or port != 0 or len(operands) != 1:
            break
        if needed_elsewhere(graph, [step, reader]):
            break
        result = read_step(constants, layer, channels, step, operands[0], scalars=True)
        if isinstance(result, str) or not result.finite:
            break
        others = [constants.value(t) for t in step.data_inputs if t != operands[0]]
        has_vector |= any(value is not None and value.ndim > 0 for value in others)
        affine, source, reader = result.then(affine), operands[0], step
        steps.append(step)
    if not steps:
        return None
    return _StepsBefore(layer, weights, tuple(steps), source, affine, has_vector)


def _fold(graph: Graph, chain: _StepsBefore) -> str:
    """Fold a chain into its layer, or return why it is not folded."""
    layer, affine, source = chain.layer, chain.affine, chain.source
    weights = chain.weights.value
    bias, shift = None, None
    if affine.offset is not None and _sets_no_zeros(layer, weights.shape):
        bias = _sum_of_windows(layer, weights, affine.offset)
    elif affine.offset is not None:
        if affine.scale is None or len(chain.steps) < 2 or not affine.scale.all():
            return f"it sets zeros around its input, which '{chain.steps[0].name}' shifts"
        shift = (affine.offset / affine.scale).astype(weights.dtype)
    if affine.scale is not None:
        along = [-1 if axis == _input_axis(layer) else 1 for axis in range(weights.ndim)]
        weights = scaled(weights, affine.scale.reshape(along))
    if not all(np.isfinite(value).all() for value in (weights, bias, shift) if value is not None):
        return "the folded weights would not be finite"
    nodes = [*reversed(chain.steps), layer]
    if affine.scale is not None:
        layer = with_weights(graph, layer, chain.weights, weights)
    if shift is not None:
        source, nodes = _shifted(graph, chain, shift), [chain.layer]
    layer = layer.with_data_inputs(source, *layer.data_inputs[1:])
    if bias is not None:
        inner = graph.add_copy(layer, f"{layer.name}/scaled")
        layer = bias_add(graph, layer.name, inner, bias)
    graph.absorb(nodes, into=layer)
    return ""


def _sets_no_zeros(layer: Node, kernel: tuple[int, ...]) -> bool:
    if layer.op == "MatMul":
        return True
    zeros = zeros_around(layer, kernel)
    return zeros is not None and not any(map(any, zeros.values()))


def _sum_of_windows(layer: Node, weights: Array, values: Array) -> Array:
    """Return each output channel for an input that has one constant value per channel."""
    axes = "abcde"[: weights.ndim]
    made = "".join(axes[axis] for axis in channel_axes(layer))
    sums: Array = np.einsum(
        f"{axes},{axes[_input_axis(layer)]}->{made}", weights.astype(float), values
    )
    return sums.reshape(-1).astype(weights.dtype)


def _shifted(graph: Graph, chain: _StepsBefore, shift: Array) -> str:
    """Replace the last step by one Add, and return its name."""
    last = chain.steps[0]
    if (shift == shift[0]).all():
        shift = shift[:1].reshape(())
    elif channels_first(chain.layer):
        shift = shift.reshape(-1, *[1] * (LAYER_OPS[chain.layer.op] - 2))
    const = graph.constant_beside(last, shift, f"{last.name}/shift")
    add = Node(last.name, "AddV2", (chain.source, const.name), device=last.device)
    graph.absorb(chain.steps[::-1], into=add.with_attrs(T=last.attrs["T"]))
    return last.name
