"""A scale and shift per channel after a layer can be part of the layer's weights and bias."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.pattern import Op
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import (
    ARITHMETIC_OPS,
    BATCH_NORM_OPS,
    BIAS_OPS,
    Affine,
    read_batch_norm,
    read_step,
)
from deploykit.transforms.layers.layers import (
    LAYER_OPS,
    bias_add,
    channel_shape,
    scaled,
    weights_of,
    with_weights,
)
from deploykit.transforms.runtime.constants import Constants
from deploykit.transforms.shapes.sizes import require

LAYER = Op("|".join(LAYER_OPS), name="layer")


def fold_batch_norms(graph: Graph) -> None:
    """Fold batch norms, scales and shifts into the weights and the bias of the layer before them.

    It folds a Mul or division by a constant per output channel, an Add or Sub of such a constant or
    of a single number, and a BiasAdd. It also folds every form of batch norm in inference mode:
    FusedBatchNorm v1 to V3, BatchNormWithGlobalNormalization, and the single ops that Keras 3
    writes. They must follow Conv2D, DepthwiseConv2dNative, Conv3D, Conv2DBackpropInput or MatMul.
    The result is the layer and at most one BiasAdd. A batch norm without a layer before it becomes
    one Mul and one AddV2.
    """
    fold_steps(graph, ARITHMETIC_OPS | BIAS_OPS | BATCH_NORM_OPS)
    constants = Constants(graph)
    for node in graph:
        if node.op in BATCH_NORM_OPS and not graph.is_input(node.name):
            _fold_parameters(graph, constants, node)


def foldable(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the layers before a scale per output channel, and the steps that would be folded."""
    graph = graph.copy()  # the fold records skipped nodes in its graph
    constants = Constants(graph)
    ops = ARITHMETIC_OPS | BIAS_OPS | BATCH_NORM_OPS
    chains = [
        _chain(graph, constants, match["layer"], ops, scalars=False) for match in graph.match(LAYER)
    ]
    return {
        chain.layer.name: tuple(step.name for step in chain.steps)
        for chain in chains
        if chain is not None and chain.affine.scale is not None
    }


@dataclass(frozen=True)
class _StepsAfter:
    """A layer, the steps after it in order, and their combined effect."""

    layer: Node
    weights: Node
    steps: tuple[Node, ...]
    affine: Affine


def fold_steps(
    graph: Graph,
    ops: frozenset[str],
    needed: frozenset[str] | None = None,
    scalars: bool = False,
) -> None:
    """Fold the affine steps with these ops into the layers before them.

    With `needed`, only where one of the steps has one of these ops. With `scalars`, it also folds
    scales by a single number.
    """
    constants = Constants(graph)
    for match in graph.match(LAYER):
        chain = _chain(graph, constants, match["layer"], ops, scalars)
        if chain is None or not chain.steps or [step.op for step in chain.steps] == ["BiasAdd"]:
            continue
        if needed is not None and not any(step.op in needed for step in chain.steps):
            continue
        weights = _scaled_weights(chain)
        if weights is None:
            graph.skip(chain.layer, "the folded weights would not be finite")
            continue
        _rewrite(graph, chain, weights)


def _chain(
    graph: Graph, constants: Constants, layer: Node, ops: frozenset[str], scalars: bool
) -> _StepsAfter | None:
    """Return the layer and the affine steps that follow only it; None: it has no weights."""
    weights = weights_of(graph, layer)
    if weights is None or graph.is_input(layer.name):
        return None
    channels = int(np.prod(channel_shape(layer, weights.shape)))
    steps: list[Node] = []
    affine, last = Affine(), layer
    while True:
        readers = graph.readers(last.name)
        if not any(reader.op in ops for reader in readers):
            break
        if graph.is_output(last.name):
            graph.skip(layer, f"'{last.name}' is an output of the graph")
            break
        if len(readers) > 1:
            graph.skip(layer, f"'{last.name}' is read by {len(readers)} nodes")
            break
        step = readers[0]
        reason = "it is fed" if graph.is_input(step.name) else only_port_0(graph, step)
        result = reason or read_step(constants, layer, channels, step, last.name, scalars)
        if isinstance(result, str) or not result.finite:
            why = result if isinstance(result, str) else "it scales or shifts by NaN or Inf"
            graph.skip(layer, f"'{step.name}' is not folded: {why}")
            break
        steps.append(step)
        affine, last = affine.then(result), step
    return _StepsAfter(layer, weights, tuple(steps), affine)


def only_port_0(graph: Graph, step: Node) -> str:
    """Return why other outputs of a batch norm prevent folding it, or an empty string."""
    read = {tensor for reader in graph.readers(step.name) for tensor in reader.data_inputs}
    for tensor in (*read, *graph.outputs):
        if producer_name(tensor) == step.name and split(tensor)[1] > 0:
            return f"its output '{tensor}' is read"
    return ""


def _scaled_weights(chain: _StepsAfter) -> Array | None:
    """Return the weights times the scale, computed in float64; None: they overflow."""
    weights = chain.weights.value
    if chain.affine.scale is None:
        return weights
    scale = chain.affine.scale.reshape(channel_shape(chain.layer, weights.shape))
    result = scaled(weights, scale)
    return None if not np.isfinite(result).all() and np.isfinite(weights).all() else result


def _rewrite(graph: Graph, chain: _StepsAfter, weights: Array) -> None:
    layer, last = chain.layer, chain.steps[-1].name
    if chain.affine.scale is not None:
        layer = with_weights(graph, layer, chain.weights, weights)
    if chain.affine.offset is None:
        graph.absorb((chain.layer, *chain.steps), into=layer.with_name(last))
        return
    graph.replace(layer, layer)
    graph.absorb(chain.steps, into=bias_add(graph, last, layer, chain.affine.offset))


def _fold_parameters(graph: Graph, constants: Constants, batch_norm: Node) -> None:
    """Replace a batch norm without a foldable layer by `x * scale + offset`."""
    tensor = batch_norm.inputs[0]
    if graph.producer(tensor).op in BIAS_OPS | LAYER_OPS.keys():
        return  # the layer was visited before and has reported the reason
    affine = only_port_0(graph, batch_norm) or read_batch_norm(constants, batch_norm)
    type_ = batch_norm.attr("T")
    if isinstance(affine, str) or type_ != "float32" or not affine.finite:
        why = "it is not computed in float32, or not finite"
        graph.skip(batch_norm, affine if isinstance(affine, str) else why)
        return
    data_format = batch_norm.attr("data_format", "NHWC")
    shape = (-1,) + (1,) * (len(data_format) - 2 if data_format[1] == "C" else 0)
    names = []
    for part, value in (("scale", affine.scale), ("offset", affine.offset)):
        array = require(value).astype(np.float32).reshape(shape)
        name = f"{batch_norm.name}_bn_{part}"
        names.append(graph.constant_beside(batch_norm, array, name).name)
    name, device = f"{batch_norm.name}_scaled", batch_norm.device
    product = graph.put(name, "Mul", tensor, names[0], like=batch_norm, T=type_)
    shifted = Node(batch_norm.name, "AddV2", (product, names[1]), {}, device)
    graph.absorb([batch_norm], into=shifted.with_attrs(T=type_))
