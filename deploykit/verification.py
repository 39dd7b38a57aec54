"""Proof that a rewrite kept the numbers: two graphs run on the same inputs, Grappler off.

Per output, the largest and the root-mean-square difference are taken relative to the reference's
own largest and root-mean-square value; NaN and Inf must stand in the same places. No elementwise
relative error: a correct fold of fifty layers shows 1e-1 near zeros. Where an output is a Softmax,
its input is compared as well, because a Softmax hides errors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transforms.core.child import call
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.layers import LAYER_OPS
from transforms.core.node import split
from transforms.core.ops import op_defs, output_types
from transforms.core.tensors import Array, numpy_type

QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's answers are noise (int8.md, rule 10)
BATCH = 2  # one example would not show a mix-up of examples
UNKNOWN_SIZE = 96  # for sizes that a placeholder leaves open; the smallest that InceptionV3 takes
_DATA_BATCH = 50


@dataclass(frozen=True)
class Difference:
    """How far one output of the result is from the reference."""

    output: str
    max_relative_error: float
    rms_relative_error: float
    sqnr_db: float
    """10 log10(sum ref^2 / sum d^2): signal to quantization noise, in dB; inf where equal."""
    fault: str = ""
    """What no tolerance excuses: another shape, NaN in other places, other integers."""


@dataclass(frozen=True)
class Verification:
    """What a comparison of two graphs found, and whether it met its bar."""

    verified: bool
    passed: bool
    bar: str
    reason: str = ""
    differences: tuple[Difference, ...] = ()
    accuracy: tuple[float, float] | None = None
    samples: int = 0

    @property
    def max_relative_error(self) -> float | None:
        """The largest of the outputs' errors; None where nothing was compared."""
        return max((d.max_relative_error for d in self.differences), default=None)

    @property
    def sqnr_db(self) -> float | None:
        """The smallest of the outputs' signal-to-noise ratios; None where nothing was compared."""
        return min((d.sqnr_db for d in self.differences), default=None)


@dataclass
class _Sums:
    """Sums over batches, from which a Difference follows."""

    output: str
    largest: float = 0.0
    largest_error: float = 0.0
    squares: float = 0.0
    squared_errors: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, reference: Array, result: Array) -> None:
        reference, result = np.asarray(reference), np.asarray(result)
        if reference.shape != result.shape:
            self.faults.append(f"its shape is {list(result.shape)}, not {list(reference.shape)}")
            return
        if reference.dtype != result.dtype:
            self.faults.append(f"its type is {result.dtype}, not {reference.dtype}")
            return
        if reference.dtype.kind not in "fcV" and reference.dtype.name != "bfloat16":
            different = int(np.count_nonzero(reference != result))
            if different:
                self.faults.append(f"{different} of {reference.size} values differ")
            return
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        reference, result = reference.astype(wide), result.astype(wide)
        finite = np.isfinite(reference)
        special = ~finite
        if not np.array_equal(finite, np.isfinite(result)) or not np.array_equal(
            reference[special], result[special], equal_nan=True
        ):
            self.faults.append("NaN or Inf stand in other places")
            return
        reference = reference[finite]
        error = result[finite] - reference
        if reference.size:
            self.largest = max(self.largest, float(np.abs(reference).max()))
            self.largest_error = max(self.largest_error, float(np.abs(error).max()))
            self.squares += float(np.square(np.abs(reference)).sum())
            self.squared_errors += float(np.square(np.abs(error)).sum())

    def difference(self) -> Difference:
        fault = self.faults[0] if self.faults else ""
        if fault:
            return Difference(self.output, math.inf, math.inf, -math.inf, fault)
        if not self.squared_errors:
            return Difference(self.output, 0.0, 0.0, math.inf)
        if not self.squares:
            return Difference(self.output, math.inf, math.inf, -math.inf)
        return Difference(
            self.output,
            self.largest_error / self.largest,
            math.sqrt(self.squared_errors / self.squares),
            10 * math.log10(self.squares / self.squared_errors),
        )


def compare(reference: Sequence[Array], result: Sequence[Array]) -> list[Difference]:
    """Return the difference of each pair of arrays."""
    differences = []
    for number, (a, b) in enumerate(zip(reference, result, strict=True)):
        sums = _Sums(str(number))
        sums.add(a, b)
        differences.append(sums.difference())
    return differences


def default_tolerance(graph: Graph) -> float:
    """Return 1e-6 * (5 + depth), at most 1e-4: what folding `depth` batch norms may move."""
    depth = sum(node.op in LAYER_OPS for node in graph)
    return min(1e-4, 1e-6 * (5 + depth))


