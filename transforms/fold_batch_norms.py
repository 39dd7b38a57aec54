"""A layer followed by a per-channel scale and shift is that layer with other weights and bias."""

from dataclasses import dataclass

import numpy as np

from transforms.core.affine import (
    ARITHMETIC_OPS,
    BATCH_NORM_OPS,
    BIAS_OPS,
    Affine,
    read_step,
)
from transforms.core.evaluate import Constants
from transforms.core.graph import Graph
from transforms.core.layers import (
    LAYER_OPS,
    WEIGHTS,
    channel_shape,
    channels_first,
    own_weights,
    weights_of,
)
from transforms.core.node import Node, producer_name, split
from transforms.core.pattern import Op
from transforms.core.tensors import Array, numpy_type

LAYER = Op("|".join(LAYER_OPS), name="layer")


def fold_batch_norms(graph: Graph) -> None:
    """Fold batch norms, scales and shifts into the weights and the bias of the layer before them.

    Folds a Mul or division by a constant per output channel, an Add or Sub of such a one or of a
    single number, a BiasAdd, and every form of batch norm in inference mode (FusedBatchNorm v1 to
    V3, BatchNormWithGlobalNormalization, and the single ops that Keras 3 writes) after Conv2D,
    DepthwiseConv2dNative, Conv3D, Conv2DBackpropInput and MatMul. What is left is the layer and at
    most one BiasAdd.
    """
    fold_steps(graph, ARITHMETIC_OPS | BIAS_OPS | BATCH_NORM_OPS)


def foldable(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the layers that a scale per output channel follows, and the steps that would fold."""
    graph = graph.copy()  # which notes what is left alone
    constants = Constants(graph)
    ops = ARITHMETIC_OPS | BIAS_OPS | BATCH_NORM_OPS
    chains = [_chain(graph, constants, match["layer"], ops) for match in graph.match(LAYER)]
    return {
        chain.layer.name: tuple(step.name for step in chain.steps)
        for chain in chains
        if chain is not None and chain.affine.scale is not None
    }


@dataclass(frozen=True)
class _Chain:
    """A layer, the steps after it in order, and what they amount to."""

    layer: Node
    weights: Node
    steps: tuple[Node, ...]
    affine: Affine


def fold_steps(graph: Graph, ops: frozenset[str], needed: frozenset[str] | None = None) -> None:
    """Fold the affine steps with these ops into the layers before them.

    With `needed`, only where one of the steps has one of these ops.
    """
    constants = Constants(graph)
    for match in graph.match(LAYER):
        chain = _chain(graph, constants, match["layer"], ops)
        if chain is None or not chain.steps or [step.op for step in chain.steps] == ["BiasAdd"]:
            continue
        if needed is not None and not any(step.op in needed for step in chain.steps):
            continue
        weights = _scaled_weights(chain)
        if weights is None:
            graph.skip(chain.layer, "the folded weights would not be finite")
            continue
        _rewrite(graph, chain, weights)


def _chain(graph: Graph, constants: Constants, layer: Node, ops: frozenset[str]) -> _Chain | None:
    """Return the layer with the affine steps that only follow it, or None without weights."""
    weights = weights_of(graph, layer)
    if weights is None or graph.is_input(layer.name):
        return None
    channels = int(np.prod(channel_shape(layer, weights.shape)))
    steps: list[Node] = []
    affine, last = Affine(), layer
    while not graph.is_output(last.name):
        readers = graph.readers(last.name)
        if not any(reader.op in ops for reader in readers):
            break
        if len(readers) > 1:
            graph.skip(layer, f"'{last.name}' is read by {len(readers)} nodes")
            break
        step = readers[0]
        kept = "it is fed" if graph.is_input(step.name) else _only_port_0(graph, step)
        found = kept or read_step(constants, layer, channels, step, last.name)
        if isinstance(found, str):
            graph.skip(layer, f"'{step.name}' is not folded: {found}")
            break
        if not found.finite:
            graph.skip(layer, f"'{step.name}' is not folded: it scales or shifts by NaN or Inf")
            break
        steps.append(step)
        affine, last = affine.then(found), step
    return _Chain(layer, weights, tuple(steps), affine)


def _only_port_0(graph: Graph, step: Node) -> str:
    """Return why a batch norm's other outputs keep it, or an empty string."""
    read = {tensor for reader in graph.readers(step.name) for tensor in reader.data_inputs}
    for tensor in (*read, *graph.outputs):
        if producer_name(tensor) == step.name and split(tensor)[1] > 0:
            return f"its output '{tensor}' is read"
    return ""


def _scaled_weights(chain: _Chain) -> Array | None:
    """Return the weights times the scale, computed in float64; None where they overflow."""
    weights = chain.weights.value
    if chain.affine.scale is None:
        return weights
    scale = chain.affine.scale.reshape(channel_shape(chain.layer, weights.shape))
    scaled = np.empty_like(weights)
    with np.errstate(over="ignore"):
        np.multiply(weights, scale, out=scaled, dtype=np.float64, casting="unsafe")  # in pieces
    return None if not np.isfinite(scaled).all() and np.isfinite(weights).all() else scaled


def _rewrite(graph: Graph, chain: _Chain, weights: Array) -> None:
    """Put the folded layer, and a BiasAdd where there is an offset, in the place of the chain."""
    inner = [chain.layer.name, *(step.name for step in chain.steps[:-1])]
    before = [f"^{producer_name(tensor)}" for tensor in chain.layer.data_inputs]
    graph.redirect({f"^{name}": before for name in inner})  # who waited for them waits for these
    layer = graph[chain.layer.name]
    last = graph[chain.steps[-1].name]
    control = [t for name in (*inner[1:], last.name) for t in graph[name].control_inputs]
    if chain.affine.scale is not None:
        layer = _with_weights(graph, layer, chain.weights, weights)
    if chain.affine.offset is None:
        graph.replace(last, layer.with_control_inputs(*control))
        return
    graph.replace(graph[layer.name], layer)
    offset = chain.affine.offset.astype(numpy_type(layer.attr("T")))
    bias = Node.constant(graph.unique_name(f"{layer.name}_bn_offset"), offset, device=layer.device)
    add = Node(last.name, "BiasAdd", (layer.name, graph.add(bias).name), device=layer.device)
    data_format = "NCHW" if channels_first(layer) else "NHWC"
    add = add.with_attrs(T=layer.attr("T"), data_format=data_format)
    graph.replace(last, add.with_control_inputs(*control))


def _with_weights(graph: Graph, layer: Node, old: Node, weights: Array) -> Node:
    """Return the layer with other weights: under the old name, or a Const of its own if shared."""
    new = Node.constant(old.name, weights, old.attr("dtype"), old.device)
    if own_weights(graph, layer):
        graph.replace(graph[old.name], new.with_control_inputs(*old.control_inputs))
        return layer
    new = graph.add(new.with_name(graph.unique_name(f"{layer.name}/weights")))
    inputs = list(layer.inputs)
    inputs[WEIGHTS] = new.name
    return layer.with_inputs(*inputs)
