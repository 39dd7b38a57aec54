"""The gate as text: a table of checks, what decided them, and a plot of the intervals."""

import math
from collections.abc import Iterator, Sequence

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import COMPATIBLE, INCONCLUSIVE, Check
from deploykit.rendering.tables import Table
from deploykit.transforms.common.messages import escaped

HEADINGS = ("check", "verdict", "change", "limit", "baseline", "candidate")
_WIDTH = 41
"""Columns of a plot, from twice the limit better to twice the limit worse."""
_ZERO, _LIMIT = _WIDTH // 2, 3 * _WIDTH // 4


def rows(result: GateResult) -> list[tuple[str, ...]]:
    """Return the cells of each check, under HEADINGS."""
    cells = (
        (check.name, check.verdict, check.change_text, check.limit_text, *check.values)
        for check in result.checks
    )
    return [tuple(map(escaped, row)) for row in cells]


def lines(result: GateResult) -> Iterator[str | Table]:
    """Yield the verdict, the table, and notes on the checks."""
    yield result.headline
    yield Table(HEADINGS, rows(result), (0, 1))
    yield from notes(result)


def notes(result: GateResult) -> Iterator[str]:
    """Yield what else to know about the checks and the measurement, one line each."""
    yield from map(escaped, _notes(result))


def _notes(result: GateResult) -> Iterator[str]:
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


def plot(checks: Sequence[Check]) -> Iterator[str]:
    """Yield a line for each check with a limit: its interval between brackets, `!` at the limit.

    Each line is scaled to the limit of its check. `<` and `>` mark ends outside of the plot.
    """
    drawn = [
        check
        for check in checks
        if check.limit and not any(map(math.isnan, (check.change, *check.interval)))
    ]
    if not drawn:
        return
    names = [escaped(check.name) for check in drawn]
    width = max(map(len, names))
    heading = [" "] * (_WIDTH + 10)
    for column, text in ((0, "better"), (_ZERO, "0"), (_LIMIT - 2, "limit"), (_WIDTH, "worse")):
        heading[column : column + len(text)] = text
    yield f"{'':{width}}  {''.join(heading).rstrip()}"
    for name, check in zip(names, drawn, strict=True):
        yield f"{name:{width}}  {_interval(check)}  {check.verdict}"


def _interval(check: Check) -> str:
    """Return the plot of an interval; an unknown end is outside of the plot."""
    assert check.limit
    cells = [" "] * _WIDTH
    low, value, high = (_column(x / check.limit) for x in (check.interval[0], check.change,
                                                           check.interval[1]))  # fmt: skip
    first, last = max(low, 0), min(high, _WIDTH - 1)
    for column in range(first, last + 1):
        cells[column] = "-"
    cells[_ZERO], cells[_LIMIT] = ":", "!"
    if low < high:
        cells[first] = "<" if low < 0 else "["
        cells[last] = ">" if high >= _WIDTH else "]"
    cells[min(max(value, 0), _WIDTH - 1)] = "o"
    return "".join(cells)


def _column(limits: float) -> int:
    """Return the column of a multiple of the limit; -1 or _WIDTH: outside of the plot."""
    column = _ZERO + limits * (_LIMIT - _ZERO)
    return round(min(max(column, -1.0), float(_WIDTH)))
