"""Runs a model on representative samples and records the ranges of its tensors, optionally
clipped for the least error.
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
from deploykit.verification.feeds import samples_in
from deploykit.verification.samples import Dataset

BINS = 2048  # 8 per int8 level
_STRIDE = 16  # bins between two candidate ends: 128 per side
_STEPS = 255


def least_error_range(counts: Array, low: float, high: float) -> tuple[float, float]:
    """Return the range within [low, high] of least mean squared error in int8.

    `counts` is the histogram of the values, [BINS]. A range that contains zero still does.
    """
    edges = np.linspace(low, high, len(counts) + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    counts = counts.astype(np.float64)
    powers = [counts, counts * centers, counts * centers**2]
    # Of the values below each edge: count, sum, sum of squares.
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
    # int8 must represent zero exactly, so a range without zero is widened to it.
    step = (np.maximum(above, 0) - np.minimum(below, 0)[:, np.newaxis]) / _STEPS
    zeros = counts[np.clip(np.searchsorted(edges, 0, "right") - 1, 0, len(counts) - 1)]
    inside = number[highs] - number[lows][:, np.newaxis] - (zeros if low <= 0 <= high else 0)
    errors = inside * step**2 / 12 + cut_below[:, np.newaxis] + cut_above
    errors[step <= 0] = np.inf
    at = np.unravel_index(np.argmin(errors), errors.shape)
    return float(below[at[0]]), float(above[at[1]])


RangeMethod = Literal["minmax", "mse"]
WIDEST = 5  # tensors in the report
NAMED = 3  # names in a note

# Their output has the same channel axis as their input.
_FOLLOWING_OPS = ELEMENTWISE_OPS | PAD_OPS | {"Concat", "ConcatV2"}


@dataclass(frozen=True)
class Calibration(AsHtml):
    """The result of a calibration: ranges of tensors, and notes."""

    ranges: Hidden[Ranges]
    method: str
    seconds: Annotated[float, Written("calibration_seconds", digits=4)]
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """The model that was run."""
    bytes: Hidden[int | None] = None
    """Size of the written file in bytes."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""

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
    """A calibration that a later step may use instead of running one."""

    graph_sha256: str
    """SHA-256 of the graph that was run."""
    calibration: Calibration

    def of(self, graph: Graph) -> Calibration | None:
        """Return the calibration if it is of this graph, else None."""
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

    Tensors of rank 2 or more are observed if they depend on an input and an output needs them.
    Tensors inside loops, branches or functions are not.

    Args:
        graph: the frozen graph to run.
        feeds: arrays by input name, batch by batch; batch sizes may differ.
        method: minmax takes the smallest and the largest value; mse the range within these for
            which rounding to int8 has the least mean squared error.
        model_sha256: SHA-256 of the model's files, stored with the ranges.
        advance: called before each batch with the name of the step and the number of steps.

    GraphError: no tensor can be observed, the feeds are empty, an activation contains NaN or Inf,
    or TensorFlow cannot run the graph.
    """
    (result,) = _observed_in(graph, [feeds], (), method, advance)
    return replace(result, ranges=replace(result.ranges, model_sha256=model_sha256))


def calibrate_split(
    graph: Graph,
    samples: Dataset,
    *,
    advance: Callable[[str, int], None] = lambda name, count: None,
) -> tuple[Calibration, KnownRanges | None]:
    """Run a graph once; return the ranges on all samples, and on the calibration split.

    `quantize` holds samples out, which must not affect its ranges. The second value is None if the
    splits are not multiples of a fixed batch size. Errors are those of `calibrate`.
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
    """Return a calibration after each part of the feeds, on this part and the parts before.

    `order` are the sample numbers in feed order, for messages; empty: 0, 1, ...
    """
    live = graph.copy()
    live.prune()
    depths = conditional_depths(live)
    tensors = _observed(live, depths)
    if not tensors:
        raise GraphError("calibrate-nothing")
    started = time.perf_counter()
    again = method == "mse"  # the histograms need the full ranges first
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
    """Return the tensors whose channels are on axis 1, derived from ops with a data format."""
    order = graph.order()
    results = set()
    for name in order:
        node = graph[name]
        inputs = node.data_inputs
        if channels_first(node):
            results |= {tensor_name(name, 0), *inputs[:1]}
        elif node.op in _FOLLOWING_OPS and any(tensor in results for tensor in inputs):
            results.add(tensor_name(name, 0))
    for name in reversed(order):  # back to the inputs of those ops
        node = graph[name]
        if node.op in _FOLLOWING_OPS and tensor_name(name, 0) in results:
            results |= set(node.data_inputs)
    return results


def _idle(tensor_ranges: Mapping[str, TensorRange]) -> list[str]:
    """Return notes on tensors that are constant on all samples: zero, or another value."""
    same = [name for name, item in tensor_ranges.items() if item.min == item.max]
    kinds = {
        "never active": [name for name in same if tensor_ranges[name].min == 0],
        "constant": [name for name in same if tensor_ranges[name].min != 0],
    }
    return [
        f"{kind} on these samples: {listed(names, NAMED)}" for kind, names in kinds.items() if names
    ]


def _left_out(graph: Graph, depths: Mapping[str, int]) -> list[str]:
    """Return a note on layers in loops, branches or functions, which are not observed."""
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
    return [f"layers in loops, branches or functions are skipped: {listed(layers, NAMED)}"]
