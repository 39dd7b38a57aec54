"""Layers by the noise that each brings in 8 bits."""

from deploykit.quantization.sensitivity import Sensitivity
from deploykit.text.tables import Table, new_table


def lines(result: Sensitivity, target: str, top: int | None = None) -> list[str | Table]:
    """Return a table of the noisiest layers, or of all, and what is said of others."""
    table = new_table("noisiest layers", "op", "range", "SQNR alone")
    for noise in result.ranking[:top]:
        found = result.ranges.get(noise.layer)
        span = "" if found is None else f"{found.min:.4g} to {found.max:.4g}"
        ratio = "not known" if noise.fault else f"{noise.sqnr_db:.1f} dB"
        table.add_row(noise.layer, noise.op, span, ratio)
    faults = [f"{each.layer}: {each.fault}" for each in result.ranking[:top] if each.fault]
    kept = [f"float: {layer}: {reason}" for layer, reason in result.reasons.items()]
    notes = [f"note: {note}" for note in result.notes]
    summary = f"{target}: no layer can be in 8 bits"
    if result.ranking:
        count = len(result.ranking)
        summary = (
            f"{target}: {count} of {count + len(kept)} layers can be in 8 bits; judged on "
            f"{result.samples[1]} samples, calibrated with {result.samples[0]}"
        )
        if result.together is not None:
            summary += f"; together {result.together.sqnr_db:.1f} dB"
    return [*([table] if result.ranking else []), *faults, *kept, *notes, summary]
