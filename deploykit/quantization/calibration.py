"""Runs a model on representative samples and records the ranges of its tensors, clipped where
that loses less.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

from deploykit.importers.open_model import OpenedModel
from deploykit.rendering.templates import listed
from deploykit.storage.resume_file import digest
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.convert_layout import ELEMENTWISE_OPS, PAD_OPS
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir.control_flow import conditional_depths
from deploykit.transforms.ir.functions import reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, producer_name, tensor_name
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS, channels_first
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.samples import Dataset, samples_in

BINS = 2048  # eight a level
_STRIDE = 16  # bins between two ends that are tried: 128 a side
_STEPS = 255


def least_error_range(counts: Array, low: float, high: float) -> tuple[float, float]:
    """Return the range within [low, high] of least mean squared error.

    `counts` says how many values lie in each of BINS equal parts. Zero stays inside a range that
    holds it.
    """
    edges = np.linspace(low, high, len(counts) + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    counts = counts.astype(np.float64)
    powers = [counts, counts * centers, counts * centers**2]
    # Values below each edge: how many, their sum, the sum of their squares.
    number, total, squares = (np.concatenate([[0.0], np.cumsum(p)]) for p in powers)
    tried = np.arange(0, len(edges), _STRIDE)
    lows = tried[edges[tried] <= 0] if low < 0 else tried[:1]
    highs = tried[edges[tried] >= 0] if high > 0 else tried[-1:]
    below, above = edges[lows], edges[highs]
    cut_below = below**2 * number[lows] - 2 * below * total[lows] + squares[lows]
    cut_above = (
        above**2 * (number[-1] - number[highs])
        - 2 * above * (total[-1] - total[highs])
        + (squares[-1] - squares[highs])
    )
    # 8 bits must hold zero exactly, so a range that lacks it is widened to it.
    step = (np.maximum(above, 0) - np.minimum(below, 0)[:, np.newaxis]) / _STEPS
    zeros = counts[np.clip(np.searchsorted(edges, 0, "right") - 1, 0, len(counts) - 1)]
    inside = number[highs] - number[lows][:, np.newaxis] - (zeros if low <= 0 <= high else 0)
    errors = inside * step**2 / 12 + cut_below[:, np.newaxis] + cut_above
    errors[step <= 0] = np.inf
    at = np.unravel_index(np.argmin(errors), errors.shape)
    return float(below[at[0]]), float(above[at[1]])


RangeMethod = Literal["minmax", "mse"]
WIDEST = 5  # tensors that are shown
NAMED = 3  # in a note

# Their result has its channels where their input has them.
_FOLLOWING_OPS = ELEMENTWISE_OPS | PAD_OPS | {"Concat", "ConcatV2"}


@dataclass(frozen=True)
class Calibration(AsHtml):
    """What a calibration found, and what a reader should know of it."""

    ranges: Hidden[Ranges]
    method: str
    seconds: Annotated[float, Written("calibration_seconds", digits=4)]
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """What was run."""
    bytes: Hidden[int | None] = None
    """Of the file that was written."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    @property
    @written(flat=True)
    def _ranges(self) -> dict[str, Any]:
        return {
            "samples": self.ranges.samples,
            "tensors": len(self.ranges.tensors),
            "widest": [{"tensor": n, "min": item.min, "max": item.max} for n, item in self.widest],
        }

    @property
    def widest(self) -> list[tuple[str, TensorRange]]:
        """The tensors with the widest ranges."""
        by_width = sorted(self.ranges.tensors.items(), key=lambda item: item[1].min - item[1].max)
        return by_width[:WIDEST]


@dataclass(frozen=True)
class KnownRanges:
    """A calibration that a later step may take instead of one of its own."""

    graph_sha256: str
    """Of the graph that was run."""
    calibration: Calibration

    def of(self, graph: Graph) -> Calibration | None:
        """Return the calibration if it is of this very graph."""
        return self.calibration if digest(graph.serialized()) == self.graph_sha256 else None


def calibrate(
    graph: Graph,
    feeds: Iterable[Mapping[str, Array]],
    *,
    method: RangeMethod = "minmax",
    model_sha256: str = "",
    advance: Callable[[str, int], None] = lambda name, count: None,
) -> Calibration:
    """Run a frozen graph on feeds and return the range of each of its float32 tensors.

    Observed is every tensor of two axes or more that depends on an input and that an output needs;
    not what lies within loops, branches or functions.

    Args:
        graph: what is run.
        feeds: arrays by input name, batch by batch; of equal size or not.
        method: minmax takes the smallest and the largest value; mse the range within these on which
            rounding to 8 bits has the least mean squared error.
        model_sha256: of the model's files, for the ranges to say what they belong to.
        advance: called before each batch with what is done and how many steps there are.

    GraphError: there is no such tensor or no sample, an activation holds NaN or Inf, or TensorFlow
    cannot run the graph.
    """
    (result,) = _observed_in(graph, [feeds], (), method, advance)
    return replace(result, ranges=replace(result.ranges, model_sha256=model_sha256))


