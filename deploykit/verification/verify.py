"""Proof that a rewrite kept the numbers: two graphs run on the same inputs, Grappler off.

Per output, the largest and the root-mean-square difference are taken relative to the reference's
own largest and root-mean-square value; NaN and Inf must stand in the same places. No elementwise
relative error: a correct fold of fifty layers shows 1e-1 near zeros. Where an output is a Softmax,
its input is compared as well, because a Softmax hides errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.tensors import Array
from deploykit.verification.sample_inputs import made_up_feeds
from deploykit.verification.samples import Data, Samples

AT_ONCE = 50  # samples of the user's, where the inputs leave it open
QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's answers are noise (int8.md, rule 10)


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
    judged: bool = True
    """A Softmax raises noise to a power, so for an SQNR what it reads is judged instead."""


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
    models: tuple[Any, Any] | None = None
    """The two as they were opened, where they were models."""

    @property
    def max_relative_error(self) -> float | None:
        """The largest of the outputs' errors; None where nothing was compared."""
        return max((d.max_relative_error for d in self.differences), default=None)

    @property
    def sqnr_db(self) -> float | None:
        """The smallest signal-to-noise ratio that is judged; None where nothing was compared."""
        return min((d.sqnr_db for d in self.differences if d.judged), default=None)


@dataclass
class Sums:
    """Sums over batches, from which a Difference follows."""

    output: str
    largest: float = 0.0
    largest_error: float = 0.0
    squares: float = 0.0
    squared_errors: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, reference: Array, result: Array) -> None:
        """Take in a batch of the reference's values and of the result's."""
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
        """Return what the batches so far come to."""
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
        sums = Sums(str(number))
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
    data: Data | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    tolerance: float | None = None,
    min_sqnr: float | None = None,
) -> Verification:
    """Run two graphs on the same inputs and compare their outputs.

    Args:
        reference: the graph that is right.
        result: the graph to judge; its inputs and outputs are paired with the reference's by name,
            or by place where the names differ.
        data: samples, or arrays by input name, first axis the samples; `labels` (class numbers)
            adds accuracy.
            Without data: seed 0, uniform over `input_range`, integers over [0, 255], batch 2.
        input_range: the range of synthetic float inputs.
        tolerance: bar on the largest relative error. Default: `default_tolerance`, unless the
            result holds 8-bit constants that the reference does not.
        min_sqnr: bar in dB instead; default for such a quantized result: 15. It holds for what a
            Softmax reads in place of the Softmax.

    A reference that does not run on made-up inputs gives `verified=False` with the reason.
    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.
    """
    if tolerance is None and min_sqnr is None:
        tolerance, min_sqnr = _default_bar(reference, result)
    bar = f"error <= {tolerance:.2g}" if tolerance is not None else f"SQNR >= {min_sqnr:g} dB"
    samples = None if data is None else Samples.of(reference, data)
    feeds, reason = (samples.arrays, "") if samples else made_up_feeds(reference, input_range)
    if reason:
        return Verification(False, False, bar, reason)
    names = paired_inputs(reference, result)
    if names is None or len(reference.outputs) != len(result.outputs):
        return Verification(True, False, bar, _other_ends(reference, result))
    pairs = paired_outputs(reference, result)
    found = call(
        "deploykit.verification.verify:run_both",
        _bytes(reference),
        _bytes(result),
        dict(feeds),
        names,
        pairs,
        samples and samples.labels,
        (samples.batch or AT_ONCE) if samples and feeds else None,
    )
    if "unverified" in found:
        return Verification(False, False, bar, found["unverified"])
    if "broken" in found:
        return Verification(True, False, bar, found["broken"])
    differences = tuple(found["differences"])
    if tolerance is None:
        judged = judged_outputs(reference, pairs)
        differences = tuple(replace(d, judged=d.output in judged) for d in differences)
    reason = next((why for d in differences if (why := _failure(d, tolerance, min_sqnr))), "")
    count = len(next(iter(feeds.values()))) if samples and feeds else 0
    return Verification(True, not reason, bar, reason, differences, found["accuracy"], count)


def _default_bar(reference: Graph, result: Graph) -> tuple[float | None, float | None]:
    """Return tolerance or signal-to-noise ratio in dB that a result is held to."""
    if _is_quantized(result) and not _is_quantized(reference):
        return None, QUANTIZED_BAR_DB
    return default_tolerance(reference), None


def _other_ends(reference: Graph, result: Graph) -> str:
    """Return why two graphs cannot be compared."""
    if len(reference.outputs) != len(result.outputs):
        return f"{len(result.outputs)} outputs instead of {len(reference.outputs)}"
    shown = [", ".join(graph.inputs) or "none" for graph in (result, reference)]
    return f"its inputs are {shown[0]}, those of the reference {shown[1]}"


def _failure(found: Difference, tolerance: float | None, min_sqnr: float | None) -> str:
    """Return why an output fails its bar, or an empty string."""
    if not found.judged:
        return ""
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
    from deploykit.transforms.core.running.session import Session

    first = Session(reference)
    try:
        second = Session(result)
    except GraphError as error:
        return {"broken": str(error)}
    sums = [Sums(a) for a, _ in pairs]
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
            found = second.run(
                [b for _, b in pairs], {names[k]: v for k, v in part.items() if k in names}
            )
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
    return names if set(names) <= set(others) else others


def paired_inputs(reference: Graph, result: Graph) -> dict[str, str] | None:
    """Return the inputs of the result by those of the reference, or None where they do not match.

    The result may have fewer: what was pinned is not fed any more.
    """
    names, others = reference.inputs, result.inputs
    if set(others) <= set(names):
        return {name: name for name in others}
    return dict(zip(names, others, strict=True)) if len(names) == len(others) else None


def paired_outputs(reference: Graph, result: Graph) -> list[tuple[str, str]]:
    """Return the pairs of tensors to compare: outputs, and what final Softmaxes read."""
    pairs = list(zip(reference.outputs, _paired(reference.outputs, result.outputs), strict=True))
    for a, b in tuple(pairs):
        before = (before_softmax(reference, a), before_softmax(result, b))
        if before[0] is not None and before[1] is not None:
            pairs.append((before[0], before[1]))
    return pairs


def judged_outputs(reference: Graph, pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Return the tensors of the reference whose noise counts: not a Softmax whose input does."""
    compared = {a for a, _ in pairs}
    return {a for a in compared if before_softmax(reference, a) not in compared}


def before_softmax(graph: Graph, tensor: str) -> str | None:
    """Return what the Softmax that makes a tensor reads, or None where there is none."""
    node = graph.producer(tensor)
    while node.op in ("Identity", "Reshape", "Squeeze") and node.inputs:
        node = graph.producer(node.inputs[0])
    return node.inputs[0] if node.op == "Softmax" else None
