"""The gate as text: a table of checks, and what decided them."""

import math
from collections.abc import Iterator

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import COMPATIBLE, INCONCLUSIVE
from deploykit.rendering.tables import Table
from deploykit.transforms.common.messages import escaped


def lines(result: GateResult) -> Iterator[str | Table]:
    """Yield the verdict, a table of the checks, and what else to know about them."""
    yield result.headline
    headings = ("check", "verdict", "change", "limit", "baseline", "candidate")
    cells = (
        (check.name, check.verdict, check.change_text, check.limit_text, *check.values)
        for check in result.checks
    )
    yield Table(headings, [tuple(map(escaped, row)) for row in cells], (0, 1))
    unknown: dict[str, list[str]] = {}  # names of checks, by the reason
    for check in result.checks:
        is_measured = not math.isnan(check.change)
        if is_measured and not check.is_known and check.verdict != INCONCLUSIVE:
            unknown.setdefault(check.note, []).append(check.name)
        elif check.verdict == INCONCLUSIVE or check.note not in ("", COMPATIBLE):
            yield check.sentence
    if unknown:
        groups = (", ".join(names) + f" ({why})" * bool(why) for why, names in unknown.items())
        yield f"interval unknown: {'; '.join(groups)}"
    yield from result.notes
    if result.samples:
        confidence = f"{100 * result.quality_confidence:.4g} % confidence"
        yield f"predictions: {result.samples:,} samples, {confidence}"
    if result.batch:
        load = f"; {result.busy}" if result.busy else ""
        yield (f"speed and memory: batch {result.batch}, {result.machine}, "
               f"{result.seconds:.0f} s in all{load}")  # fmt: skip
