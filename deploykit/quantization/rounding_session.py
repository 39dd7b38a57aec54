"""Rounds layers in a child process, each on the outputs of the int8 layers before it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.int8.gptq import InputMoments
from deploykit.transforms.int8.weights import RoundedLayer, restored, rounded_weights
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import mean_output
from deploykit.transforms.layers.layers import channel_axes
from deploykit.transforms.runtime.session import Session, full_name
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.verification.feeds import samples_in

CONTROL_FLOW = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "RefEnter", "RefExit", "RefMerge",
     "RefNextIteration", "RefSwitch", "Switch"}
)  # fmt: skip
"""Ops whose outputs cannot be stored and fed again."""


@dataclass(frozen=True)
class Segment:
    """The nodes between two layers, which compute the input of the next layer."""

    source: str
    """The input tensor of the next layer."""
    layers: tuple[int, ...]
    """Indexes of earlier layers that run in this segment."""
    stored: tuple[str, ...]
    """Tensors that this segment produces and later segments read."""
    dropped: tuple[str, ...]
    """Stored tensors that no later segment reads."""


def segments(graph: Graph, layers: Sequence[str]) -> list[Segment] | None:
    """Return the segment before each layer, in execution order.

    None: a node that depends on an input is TensorFlow 1 control flow, which cannot be split.
    """
    inputs = {producer_name(input_) for input_ in graph.inputs}
    depends = graph.descendants(inputs)
    if any(graph[name].op in CONTROL_FLOW for name in depends):
        return None
    sources = [normal(graph[layer].data_inputs[0]) for layer in layers]
    place = {layer: number for number, layer in enumerate(layers)}
    ran = _when(graph, sources, depends, inputs)
    last_use = _last_uses(graph, sources, ran)
    stored, dropped = defaultdict(list), defaultdict(list)
    for tensor, number in last_use.items():
        made = ran.get(producer_name(tensor))
        if made is not None and number > made:
            stored[made].append(tensor)
            dropped[number].append(tensor)
    runs = defaultdict(list)
    for name, number in ran.items():
        if name in place:
            runs[number].append(place[name])
    return [
        Segment(source, tuple(runs[number]), tuple(stored[number]), tuple(dropped[number]))
        for number, source in enumerate(sources)
    ]


def _when(
    graph: Graph, sources: Sequence[str], depends: Collection[str], inputs: Collection[str]
) -> dict[str, int]:
    """Return the segment of each node that is on a path from an input to a layer."""
    numbers: dict[str, int] = {}
    for number, source in enumerate(sources):
        waiting = [producer_name(source)]
        while waiting:
            name = waiting.pop()
            if name in numbers or name in inputs or name not in depends:
                continue
            numbers[name] = number
            waiting += map(producer_name, graph[name].inputs)
    return numbers


def _last_uses(graph: Graph, sources: Sequence[str], ran: dict[str, int]) -> dict[str, int]:
    """Return the last segment that reads each tensor."""
    numbers: dict[str, int] = {}
    for name, number in ran.items():
        for tensor in map(normal, graph[name].data_inputs):
            numbers[tensor] = max(number, numbers.get(tensor, 0))
    for number, source in enumerate(sources):
        numbers[source] = max(number, numbers.get(source, 0))
    return numbers


_SPREAD = 0.3  # of the standard deviation between samples: smaller shifts are ignored
MAX_STORED = 1 << 30  # bytes; beyond this, batches are dropped


@dataclass(frozen=True)
class LayerToRound:
    """A layer of a graph in codes, and the tensors that are fed to change its weights and bias."""

    layer: Node
    """The layer in the float32 graph."""
    weights: Array
    """The weights, float32."""
    float_output: str
    """The output tensor with bias in the float32 graph."""
    channel_means: Array
    """Channel means of the layer's input in the float32 graph, float64 [channels]."""
    output: str
    """The output tensor with bias in the graph in codes."""
    weights_tensor: str
    """The weights tensor in the graph in codes."""
    bias_tensor: str
    bias: Array
    """The value of `bias_tensor` for the nearest codes, float32 [output channels]."""
    nearest: Array
    """The weights in the graph in codes, float32; empty if `of_zero` is 0."""
    of_zero: float
    """The offset subtracted from each input value, which the bias compensates."""
    exact_sums: bool
    reads_sign: bool


