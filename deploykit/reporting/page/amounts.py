"""Figures as a page shows them: with their unit, and with the interval they lie in."""

from deploykit.reporting.page.part import DocumentPart
from deploykit.text.templates import number, size

NOTHING = "\N{EN DASH}"
"""Stands where a figure is not known."""
_LARGE, _SMALL = 1e15, 1e-4


def plain(value: float | None) -> str:
    """Return a number with three digits that count: 0.00123, 12.3, 12,345."""
    if value is None:
        return NOTHING
    if value and not _SMALL <= abs(value) < _LARGE:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else number(value)


def whole(value: float | None) -> str:
    """Return a count."""
    return NOTHING if value is None else f"{value:,.0f}" if abs(value) < _LARGE else f"{value:.2e}"


def share(value: float | None) -> str:
    """Return a share of 1 in percent."""
    if value is None:
        return NOTHING
    return f"{100 * value:.1f} %" if abs(value) < _LARGE else f"{value:.2e}"


def volume(value: float | None) -> str:
    """Return a number of bytes."""
    if value is None:
        return NOTHING
    return size(int(value)) if 0 <= value < _LARGE else f"{value:.2e} B"


def amount(value: float | None, unit: str) -> str:
    """Return a value in a unit of figures: share, bytes, or what is written behind the number."""
    if value is None:
        return NOTHING
    if unit == "share":
        return share(value)
    if unit == "bytes":
        return volume(value)
    return f"{plain(value)} {unit}".rstrip()


def span(low: float | None, high: float | None, unit: str = "") -> str:
    """Return an interval, or nothing where it is not known, or is a point."""
    if low is None or high is None or low == high:
        return ""
    ends = [amount(each, unit) for each in (low, high)]
    last = ends[0].rpartition(" ")
    if last[0] and last[2] == ends[1].rpartition(" ")[2]:
        ends[0] = last[0]  # the unit is said once
    return " to ".join(ends)


def interval(part: DocumentPart, unit: str = "") -> str:
    """Return the interval of a list of two, or of an object with `low` and `high`."""
    if isinstance(part.value, dict):
        return span(part["low"].number, part["high"].number, unit)
    return span(part[0].number, part[1].number, unit)


def times(part: DocumentPart) -> str:
    """Return a ratio with its interval: 2.1 times (2.0 to 2.2)."""
    return ratio(part["value"], part["low"], part["high"])


def ratio(value: DocumentPart, low: DocumentPart, high: DocumentPart) -> str:
    """Return a ratio whose parts have other names."""
    if value.number is None:
        return NOTHING
    ends = span(low.number, high.number)
    return f"{plain(value.number)} times{f' ({ends})' if ends else ''}"


def gain(part: DocumentPart) -> str:
    """Return a change with its sign, in points where it is one of shares."""
    value, ends = part["value"].number, [part[end].number for end in ("low", "high")]
    if value is None:
        return NOTHING
    found = _signed(value)
    known = [each for each in ends if each is not None]
    return found + (f" ({' to '.join(map(_signed, known))})" if len(known) == 2 else "")


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}" if abs(value) < _LARGE else f"{value:+.2e}"


def seconds(value: float | None) -> str:
    """Return a time as people say it: 3 ms, 0.4 s, 12 s, 2:10 min."""
    if value is None:
        return NOTHING
    if not 0 <= value < 1e7:
        return f"{value:.2e} s"
    if value < 0.1:
        return f"{number(1000 * value)} ms"
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 100 else f"{int(value) // 60}:{int(value) % 60:02} min"
