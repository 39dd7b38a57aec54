"""8-bit codes and their ranges can replace the weights of layers and the rows of tables.

The transform limits the error in the results of the readers. A layer sums products, y_c = sum_i
W_ic x_i. The inputs x_i are assumed independent with unit variance, and the codes represent V
instead of W. Then the signal of output channel c is sum_i W_ic^2, and its noise is
sum_i (V_ic - W_ic)^2. The sums run over all axes of W except those of output channels: the last of
a convolution, the first of a transposed MatMul, those that the result of an Einsum keeps. A
lookup returns rows of a table unchanged, so each row is a channel. The worst channel decides.
"""

import itertools
import logging
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.quantized_ops import TINY, min_first
from deploykit.transforms.int8.ranges import TensorRange, load_ranges
from deploykit.transforms.int8.weights import OPS, add_to_bias
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal
from deploykit.transforms.ir.ops import output_types
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.affine import BATCH_NORM_OPS, mean_output
from deploykit.transforms.layers.constant_readers import Axes, Reading, Readings
from deploykit.transforms.layers.fused_ops import Chain, chain
from deploykit.transforms.layers.layers import FLOATS

logger = logging.getLogger("deploykit")

MIN_DECIBELS = 30.0
MIN_VALUES_PER_RANGE = 4  # a range takes 8 bytes; with fewer values it would exceed the saving

# Lookups return rows unchanged; steep ops and divisions amplify errors; others round.
LOOKUP_OPS = frozenset({"Gather", "GatherNd", "GatherV2"})
STEEP_OPS = frozenset({"Inv", "Log", "Pow", "Reciprocal", "Rsqrt", "Sqrt"})
DIVISIONS = frozenset({"Div", "DivNoNan", "FloorDiv", "RealDiv"})
INEXACT = FLOATS | {"resource", "variant"}  # such as a list of tensors
ROUNDING_OPS = frozenset({"Ceil", "Floor", "Rint", "Round", "Sign"})

Uses = list[tuple[Reading, Axes]]  # readers of a constant, and the channels of each
Shifts = list[tuple[Chain, Array]]  # corrections for the biases of layers, one value per channel


def quantize_weights(
    graph: Graph,
    *,
    minimum_size: int = 1024,
    per_channel: bool = True,
    skip: tuple[str, ...] = (),
    keep_sums: bool = False,
    ranges: str = "",
) -> None:
    """Store large weights and tables as 8-bit codes: a quarter of the file size, no speedup.

    It quantizes float32 constants that are weights of layers (convolutions, matrix products,
    recurrent cells) or lookup tables. They may be in loops, branches and functions, or before a
    Reshape or Transpose. Each becomes a Const of codes and a Dequantize under its name. Constants
    with any other role are kept in float32: biases, batch norms, scales, masks, added positions. So
    are, with a warning, weights of which an output channel or a row would have less than 30 dB for
    a reader: sum of W^2 divided by sum of error^2. GraphError: a layer's weights contain NaN or
    Inf, or `skip` names an unknown node.

    Args:
        minimum_size: constants with fewer elements are not quantized.
        per_channel: one range for each output channel of the layer (of a table: for each row);
            false writes one range per constant, as the Graph Transform Tool does, less accurate.
        skip: name of a constant to keep in float32; may be given several times.
        keep_sums: round some weights of an output channel the other way, those nearest to the
            middle, so that the errors of each channel sum to about zero, and constant inputs give
            the same result.
        ranges: the file that `deploykit calibrate` wrote for this graph; its means correct the
            biases of convolutions and matrix products for the average shift by rounding.
    """
    means = load_ranges(ranges).tensors if ranges else {}
    shifts: Shifts = []
    listed = {graph[name].name for name in skip}
    readings = Readings(graph)
    for node in graph:
        if node.op != "Const" or node.attr("dtype") not in FLOATS:
            continue
        if math.prod(node.shape) < max(minimum_size, 1):
            continue
        result = readings.of(node)
        channels = [reading.channels(node.shape) for reading in result]
        uses = [(r, axes) for r, axes in zip(result, channels, strict=True) if axes is not None]
        others = [r for r, axes in zip(result, channels, strict=True) if axes is None]
        reason = "it is listed in skip" if node.name in listed else None
        reason = reason or _reason(graph, node, readings, uses, others)
        if not graph.skip(node, reason) and uses:
            coded = _coded_well(graph, node, uses, per_channel, keep_sums)
            if coded is not None:
                shifts += _shifts(graph, coded.error, uses, means)
                _rewrite(graph, node, coded)
    for layer, values in shifts:  # last, as readings refer to the layers before the change
        add_to_bias(graph, layer, values)


