"""Chooses int8 weights and biases layer by layer on samples, within the time budget."""

import base64
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.quantization.rounding_session import LayerToRound, Segment, segments
from deploykit.quantization.search_task import SearchTask
from deploykit.storage.resume_file import State
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import Ranges, load_ranges
from deploykit.transforms.int8.weights import (
    Rounded,
    RoundedLayer,
    add_to_bias,
    restored,
    weight_codes,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.fused_ops import channel_count
from deploykit.transforms.layers.layers import weights_of
from deploykit.transforms.quantize_codes import write_codes
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.samples import Dataset

MAX_SAMPLES = 128  # more hardly change the weights, and the tensors of each are stored
_SAVED = 10  # minimum ratio of working time to saving time


def round_layers(
    graph: Graph,
    feeds: Sequence[Mapping[str, Array]],
    ranges: str,
    *,
    isa: str = "auto",
    keep_float: Iterable[str] = (),
    state: State | None = None,
    advance: Callable[[str, int], None] = lambda name, count: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, RoundedLayer], list[str]]:
    """Return rounded layers by `Chain.biased`, and notes on layers that were not rounded.

    Args:
        graph: the calibrated float32 graph.
        feeds: arrays of the calibration samples by input name, batch by batch.
        ranges: the path of the ranges file.
        isa: as in `quantize_static`.
        keep_float: layers that are kept in float32.
        state: stores results, and has those of an interrupted run.
        advance: called before each layer with its name and the number of layers.
        out_of_time: called before each layer; if it returns true, the rest are skipped.

    GraphError: as in `quantize_static`.
    """
    exact_sums = sums_exactly(isa)
    floats, planned = _with_biases(graph, ranges, tuple(keep_float))
    codes = floats.copy()
    write_codes(codes, planned, {}, exact_sums)
    layers = [name for name in codes.order() if name in planned.chains]
    cut = segments(codes, layers)
    if cut is None:
        return {}, ["weights are rounded to the nearest int8 value: the graph has control flow of "
                    "TensorFlow 1"]  # fmt: skip
    keys = [planned.chains[layer].biased for layer in layers]
    retained = _Kept(state)
    rounded_layers: dict[str, RoundedLayer] = {}
    try:
        with contextlib.closing(
            _started(codes, floats, planned, load_ranges(ranges), layers, cut, feeds, exact_sums)
        ) as worker:
            for key in keys:
                advance(key, len(keys))
                if out_of_time():
                    break
                rounded_layers[key] = worker.ask("next_layer", retained.stored.get(key))
                retained.keep(rounded_layers)
    except (CrashError, LimitError, GraphError) as error:
        return {}, [f"weights are rounded to the nearest int8 value: {error}"]
    if len(rounded_layers) < len(keys):
        nearest = len(keys) - len(rounded_layers)
        return rounded_layers, [f"the weights of {nearest} of {len(keys)} layers are rounded "
                       "to the nearest int8 value, as the time budget is short; a larger "
                       "--budget rounds all by their outputs"]  # fmt: skip
    return rounded_layers, []


def _with_biases(graph: Graph, ranges: str, keep_float: tuple[str, ...]) -> tuple[Graph, Plan]:
    """Return the graph with a separate bias after each int8 layer, and its plan."""
    known, work = load_ranges(ranges), graph.copy()
    for chain in plan(work, known, keep_float).chains.values():
        add_to_bias(work, chain, np.zeros(channel_count(work, chain.nodes[0])))
    work.prune()
    return work, plan(work, known, keep_float)


def _started(
    codes: Graph,
    floats: Graph,
    planned: Plan,
    known: Ranges,
    layers: Sequence[str],
    cut: Sequence[Segment],
    feeds: Sequence[Mapping[str, Array]],
    exact_sums: bool,
) -> Worker:
    """Start the child process that rounds the layers."""
    to_round = [_to_round(codes, floats, planned, known, layer, exact_sums) for layer in layers]
    kind = "deploykit.quantization.rounding_session:RoundingSession"
    graphs = (b"".join(item.serialized()) for item in (codes, floats))
    return Worker(kind, *graphs, list(feeds), to_round, list(cut))