def verify(
    reference: Graph,
    result: Graph,
    *,
    data: Mapping[str, Array] | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    tolerance: float | None = None,
    min_sqnr: float | None = None,
) -> Verification:
    """Run two graphs on the same inputs and compare their outputs.

    Args:
        reference: the graph that is right.
        result: the graph to judge; its inputs and outputs are paired with the reference's by name,
            or by place where the names differ.
        data: arrays by input name, first axis the samples; `labels` (class numbers) adds accuracy.
            Without data: seed 0, uniform over `input_range`, integers over [0, 255], batch 2.
        input_range: the range of synthetic float inputs.
        tolerance: bar on the largest relative error. Default: `default_tolerance`, unless the
            result holds 8-bit constants that the reference does not.
        min_sqnr: bar in dB instead; default for such a quantized result: 15.

    A reference that does not run on made-up inputs gives `verified=False` with the reason.
    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.
    """
    if tolerance is None and min_sqnr is None:
        if _is_quantized(result) and not _is_quantized(reference):
            min_sqnr = QUANTIZED_BAR_DB
        else:
            tolerance = default_tolerance(reference)
    bar = f"error <= {tolerance:.2g}" if tolerance is not None else f"SQNR >= {min_sqnr:g} dB"
    feeds, labels, reason = _feeds(reference, data, input_range)
    if reason:
        return Verification(False, False, bar, reason)
    if len(reference.outputs) != len(result.outputs):
        reason = f"{len(result.outputs)} outputs instead of {len(reference.outputs)}"
        return Verification(True, False, bar, reason)
    names = dict(zip(reference.inputs, _paired(reference.inputs, result.inputs), strict=True))
    pairs = _outputs(reference, result)
    found = call(
        "deploykit.verification:run_both",
        _bytes(reference),
        _bytes(result),
        feeds,
        names,
        pairs,
        labels,
        None if data is None else _data_batch(reference),
    )
    if "unverified" in found:
        return Verification(False, False, bar, found["unverified"])
    if "broken" in found:
        return Verification(True, False, bar, found["broken"])
    differences = tuple(found["differences"])
    reason = next((why for d in differences if (why := _failure(d, tolerance, min_sqnr))), "")
    samples = len(next(iter(feeds.values()))) if data is not None and feeds else 0
    return Verification(True, not reason, bar, reason, differences, found["accuracy"], samples)


def _failure(found: Difference, tolerance: float | None, min_sqnr: float | None) -> str:
    """Return why an output fails its bar, or an empty string."""
    if found.fault and not (tolerance is None and "values differ" in found.fault):
        return f"output '{found.output}': {found.fault}"
    if tolerance is not None:
        error = max(found.max_relative_error, found.rms_relative_error)
        if not error <= tolerance:
            return f"output '{found.output}': error {error:.3g}, allowed {tolerance:.3g}"
    elif min_sqnr is not None and not found.fault and not found.sqnr_db >= min_sqnr:
        return f"output '{found.output}': SQNR {found.sqnr_db:.1f} dB, wanted {min_sqnr:g} dB"
    return ""


def run_both(
    reference: bytes,
    result: bytes,
    feeds: dict[str, Array],
    names: dict[str, str],
    pairs: list[tuple[str, str]],
    labels: Array | None,
    batch: int | None,
) -> dict[str, Any]:
    """Run two graphs and return their differences; this is done in a child process.

    Where the result cannot be loaded or run, `broken` says why; where the reference does not run on
    made-up inputs, `unverified`. GraphError: TensorFlow cannot load the reference, or not run it on
    given data.
    """
    from transforms.core.session import Session

    first = Session(reference)
    try:
        second = Session(result)
    except GraphError as error:
        return {"broken": str(error)}
    sums = [_Sums(a) for a, _ in pairs]
    total = len(next(iter(feeds.values()))) if batch else 1
    right = np.zeros(2, np.int64)
    for start in range(0, total, batch or 1):
        part = {k: v[start : start + batch] if batch else v for k, v in feeds.items()}
        try:
            expected = first.run([a for a, _ in pairs], part)
        except GraphError as error:
            if batch:
                raise
            return {"unverified": str(error)}
        try:
            found = second.run([b for _, b in pairs], {names[k]: v for k, v in part.items()})
        except GraphError as error:
            return {"broken": str(error)}
        for each, a, b in zip(sums, expected, found, strict=True):
            each.add(a, b)
        if labels is not None and batch:
            truth = labels[start : start + batch]
            right += [np.sum(np.argmax(x[0], -1) == truth) for x in (expected, found)]
    accuracy = tuple((right / total).tolist()) if labels is not None else None
    return {"differences": [each.difference() for each in sums], "accuracy": accuracy}