def _shifts(graph: Graph, error: Array, uses: Uses, means: Mapping[str, TensorRange]) -> Shifts:
    """Return the corrections of the biases for weight errors, where the means are known.

    They have the opposite sign of the shifts.
    """
    shifts: Shifts = []
    for reading, _ in uses:
        layer = reading.reader
        if layer.op not in OPS or reading.spot.caller or reading.is_moved or reading.place != 1:
            continue
        seen = means.get(normal(layer.data_inputs[0]))
        if seen is not None and not graph.is_input(layer.name):
            values = mean_output(layer, error, np.array(seen.channel_mean))
            if values is not None:
                shifts.append((chain(graph, layer), -values))
    return shifts


def _reason(
    graph: Graph, node: Node, readings: Readings, uses: Uses, others: list[Reading]
) -> str | None:
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if any(reading.is_fetched for reading in others):
        return "it is an output of the graph"
    if node.attr("dtype") != "float32":
        return f"it has type {node.attr('dtype')}, and only float32 is quantized"
    if others:
        reader = others[0].reader
        return f"'{reader.name}' ({reader.op}) reads it neither as weights nor as a table"
    lookups = [reading for reading, _ in uses if reading.reader.op in LOOKUP_OPS]
    for behind in readings.of_rows(lookups):
        if _needs_exact_values(behind.reader, behind.place):
            name = behind.reader.name
            return f"'{name}' ({behind.reader.op}) needs the exact values of its rows"
    return None


def _needs_exact_values(reader: Node, place: int) -> bool:
    """Return whether an op returns integers or booleans, or amplifies small errors of an input."""
    if reader.op in BATCH_NORM_OPS | DIVISIONS:
        return place > 0
    if reader.op in ROUNDING_OPS | STEEP_OPS or "uant" in reader.op:  # QuantizeV2, FakeQuant...
        return True
    types = None if place < 0 else output_types(reader)
    return types is not None and not any(t in INEXACT or t.startswith("complex") for t in types)


def _coded_well(
    graph: Graph, node: Node, uses: Uses, per_channel: bool, keep_sums: bool
) -> "_Coded | None":
    """Return a Const in codes, or None if the error is too large for one of its readers."""
    weights = node.value
    if not np.isfinite([weights.min(), weights.max()]).all():
        hint = f". Skip it with quantize_weights(skip={node.name})"
        raise GraphError("weights-nan", node=node.name, hint=hint)
    if weights.min() == weights.max():
        graph.replace(node, node.with_attrs(value=weights))
        graph.skip(node, "all its values are equal, so that one of them is stored")
        return None
    uses = list({(reading.spot.moves, axes): (reading, axes) for reading, axes in uses}.values())
    ranges = _ranges(weights.shape, uses) if per_channel else [()]
    keep_sums &= all(reading.reader.op not in LOOKUP_OPS for reading, _ in uses)
    coded = max(
        (_coded(weights, axes, uses, per_channel, keep_sums) for axes in ranges),
        key=lambda coded: coded.decibels,
    )
    if coded.decibels < MIN_DECIBELS:
        stays = per_channel or not np.isfinite(coded.error).all()
        reason = f"int8 keeps only {coded.decibels:.1f} dB of channel {coded.channel}"
        if weights.ndim > 1:
            end = "it is kept in float32" if stays else "per_channel=true keeps more"
            logger.warning("node '%s': %s (%s)", node.name, reason, end)
        if stays:
            graph.skip(node, reason)
            return None
    return coded


class _Coded(NamedTuple):
    """Codes, the axes of their ranges, and the worst channel with its SQNR in dB."""

    axes: Axes
    codes: Array
    low: Array
    high: Array
    decibels: float
    channel: int
    error: Array


def _coded(weights: Array, axes: Axes, uses: Uses, per_channel: bool, keep_sums: bool) -> _Coded:
    view = weights.reshape(_extent(weights.shape, axes))
    with np.errstate(all="ignore"):  # overflow appears in the worst channel
        codes, low, high, noise = _symmetric(view, keep_sums) if per_channel else min_first(view)
        noise -= view
        noise = noise.reshape(weights.shape)
        worst = min(_worst_channel(r.moved(weights), r.moved(noise), axes) for r, axes in uses)
    return _Coded(axes, codes, low, high, *worst, noise)


