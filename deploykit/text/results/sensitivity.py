"""Layers by the quantization noise that each one adds as int8."""

from collections.abc import Iterator

from deploykit.quantization.sensitivity import Sensitivity
from deploykit.text.tables import Table, table
from deploykit.text.templates import filled, for_each


def lines(result: Sensitivity, top: int | None = None) -> Iterator[str | Table]:
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
    yield from for_each((row for row in result.ranking[:top] if row.fault), "{layer}: {fault}")
    yield from for_each(result.reasons.items(), "kept in float32: {0} ({1})")
    yield from for_each(result.notes, "note: {}")
    if not result.ranking:
        yield "no layer can be int8"
        return
    count, together = len(result.ranking), result.together
    yield (
        f"{count} of {count + len(result.reasons)} layers can be int8; measured on "
        f"{result.samples[1]} samples, calibrated on {result.samples[0]}"
        + ("" if together is None else f"; all together {together.sqnr_db:.1f} dB")
    )