def calibrate_split(
    graph: Graph,
    samples: Dataset,
    *,
    advance: Callable[[str, int], None] = lambda name, count: None,
) -> tuple[Calibration, KnownRanges | None]:
    """Run a graph once on samples; return the ranges of all, and of those that quantizing takes.

    Quantizing holds samples out, so their ranges must not count there. None: the graph demands so
    many samples at once that both parts together would not be all. Errors are those of `calibrate`.
    """
    split, sha256 = samples.split(), digest(graph.serialized())
    if split.order is None:
        result = calibrate(graph, samples.feeds(), advance=advance)
        return result, KnownRanges(sha256, result)
    parts = split.calibrating, split.held_out
    if samples.batch and any(part.count % samples.batch for part in parts):
        return calibrate(graph, samples.feeds(), advance=advance), None
    feeds = [part.feeds() for part in parts]
    known, result = _observed_in(graph, feeds, split.order, "minmax", advance)
    return result, KnownRanges(sha256, known)


def _observed_in(
    graph: Graph,
    parts: Sequence[Iterable[Mapping[str, Array]]],
    order: Sequence[int],
    method: str,
    advance: Callable[[str, int], None],
) -> list[Calibration]:
    """Return what is known after each of several parts of feeds: of it, and of those before it.

    `order` are the numbers of the samples as they come, for messages; empty: 0 and on.
    """
    live = graph.copy()
    live.prune()
    depths = conditional_depths(live)
    tensors = _observed(live, depths)
    if not tensors:
        raise GraphError("calibrate-nothing")
    started = time.perf_counter()
    again = method == "mse"  # the histograms need the whole ranges
    steps = sum(len(part) * (1 + again) for part in parts if isinstance(part, Sequence))
    samples, result = 0, list[tuple[int, dict[str, TensorRange]]]()
    with contextlib.closing(
        Worker(
            "deploykit.quantization.observers:Observer",
            b"".join(live.serialized()),
            tensors,
            frozenset(_with_channels_first(live)),
        )
    ) as worker:
        for feeds in parts:
            for feed in feeds:
                advance("values", steps)
                count = samples_in([feed])
                numbers = order[samples : samples + count] or range(samples, samples + count)
                worker.ask("observe", feed, numbers)
                samples += count
            if not samples:
                raise GraphError("no-samples", purpose="calibrate with")
            for feed in feeds if again else ():
                advance("histograms", steps)
                worker.ask("count", feed)
            result.append((samples, worker.ask("ranges")))
    seconds, left_out = time.perf_counter() - started, _left_out(live, depths)
    return [
        Calibration(Ranges("", count, ranges), method, seconds, (*_idle(ranges), *left_out))
        for count, ranges in result
    ]


def _observed(graph: Graph, depths: Mapping[str, int]) -> list[str]:
    """Return the float32 tensors that depend on an input, in execution order."""
    depends = graph.descendants(map(producer_name, graph.inputs), control=False)
    fed = set(map(normal, graph.inputs))
    results = []
    for name in graph.order():
        node = graph[name]
        if name not in depends or depths[name] or node.op not in op_defs():
            continue
        for port, type_ in enumerate(output_types(node) or ()):
            tensor = tensor_name(name, port)
            is_fed = tensor in fed or not graph.is_input(name)
            if type_ == "float32" and is_fed:
                results.append(tensor)
    return results


def _with_channels_first(graph: Graph) -> set[str]:
    """Return the tensors whose channels lie along axis 1: ops with a data format say so."""
    order = graph.order()
    results = set()
    for name in order:
        node = graph[name]
        inputs = node.data_inputs
        if channels_first(node):
            results |= {tensor_name(name, 0), *inputs[:1]}
        elif node.op in _FOLLOWING_OPS and any(tensor in results for tensor in inputs):
            results.add(tensor_name(name, 0))
    for name in reversed(order):  # what an op with a data format reads, through others
        node = graph[name]
        if node.op in _FOLLOWING_OPS and tensor_name(name, 0) in results:
            results |= set(node.data_inputs)
    return results


def _idle(tensor_ranges: Mapping[str, TensorRange]) -> list[str]:
    """Return notes on tensors that told nothing: always zero, or always the same."""
    same = [name for name, item in tensor_ranges.items() if item.min == item.max]
    zero = [name for name in same if tensor_ranges[name].min == 0]
    other = [name for name in same if tensor_ranges[name].min != 0]
    notes = []
    if zero:
        notes.append(f"never active on these samples: {listed(zero, NAMED)}")
    if other:
        notes.append(f"of one value on these samples: {listed(other, NAMED)}")
    return notes


def _left_out(graph: Graph, depths: Mapping[str, int]) -> list[str]:
    """Return a note on layers that are not observed because of where they lie."""
    layers = [n.name for n in graph if n.op in LAYER_OPS and depths[n.name]]
    used = reachable(graph)
    layers += [
        f"{function.signature.name}/{node.name}"
        for function in graph.library.function
        if function.signature.name in used
        for node in function.node_def
        if node.op in LAYER_OPS
    ]
    if not layers:
        return []
    return [f"layers in loops, branches or functions are left out: {listed(layers, NAMED)}"]