def _bytes(graph: Graph) -> bytes:
    return b"".join(graph.serialized())


def _is_quantized(graph: Graph) -> bool:
    return any("Quantize" in node.op or node.op == "Dequantize" for node in graph)


def _paired(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return for each name the one it is paired with: itself, or else the one in its place."""
    if set(names) <= set(others):
        return names
    return [other for _, other in zip(names, others, strict=False)] if len(others) else names


def _outputs(reference: Graph, result: Graph) -> list[tuple[str, str]]:
    """Return the pairs of tensors to compare: outputs, and what final Softmaxes read."""
    pairs = list(zip(reference.outputs, _paired(reference.outputs, result.outputs), strict=True))
    for a, b in tuple(pairs):
        before = (_before_softmax(reference, a), _before_softmax(result, b))
        if before[0] is not None and before[1] is not None:
            pairs.append((before[0], before[1]))
    return pairs


def _before_softmax(graph: Graph, tensor: str) -> str | None:
    node = graph.producer(tensor)
    while node.op in ("Identity", "Reshape", "Squeeze") and node.inputs:
        node = graph.producer(node.inputs[0])
    return node.inputs[0] if node.op == "Softmax" else None


def _placeholder(graph: Graph, tensor: str) -> tuple[str, tuple[int, ...] | None, str]:
    """Return type and shape of an input, and why it cannot be fed with made-up values."""
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    if types is None or port >= len(types):
        return "", None, f"the type of input '{tensor}' is not known"
    shape = node.attr("shape") if node.op in ("Placeholder", "PlaceholderWithDefault") else None
    if node.op == "Const":
        shape = node.value.shape
    return types[port], shape, ""


def _feeds(
    graph: Graph, data: Mapping[str, Array] | None, input_range: tuple[float, float]
) -> tuple[dict[str, Array], Array | None, str]:
    """Return the arrays to feed, labels, and why there are none."""
    if data is not None:
        return _data_feeds(graph, data)
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        type_, shape, reason = _placeholder(graph, tensor)
        if reason:
            return {}, None, reason
        if type_ in ("string", "resource", "variant") or type_.startswith("type"):
            return {}, None, f"input '{tensor}' is of type {type_}, which cannot be made up"
        if shape is None:
            return {}, None, f"input '{tensor}' has no known shape; give --data"
        sizes = [s if s >= 0 else BATCH if i == 0 else UNKNOWN_SIZE for i, s in enumerate(shape)]
        dtype = numpy_type(type_)
        if dtype.kind == "b":
            feeds[tensor] = random.integers(0, 2, sizes).astype(dtype)
        elif dtype.kind in "iu":
            top = min(255, np.iinfo(dtype).max)
            feeds[tensor] = random.integers(0, top, sizes, endpoint=True).astype(dtype)
        else:
            feeds[tensor] = random.uniform(*input_range, sizes).astype(dtype)
    return feeds, None, ""


def _data_feeds(
    graph: Graph, data: Mapping[str, Array]
) -> tuple[dict[str, Array], Array | None, str]:
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        name = split(tensor)[0]
        if name not in data:
            known = ", ".join(sorted(data))
            raise GraphError(f"the data has no array for input '{name}'; it has: {known}")
        type_, shape, _ = _placeholder(graph, tensor)
        array = np.asarray(data[name])
        if type_ and not np.can_cast(array.dtype, numpy_type(type_), "same_kind"):
            raise GraphError(f"the data for input '{name}' is {array.dtype}, but it takes {type_}")
        if shape is not None and not _fits(array.shape, shape):
            raise GraphError(
                f"the data for input '{name}' has shape {list(array.shape)}, "
                f"but it takes {[None if s < 0 else s for s in shape]}"
            )
        feeds[tensor] = array.astype(numpy_type(type_)) if type_ else array
    counts = {len(array) for array in feeds.values() if array.ndim}
    if len(counts) > 1:
        raise GraphError(f"the arrays of the data hold different numbers of samples: {counts}")
    return feeds, data.get("labels"), ""


def _fits(actual: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Say whether samples of this shape can be fed, the first axis in batches."""
    return len(actual) == len(declared) and all(
        s < 0 or s == a for a, s in zip(actual[1:], declared[1:], strict=True)
    )


def _data_batch(graph: Graph) -> int:
    """Return how many samples are fed at once: what the inputs demand, or fifty."""
    shapes = [_placeholder(graph, tensor)[1] for tensor in graph.inputs]
    fixed = [shape[0] for shape in shapes if shape and shape[0] > 0]
    return fixed[0] if fixed else _DATA_BATCH