def _to_round(
    codes: Graph, floats: Graph, planned: Plan, known: Ranges, name: str, exact_sums: bool
) -> LayerToRound:
    """Return the data of a layer for the child process."""
    layer, reads, chain = floats[name], planned.reads[name], planned.chains[name]
    const = weights_of(floats, layer)
    assert const is not None
    (biased,) = codes.readers(name)
    (bias,) = (tensor for tensor in biased.data_inputs if tensor != name)
    value = codes.constant(bias)
    assert value is not None
    nearest = np.zeros(0, np.float32)
    if reads.of_zero:
        nearest = restored(layer, *weight_codes(layer, const.value, exact_sums, reads.signed))
    result = known.tensors.get(normal(layer.data_inputs[0]))
    return LayerToRound(
        layer=layer,
        weights=const.value,
        float_output=chain.biased,
        channel_means=np.array(() if result is None else result.channel_mean),
        output=biased.name,
        weights_tensor=codes[name].data_inputs[1],
        bias_tensor=bias,
        bias=value.value,
        nearest=nearest,
        of_zero=reads.of_zero,
        exact_sums=exact_sums,
        reads_sign=reads.signed,
    )


class _Kept:
    """Stores rounded layers in the state file, from which an interrupted run resumes."""

    def __init__(self, state: State | None) -> None:
        self._state = state
        stored = {} if state is None else state.stored.get("rounding", {})
        self.stored = {name: _decoded(item) for name, item in stored.items()}
        self._next = 0.0

    def keep(self, rounded_layers: Mapping[str, RoundedLayer]) -> None:
        """Save the rounded layers, unless saving would take too large a share of the time."""
        start = time.monotonic()
        if self._state is None or start < self._next or len(rounded_layers) <= len(self.stored):
            return
        self._state.keep(
            "rounding", {name: _encoded(item) for name, item in rounded_layers.items()}
        )
        end = time.monotonic()
        self._next = end + _SAVED * (end - start)


_STORED = {"codes": np.int8, "steps": np.float32, "bias": np.float64, "own_bias": np.float64}
"""The arrays of a rounded layer, and their dtypes."""


def _encoded(rounded_layer: RoundedLayer) -> dict[str, Any]:
    arrays = {
        name: base64.b64encode(getattr(rounded_layer, name).tobytes()).decode() for name in _STORED
    }
    kernel = {"exact_sums": rounded_layer.exact_sums, "reads_sign": rounded_layer.reads_sign}
    return {"shape": list(rounded_layer.codes.shape), **arrays, **kernel}


def _decoded(document: Mapping[str, Any]) -> RoundedLayer:
    codes, steps, bias, own_bias = (
        np.frombuffer(base64.b64decode(document[name]), dtype) for name, dtype in _STORED.items()
    )
    kernel = document["exact_sums"], document["reads_sign"]
    return RoundedLayer(codes.reshape(document["shape"]), steps, bias, own_bias, *kernel)


def round_in_time(
    task: SearchTask, graph: Graph, samples: Dataset, keep_float: Sequence[str] = ()
) -> tuple[Rounded, list[str]]:
    """Return the int8 weights and biases of layers, and notes.

    `keep_float` are additional float32 layers; without them, the state of the search stores the
    results.
    """
    end = task.budget.ranking_until()
    with task.step("round") as advance:
        return round_layers(
            graph,
            samples.spread(MAX_SAMPLES).feeds(),
            task.ranges,
            isa=task.how.isa,
            keep_float=(*task.how.keep_float, *keep_float),
            state=None if keep_float else task.state,
            advance=advance,
            out_of_time=lambda: task.budget.now() >= end,
        )
