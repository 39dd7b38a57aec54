"""Proof that a rewrite kept the numbers: two graphs run on the same inputs, Grappler off.

Per output, the largest and the root-mean-square difference are taken relative to the reference's
own largest and root-mean-square value; NaN and Inf must stand in the same places. No elementwise
relative error: a correct fold of fifty layers shows 1e-1 near zeros. Where an output is a Softmax,
its input is compared as well, because a Softmax hides errors.
"""

from dataclasses import dataclass, replace
from typing import Any

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.running.child import call
from deploykit.verification.differences import Difference
from deploykit.verification.pairs import judged_outputs, paired_inputs, paired_outputs
from deploykit.verification.sample_inputs import made_up_feeds
from deploykit.verification.samples import Data, Samples

AT_ONCE = 50  # samples of the user's, where the inputs leave it open
QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's answers are noise (int8.md, rule 10)


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
        "deploykit.verification.running:run_both",
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


def _bytes(graph: Graph) -> bytes:
    return b"".join(graph.serialized())


def _is_quantized(graph: Graph) -> bool:
    return any("Quantize" in node.op or node.op == "Dequantize" for node in graph)