def _ranges(shape: tuple[int, ...], uses: Uses) -> list[Axes]:
    """Return the adjacent axes of a Const that ranges may have, for any of its readers."""
    results: dict[Axes, None] = {}
    for reading, axes in uses:
        if reading.is_moved:
            axes = _axes_before(reading, axes, shape)
        starts = [i for i, axis in enumerate(axes) if axis - 1 not in axes]
        for start, end in itertools.pairwise([*starts, len(axes)]):
            few = math.prod(shape) < MIN_VALUES_PER_RANGE * _extent(shape, axes[start:end])[1]
            results[() if few else axes[start:end]] = None
    return list(results) or [()]


def _axes_before(reading: Reading, axes: Axes, shape: tuple[int, ...]) -> Axes:
    """Return the axes of a Const that index the channels of the value that a reader gets."""
    places = reading.moved(np.arange(math.prod(shape)).reshape(shape))
    channels = math.prod(places.shape[axis] for axis in axes)
    places = np.moveaxis(places, axes, range(len(axes))).reshape(channels, -1)
    results = []
    for axis, size in enumerate(shape):
        indices = places // math.prod(shape[axis + 1 :]) % size
        if size > 1 and (indices == indices[:, :1]).all():
            results.append(axis)
    return tuple(results)


def _extent(shape: tuple[int, ...], axes: Axes) -> tuple[int, int, int]:
    """Return a shape as three sizes: before the channels, channels, after them."""
    first, end = (axes[0], axes[-1] + 1) if axes else (0, 0)
    return math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:])


def _symmetric(weights: Array, keep_sums: bool = False) -> tuple[Array, Array, Array, Array]:
    """Return codes -127...127, ranges and restored values; each [:, channel] has its own range."""
    peak = np.maximum(weights.max((0, 2)), -weights.min((0, 2)))
    step = peak / np.float32(127)
    step[step < TINY] = 0
    steps = np.divide(weights, np.where(step, step, 1)[:, None], dtype=np.float64)
    codes = np.rint(steps).astype(np.int8)
    if keep_sums:
        _keep_sums(codes, steps)
    del steps  # it is twice as large as the weights
    return codes, -peak, peak, codes * step[:, None]


def _keep_sums(codes: Array, steps: Array) -> None:
    """Change codes by one, nearest to the middle first, so that errors [:, channel] sum to zero.

    The number of changes is about the sum of the errors in steps.
    """
    for channel in range(codes.shape[1]):
        own = codes[:, channel]
        error = own - steps[:, channel]
        turns = round(float(-error.sum()))
        if turns:
            way = 1 if turns > 0 else -1
            cost = np.where(np.abs(own) < 127, way * error, np.inf).reshape(-1)
            turned = np.argpartition(cost, abs(turns) - 1)[: abs(turns)]
            own[np.unravel_index(turned, own.shape)] += way


def _worst_channel(weights: Array, noise: Array, axes: Axes) -> tuple[float, int]:
    """Return the lowest SQNR of a channel along these axes, in dB, and its index."""
    every = list(range(weights.ndim))
    signal, rest = (
        np.einsum(part, every, part, every, list(axes), dtype=np.float64).reshape(-1)
        for part in (weights, noise)
    )
    decibels = np.where(rest == 0, np.inf, 10 * np.log10(signal / rest))
    decibels[np.isnan(decibels)] = -np.inf
    return float(decibels.min()), int(decibels.argmin())


def _rewrite(graph: Graph, node: Node, coded: _Coded) -> None:
    """Replace a Const by a Dequantize, with a Reshape if its channels span two axes."""

    def add(part: str, array: Array, dtype: str | None = None) -> str:
        return graph.constant_beside(node, array, f"{node.name}_{part}", dtype).name

    axes, codes, low, high = coded[:4]
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
        new = graph.add_copy(new, f"{node.name}_dequantized")
        target = add("shape", np.array(shape, np.int32))
        types = {"T": DType("float32"), "Tshape": DType("int32")}
        new = Node(node.name, "Reshape", (new.name, target), {}, node.device).with_attrs(**types)
    graph.replace(node, new)
