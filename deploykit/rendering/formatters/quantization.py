"""Int8 models: layers and their precision, noise by layer, ranges of a calibration."""

from collections.abc import Iterator
from typing import Any

from deploykit.quantization.calibration import Calibration
from deploykit.quantization.result import KERNELS, LayerOutcome, Quantized
from deploykit.quantization.sensitivity import Sensitivity
from deploykit.quantization.weights_only import WeightsInt8
from deploykit.rendering.formatters.accuracy import group_table, weak_class_lines
from deploykit.rendering.tables import Table, table
from deploykit.rendering.templates import filled, rendered_rows
from deploykit.transforms.engines.engines import TITLES

_KERNELS = {"float": "float32", "eigen": "Eigen", "onednn": "oneDNN", "int8": "int8"}
_MEASURED = (
    "SQNR {sqnr_db:.1f} dB[[ (95 % lower bound {sqnr_low_db:.1f} dB)]]"
    "[[, agreement with float32 {agreement:share} (95 % CI {agreement_interval:share})]]"
    "[[, {metric} {before.value:.4g} in float32, {after.value:.4g} in int8]]"
    "[[ (95 % CI {after.interval:.4g})]], on {samples} samples"
    "[[ of {independent} sources]]"
)


def lines(result: Quantized) -> Iterator[str | Table]:
    """Yield a table of layers, and the outcome as text."""
    if result.layers:
        yield table(
            result.layers,
            {
                "layer": "{layer}",
                "in": lambda layer: "tried" if result.is_float and not layer.why_float
                else _precision(layer),
                "min": lambda layer: _end(layer, 0),
                "max": lambda layer: _end(layer, 1),
                "alone": "{sqnr_db:.1f} dB",
                **{f"{_KERNELS.get(k, k)} us": f"{{times_us.{k}:.0f}}" for k in KERNELS},
            },
            "min, max: output range of the layer; alone: SQNR when only this layer is int8",
        )  # fmt: skip
    yield from (f"kept in float32: {e.layer} ({e.why_float})" for e in result.layers if e.why_float)
    yield from rendered_rows(result.notes, "note: {}")
    if result.layers:
        tried = "were tried as int8" if result.is_float and result.int8_layers else "are int8"
        yield (
            f"{result.int8_layers} of {len(result.layers)} layers {tried}, with weights for "
            f"{result.isa}"
        )
    compared = "held-out samples" if result.samples else "compared samples"
    for name, measured in ((compared, result.judgement), ("evaluation", result.evaluation)):
        if measured is not None:
            yield f"{name}: {filled(_MEASURED, measured)}"
            yield from weak_class_lines(measured.weak_classes)
            if measured.groups:
                yield group_table(measured.groups, f"{name} by group")
    if result.use is not None:
        yield f"runtime for the graph: {TITLES[result.use.engine]} {result.use.version}"
    yield from filter(None, [result.engine_reason])
    yield f"result: {result.precision} ({result.reason})"


def weight_lines(result: WeightsInt8) -> Iterator[str | Table]:
    """Yield a table of weights if some are kept in float32, and the outcome as text."""
    retained = [weight for weight in result.weights if weight.why_float]
    if retained:
        yield table(
            result.weights,
            {"weights": "{weight}", "in": _precision, "alone": "{sqnr_db:.1f} dB"},
            "alone: SQNR when only this weight is int8",
        )
    yield from rendered_rows(retained, "kept in float32: {weight} ({why_float})")
    yield from rendered_rows(result.notes, "note: {}")
    if retained:
        count = len(result.weights)
        yield f"{count - len(retained)} of {count} weights are int8"
    if result.is_float:
        yield f"result: float32 ({result.reason})"


def _precision(row: Any) -> str:
    return "float32" if row.why_float else "int8"


def _end(layer: LayerOutcome, index: int) -> str | None:
    """Return an end of a range; a rounding error relative to the other end becomes zero."""
    if layer.range is None:
        return None
    end = layer.range[index]
    return "0" if abs(end) < 1e-4 * max(map(abs, layer.range)) else f"{end:.3g}"


def calibration_lines(result: Calibration) -> Iterator[str | Table]:
    """Yield a table of the widest ranges, and a summary."""
    columns = {"widest ranges": "{0}", "min": "{1.min:.4g}", "max": "{1.max:.4g}"}
    yield table(result.widest, columns)
    yield from rendered_rows(result.notes, "note: {}")
    yield (
        f"ranges of {len(result.ranges.tensors)} tensors on {result.ranges.samples} samples "
        f"({result.method}, {result.seconds:.1f} s)"
    )


def sensitivity_lines(result: Sensitivity, top: int | None = None) -> Iterator[str | Table]:
    """Yield a table of the `top` noisiest layers, or of all, and a summary."""
    if result.ranking:
        yield table(
            result.ranking[:top],
            {
                "noisiest layers": "{layer}",
                "op": "{op}",
                "min": lambda row: filled("{min:.4g}", result.ranges.get(row.layer)),
                "max": lambda row: filled("{max:.4g}", result.ranges.get(row.layer)),
                "SQNR alone": lambda row: None if row.fault else f"{row.sqnr_db:.1f} dB",
            },
        )
    yield from rendered_rows((row for row in result.ranking[:top] if row.fault), "{layer}: {fault}")
    yield from rendered_rows(result.reasons.items(), "kept in float32: {0} ({1})")
    yield from rendered_rows(result.notes, "note: {}")
    if not result.ranking:
        yield "no layer can be int8"
        return
    count, together = len(result.ranking), result.together
    yield (
        f"{count} of {count + len(result.reasons)} layers can be int8; measured on "
        f"{result.samples[1]} samples, calibrated on {result.samples[0]}"
        + ("" if together is None else f"; all together {together.sqnr_db:.1f} dB")
    )
