"""What became of each layer of a model in 8 bits, and of the whole."""

from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.result import Quantized
from deploykit.text.tables import Table, new_table


def lines(result: Quantized) -> list[str | Table]:
    """Return a table of layers, and what came of them in words."""
    table = new_table("layer", "in", "least", "most", "alone", "Eigen", "oneDNN", "int8")
    for each in result.layers:
        ends = ["", ""] if each.range is None else [_short(e, each.range) for e in each.range]
        noise = "" if each.sqnr_db is None else f"{each.sqnr_db:.1f} dB"
        times = [f"{time:.0f}" for time in each.times_us or ()] or ["", "", ""]
        kind = "float" if each.why_float else "tried" if result.is_float else "int8"
        table.add_row(each.layer, kind, *ends, noise, *times)
    table.caption = (
        "least, most: what it gives; alone: SQNR of the answers if it alone is in 8 bits; "
        "times in us"
    )
    said: list[str | Table] = [table] if result.layers else []
    said += [f"{e.layer} stays float: {e.why_float}" for e in result.layers if e.why_float]
    said += [f"note: {note}" for note in result.notes]
    if result.layers:
        tried = "were tried" if result.is_float and result.int8_layers else "are"
        said.append(f"{result.int8_layers} of {len(result.layers)} layers {tried} in 8 bits, with "
                     f"weights for {result.isa}")  # fmt: skip
    for name, found in (("held-out samples", result.judgement), ("evaluation", result.evaluation)):
        if found is not None:
            said.append(f"{name}: {_in_words(found)}")
    said.append(result.reason)
    return said


def _in_words(found: Judgement) -> str:
    """Return noise, agreement and accuracy."""
    parts = [f"SQNR {found.sqnr_db:.1f} dB"]
    if found.agreement is not None:
        parts.append(f"{100 * found.agreement:.1f} % of the answers agree with float")
    if found.before is not None and found.after is not None:
        low, high = found.after.interval or (None, None)
        interval = "" if low is None else f" ({low:.4g} to {high:.4g})"
        parts.append(f"{found.metric} {found.before.value:.4g} in float, {found.after.value:.4g}"
                     f"{interval} in 8 bits")  # fmt: skip
    return f"{', '.join(parts)}, on {found.samples} samples"


def _short(end: float, range_: tuple[float, float]) -> str:
    """Return an end of a range; what is rounding beside the other one is zero."""
    return "0" if abs(end) < 1e-4 * max(map(abs, range_)) else f"{end:.3g}"
