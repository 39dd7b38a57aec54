"""A large float constant is 8-bit codes, and ranges that turn the codes back into floats."""

import logging
import math

import numpy as np

from transforms.core.affine import BIAS_OPS
from transforms.core.eight_bit import TINY, min_first
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.layers import FLOATS, LAYER_OPS, WEIGHTS, channel_axes
from transforms.core.node import Node
from transforms.core.ops import op_defs, output_types
from transforms.core.tensors import Array, DType

logger = logging.getLogger("transforms")

MIN_DECIBELS = 30.0
MIN_VALUES_PER_RANGE = 4  # a range takes 8 bytes; with fewer values it would outweigh what is saved

ROW_OPS = frozenset({"Gather", "GatherNd", "GatherV2", "SparseSegmentMean", "SparseSegmentSum"})
SHAPE_OPS = frozenset({"Rank", "Shape", "ShapeN", "Size"})
ROUNDING_OPS = frozenset({"Ceil", "Floor", "Rint", "Round", "Sign"})

Axes = tuple[int, ...]  # adjacent axes that together number the channels; () for one range in all


def quantize_weights(
    graph: Graph,
    *,
    minimum_size: int = 1024,
    per_channel: bool = True,
    skip: tuple[str, ...] = (),
) -> None:
    """Store large float32 constants in 8 bits: about a quarter of the file, and no gain in time.

    Each becomes a Const of codes and a Dequantize under its name. What would keep less than 30 dB
    of a channel stays float, with a warning, and so do biases, unless there is one range for all.
    GraphError: a layer's weights hold NaN or Inf, or `skip` names no node.

    Args:
        minimum_size: constants with fewer elements stay as they are.
        per_channel: one range for each output channel of the layer (of a table: for each row);
            false writes what the Graph Transform Tool wrote, one range for a constant, less exact.
        skip: the name of a constant that stays float; may be given several times.
    """
    listed = {graph[name].name for name in skip}
    for node in graph:
        if node.op != "Const" or node.attr("dtype") not in FLOATS:
            continue
        if math.prod(node.shape) < max(minimum_size, 1):
            continue
        uses = _uses(graph, node)
        reason = (
            "it is listed in skip"
            if node.name in listed
            else _reason(graph, node, uses, per_channel)
        )
        if reason is not None:
            graph.skip(node, reason)
        elif uses:
            _quantize(graph, node, uses, per_channel)


def _uses(graph: Graph, const: Node) -> list[tuple[Node, int]]:
    """Return who reads a Const, directly or through Identity nodes, and as which input."""
    uses, waiting = [], [const]
    while waiting:
        node = waiting.pop()
        for reader in graph.readers(node.name):
            if reader.op == "Identity" and not graph.is_output(reader.name):
                waiting.append(reader)
            else:
                uses += [(reader, i) for i, t in enumerate(reader.data_inputs) if t == node.name]
    return uses


def _reason(
    graph: Graph, node: Node, uses: list[tuple[Node, int]], per_channel: bool
) -> str | None:
    """Return why a Const has to keep its exact values, or None."""
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if any(graph.is_output(n.name) for n in (node, *(r for r, _ in uses if r.op == "Identity"))):
        return "it is an output of the graph"
    if node.attr("dtype") != "float32":
        return f"it holds {node.attr('dtype')}, and only float32 is quantized"
    if per_channel and any(reader.op in BIAS_OPS for reader, _ in uses):
        return "it is a bias: small, and its error stays in every value of its channel"
    exact = next((reader for reader, _ in uses if _needs_exact_values(reader)), None)
    return None if exact is None else f"'{exact.name}' ({exact.op}) needs its exact values"


def _needs_exact_values(reader: Node) -> bool:
    """Say whether an op makes whole numbers, truth values, ranges or a table of what it reads."""
    if reader.op in ROUNDING_OPS or "uant" in reader.op:  # Dequantize, QuantizeV2, FakeQuant...
        return True
    if reader.op in SHAPE_OPS or reader.op not in op_defs():
        return False
    types = output_types(reader)
    return types is not None and not any(t in FLOATS or t.startswith("complex") for t in types)


def _channels(uses: list[tuple[Node, int]], rank: int) -> list[Axes]:
    """Return the axes that number the channels of a Const for those who read it, layers first.

    A table that is looked up counts by row: the norms of its rows differ far more than those of its
    columns (half the rows of a text classifier kept under 28 dB by column, under 43 dB by row).
    """
    layers = [channel_axes(r) for r, place in uses if r.op in LAYER_OPS and place == WEIGHTS]
    rows = [(0,) for reader, place in uses if reader.op in ROW_OPS and place == 0]
    return [axes for axes in dict.fromkeys([*layers, *rows]) if axes[-1] < rank]