class RoundingSession:
    """Runs a graph in codes segment by segment. GraphError: TensorFlow refuses the graph."""

    def __init__(
        self,
        codes: bytes,
        floats: bytes,
        feeds: Sequence[Mapping[str, Array]],
        layers: Sequence[LayerToRound],
        segments: Sequence[Segment],
    ) -> None:
        """Run the float32 graph for the mean outputs of layers, and load the graph in codes.

        Args:
            codes: the GraphDef that `quantize_codes` wrote, in which every layer has a bias.
            floats: the float32 GraphDef.
            feeds: arrays by input name, batch by batch.
            layers: the layers, in execution order.
            segments: the segments of the graph in codes, one before each layer.
        """
        self._layers, self._segments = layers, segments
        expected = Session(floats)
        fetches = _means(expected, [layer.float_output for layer in layers])
        self._sizes = [samples_in([feed]) for feed in feeds]
        self._expected = [
            [_by_sample(means, size) for means in expected.run(fetches, feed)]
            for feed, size in zip(feeds, self._sizes, strict=True)
        ]
        """Means of the output channels in the float32 graph, by batch and layer."""
        del expected
        self._session = Session(codes)
        self._outputs = _means(self._session, [layer.output for layer in layers])
        self._batches: list[dict[str, Array]] = [dict(feed) for feed in feeds]
        self._rounded: list[RoundedLayer] = []

    def next_layer(self, known: RoundedLayer | None = None) -> RoundedLayer:
        """Round the next layer on its actual inputs, or use `known`, and return it.

        GraphError: the graph cannot be run.
        """
        number = len(self._rounded)
        layer, segment = self._layers[number], self._segments[number]
        moments = InputMoments.of(layer.layer, layer.weights.shape, len(self._batches))
        read = self._run(segment)
        for values in read if known is None else ():
            moments.add(values)
        result = self._chosen(number, moments, read) if known is None else known
        self._rounded.append(result)
        return result

    def _run(self, segment: Segment) -> list[Array]:
        """Run a segment on all batches; return the inputs of the next layer."""
        fed = dict[str, Array]()
        for number in segment.layers:
            fed |= _fed(self._layers[number], self._rounded[number])
        is_stored = segment.source in self._batches[0]
        fetches = [*segment.stored, *([] if is_stored else [segment.source])]
        arrays: list[Array] = []
        for batch in self._batches:
            made = self._session.run(fetches, batch | fed) if fetches else []
            batch |= dict(zip(segment.stored, made, strict=False))
            arrays.append(batch[segment.source] if is_stored else made[-1])
            for tensor in segment.dropped:
                del batch[tensor]
        self._leave_out()
        return arrays[: len(self._batches)]

    def _leave_out(self) -> None:
        """Drop the last batches while the stored tensors take too much memory."""
        while len(self._batches) > 1:
            stored = sum(array.nbytes for batch in self._batches for array in batch.values())
            if stored <= MAX_STORED:
                return
            self._batches.pop()

    def _chosen(self, number: int, moments: InputMoments, read: Sequence[Array]) -> RoundedLayer:
        """Return codes of least output error, and the bias that preserves the mean output."""
        layer = self._layers[number]
        node, weights, kernel = layer.layer, layer.weights, (layer.exact_sums, layer.reads_sign)
        codes, steps = rounded_weights(node, weights, moments, *kernel)
        lost = mean_output(node, weights - restored(node, codes, steps), layer.channel_means)
        own_bias = np.zeros(len(steps)) if lost is None else lost
        rounded_layer = RoundedLayer(codes, steps, np.zeros(len(steps)), own_bias, *kernel)
        fed = _fed(layer, rounded_layer)
        off = [
            expected[number] - _by_sample(self._output(number, values, fed), size)
            for expected, values, size in zip(self._expected, read, self._sizes, strict=False)
        ]
        finite = [item for item in off if np.isfinite(item).all()]
        if not finite:
            return replace(rounded_layer, bias=own_bias)
        return replace(rounded_layer, bias=_shrunk(np.concatenate(finite), own_bias))

    def _output(self, number: int, read: Array, fed: Mapping[str, Array]) -> Array:
        """Return the mean outputs of a layer for an input, with further tensors fed."""
        source = self._segments[number].source
        given = {source: read, **fed}
        (output,) = self._session.run([self._outputs[number]], given)
        return np.asarray(output)


def _by_sample(means: Array, samples: int) -> Array:
    """Return means [rows, channels] as float64 [samples, channels], or [1, channels].

    The latter is used if the rows are not a multiple of the samples.
    """
    rows = samples if samples and len(means) % samples == 0 else 1
    return np.asarray(means.reshape(rows, -1, means.shape[-1]).mean(1, dtype=np.float64))


def _shrunk(off: Array, own: Array) -> Array:
    """Return the bias correction for mean errors per sample, `off`, float64 [n, channels].

    The shift by earlier int8 layers is corrected as far as samples agree on it; otherwise large
    areas of one color in a few images would affect all others. Source: W. James, C. Stein,
    Estimation with Quadratic Loss, 1961.
    """
    shift = off.mean(0) - own
    spread = off.std(0) * _SPREAD
    safe = np.maximum(shift**2, np.finfo(np.float64).tiny)
    return np.asarray(own + shift * np.maximum(0.0, 1 - spread**2 / safe))


def _fed(layer: LayerToRound, rounded: RoundedLayer) -> dict[str, Array]:
    """Return the weights and the bias of a rounded layer, by tensor of the graph in codes."""
    weights = restored(layer.layer, rounded.codes, rounded.steps)
    bias = layer.bias + rounded.bias
    if layer.of_zero:
        axes = tuple(n for n in range(weights.ndim) if n not in channel_axes(layer.layer))
        sums = (weights - layer.nearest.astype(np.float64)).sum(axes, dtype=np.float64)
        bias = bias + layer.of_zero * sums.reshape(-1)
    return {layer.weights_tensor: weights, layer.bias_tensor: bias.astype(np.float32)}


def _means(session: Session, tensors: Sequence[str]) -> list[str]:
    """Add means over all inner axes to the graph; return the names of tensors [n, channels]."""
    parts = start_tensorflow()
    with session.graph.as_default():
        results = []
        for tensor in tensors:
            value = session.graph.get_tensor_by_name(full_name(tensor))
            axes = parts.math.range(1, parts.arrays.rank(value) - 1)
            results.append(parts.math.reduce_mean(value, axes).name)
    return results
