"""What became of each layer of a model in 8 bits, and of the whole."""

import math

from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.result import KERNELS, Quantized
from deploykit.quantization.weights import WeightsInt8
from deploykit.text.results.groups import group_table
from deploykit.text.tables import Table, new_table
from deploykit.transforms.core.engines.engines import TITLES as ENGINES

TITLES = {"eigen": "Eigen", "onednn": "oneDNN", "int8": "int8"}


def lines(result: Quantized) -> list[str | Table]:
    """Return a table of layers, and what came of them in words."""
    kernels = [name for name in KERNELS if any(name in (e.times_us or ()) for e in result.layers)]
    kernels = kernels or [*TITLES]
    titles = [TITLES.get(name, name) for name in kernels]
    table = new_table("layer", "in", "least", "most", "alone", *titles)
    for each in result.layers:
        ends = ["", ""] if each.range is None else [_short(e, each.range) for e in each.range]
        noise = "" if each.sqnr_db is None else f"{each.sqnr_db:.1f} dB"
        taken = each.times_us or {}
        times = [f"{taken[name]:.0f}" if name in taken else "" for name in kernels]
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
    compared = "held-out samples" if result.samples else "compared samples"
    for name, found in ((compared, result.judgement), ("evaluation", result.evaluation)):
        if found is not None:
            said.append(f"{name}: {_in_words(found)}")
            if found.groups:
                said.append(group_table(found.groups, f"{name} by group"))
    if result.use is not None:
        said.append(f"{ENGINES[result.use.engine]} {result.use.version} is to compute the graph")
    said += [result.engine_reason] if result.engine_reason else []
    return [*said, f"result: {result.precision} ({result.reason})"]


def weight_lines(result: WeightsInt8) -> list[str | Table]:
    """Return a table of weights where some stay float, and what came of them in words."""
    said: list[str | Table] = []
    kept = [each for each in result.weights if each.why_float]
    if kept:
        table = new_table("weights", "in", "alone")
        for each in result.weights:
            noise = "" if each.sqnr_db is None else f"{each.sqnr_db:.1f} dB"
            table.add_row(each.weight, "float" if each.why_float else "int8", noise)
        table.caption = "alone: SQNR of the answers if it alone is in 8 bits"
        said.append(table)
    said += [f"{each.weight} stays float: {each.why_float}" for each in kept]
    said += [f"note: {note}" for note in result.notes]
    count = len(result.weights)
    said += [f"{count - len(kept)} of {count} weights are in 8 bits"] if kept else []
    return [*said, f"result: float32 ({result.reason})"] if result.is_float else said


def _in_words(found: Judgement) -> str:
    """Return noise, agreement and accuracy."""
    low = "" if found.sqnr_low_db is None else f" (95 % sure of {found.sqnr_low_db:.1f} dB)"
    parts = [f"SQNR {found.sqnr_db:.1f} dB{low}"]
    if found.agreement is not None:
        parts.append(f"{agreement(found)} of the answers agree with float")
    if found.before is not None and found.after is not None:
        ends = found.after.interval
        interval = "" if ends is None else f" ({ends[0]:.4g} to {ends[1]:.4g})"
        parts.append(f"{found.metric} {found.before.value:.4g} in float, {found.after.value:.4g}"
                     f"{interval} in 8 bits")  # fmt: skip
    return f"{', '.join(parts)}, on {found.samples} samples"


def agreement(found: Judgement) -> str:
    """Return the share of answers that agree, with its 95 % confidence interval."""
    low, high = found.agreement_interval or (math.nan, math.nan)
    return f"{100 * (found.agreement or 0):.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"


def _short(end: float, range_: tuple[float, float]) -> str:
    """Return an end of a range; what is rounding beside the other one is zero."""
    return "0" if abs(end) < 1e-4 * max(map(abs, range_)) else f"{end:.3g}"