def _quantize(graph: Graph, node: Node, uses: list[tuple[Node, int]], per_channel: bool) -> None:
    """Rewrite a Const whose error stays small on the channels of everybody who reads it."""
    weights = node.value
    channels = _channels(uses, weights.ndim)
    if not np.isfinite([weights.min(), weights.max()]).all():
        if not channels:  # a mask, for instance
            return graph.skip(node, "it holds NaN or Inf")
        hint = f"quantize_weights(skip={node.name}) leaves it as it is"
        raise GraphError(f"node '{node.name}': the weights hold NaN or Inf ({hint})")
    if weights.min() == weights.max():
        graph.replace(node, node.with_attrs(value=weights))
        return graph.skip(node, "all its values are equal, so that one of them is stored")
    channels = channels or [(weights.ndim - 1,) if weights.ndim > 1 else ()]
    few = weights.size < MIN_VALUES_PER_RANGE * _extent(weights.shape, channels[0])[1]
    axes = channels[0] if per_channel and not few else ()
    view = weights.reshape(_extent(weights.shape, axes))
    with np.errstate(all="ignore"):  # what overflows shows in the worst channel
        codes, low, high, noise = _symmetric(view) if per_channel else min_first(view)
        noise -= view
        decibels, channel = min(_worst_channel(weights, noise, axes) for axes in channels)
    if decibels < MIN_DECIBELS:
        stays = per_channel or not np.isfinite(noise).all()
        kept = f"8 bits keep only {decibels:.1f} dB of channel {channel}"
        if weights.ndim > 1:
            end = "it stays float" if stays else "per_channel=true keeps more"
            logger.warning("node '%s': %s (%s)", node.name, kept, end)
        if stays:
            return graph.skip(node, kept)
    return _rewrite(graph, node, axes, codes, low, high)


def _extent(shape: tuple[int, ...], axes: Axes) -> tuple[int, int, int]:
    """Return a shape as three sizes: before the channels, channels, after them."""
    first, end = (axes[0], axes[-1] + 1) if axes else (0, 0)
    return math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:])


def _symmetric(weights: Array) -> tuple[Array, Array, Array, Array]:
    """Return codes -127...127, ranges and restored values; each [:, channel] has its own range."""
    peak = np.maximum(weights.max((0, 2)), -weights.min((0, 2)))
    step = peak / np.float32(127)
    step[step < TINY] = 0
    steps = np.divide(weights, np.where(step, step, 1)[:, None], dtype=np.float64)
    codes = np.rint(steps, out=steps).astype(np.int8)
    del steps  # it is twice as large as the weights
    return codes, -peak, peak, codes * step[:, None]


def _worst_channel(weights: Array, noise: Array, axes: Axes) -> tuple[float, int]:
    """Return the lowest signal-to-noise ratio of a channel along these axes, in dB, and which."""
    parts = [part.reshape(_extent(weights.shape, axes)) for part in (weights, noise)]
    signal, rest = (np.einsum("bca,bca->c", part, part, dtype=np.float64) for part in parts)
    decibels = np.where(rest == 0, np.inf, 10 * np.log10(signal / rest))
    decibels[np.isnan(decibels)] = -np.inf
    return float(decibels.min()), int(decibels.argmin())


def _rewrite(graph: Graph, node: Node, axes: Axes, codes: Array, low: Array, high: Array) -> None:
    """Put a Dequantize in the place of a Const, with a Reshape if its channels span two axes."""

    def add(part: str, array: Array, dtype: str | None = None) -> str:
        name = graph.unique_name(f"{node.name}_{part}")
        const = Node.constant(name, array, dtype, node.device)
        # what the Const waited for is its loop or branch, and all of them belong there
        return graph.add(const.with_control_inputs(*node.control_inputs)).name

    shape = form = node.shape
    attrs: dict[str, object] = {"T": DType("quint8"), "mode": "MIN_FIRST"}
    if codes.dtype == np.int8:
        attrs = {"T": DType("qint8"), "mode": "SCALED", "narrow_range": True}
    if axes:
        attrs["axis"] = axes[0]
        form = (*shape[: axes[0]], low.size, *shape[axes[-1] + 1 :])
    inputs = (
        add("quantized_const", codes.reshape(form), str(attrs["T"])),
        add("quantized_min", low.reshape([low.size] if axes else [])),
        add("quantized_max", high.reshape([high.size] if axes else [])),
    )
    new = Node(node.name, "Dequantize", inputs, {}, node.device).with_attrs(**attrs)
    if form != shape:
        new = graph.add(new.with_name(graph.unique_name(f"{node.name}_dequantized")))
        target = add("shape", np.array(shape, np.int32))
        types = {"T": DType("float32"), "Tshape": DType("int32")}
        new = Node(node.name, "Reshape", (new.name, target), {}, node.device).with_attrs(**types)
    graph.replace(node, new)
