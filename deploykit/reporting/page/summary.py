"""Summary of a shipped model: five metrics before and after."""

from collections.abc import Iterator
from dataclasses import dataclass

from deploykit.rendering.templates import sentence
from deploykit.reporting.page.values import DocumentPart, amount, gain, interval, plain

FIGURES = ("accuracy", "size", "p50", "rate", "cpu")
_TITLES = {"accuracy": "accuracy", "size": "size", "p50": "latency (p50)", "rate": "throughput",
           "cpu": "CPU time"}  # fmt: skip


@dataclass(frozen=True)
class ComparisonBar:
    """A value as a bar; positions are percentages of the larger of both values."""

    name: str
    value: str
    interval: str
    width: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Card:
    """A metric before and after."""

    name: str
    title: str
    value: str
    """Value after; if unknown, the value before."""
    unit: str
    change: str
    tone: str
    bars: tuple[ComparisonBar, ...]
    verdict: str
    place: str


def figure_cards(part: DocumentPart) -> tuple[Card, ...]:
    """Return a card for each of the five metrics in a report of `deploykit ship`."""
    return tuple(_card(name, part["figures"][name]) for name in FIGURES)


def _card(name: str, part: DocumentPart) -> Card:
    unit = part["unit"].text
    before, after = part["before"], part["after"]
    values = [item["value"].number for item in (before, after)]
    known = [value for value in values if value is not None]
    shown = known[-1] if known else None
    message = part["verdict"].text or ("" if known else "not measured")
    change, tone = _change(part, unit)
    if loaded := part["loaded"].text:
        change, tone = f"{change}, loaded machine" if change else "", tone and "doubt"
        message = message if loaded in message else f"{message}, {loaded}"
    if not tone and message.startswith(("inconclusive", "undecided")):
        tone = "doubt"
    value, sign = amount(shown, unit), ""
    if shown is not None and unit not in ("share", "bytes"):
        value, sign = amount(shown, ""), unit
    return Card(name, part["title"].text or _TITLES[name], value, sign, change, tone,
                tuple(_bars(before, after, unit)), sentence(message), part.place)  # fmt: skip


def _bars(before: DocumentPart, after: DocumentPart, unit: str) -> Iterator[ComparisonBar]:
    """Yield a bar for each known value, before and after, with positions from 0 to 100."""
    parts = (("before", before), ("after", after))
    highs = [part[end].number for _, part in parts for end in ("value", "high")]
    most = max((high for high in highs if high is not None), default=0.0)
    for name, part in parts:
        value = part["value"].number
        if value is None:
            continue
        width, low, high = (
            None if item is None or most <= 0 else min(100.0, max(0.0, 100 * item / most))
            for item in (value, part["low"].number, part["high"].number)
        )
        yield ComparisonBar(
            name, amount(value, unit), interval(part, unit), width or 0.0, low, high
        )


def _change(part: DocumentPart, unit: str) -> tuple[str, str]:
    """Return the improvement in words, and its tone."""
    ratio, change = part["ratio"], part["change"]
    value = ratio["value"].number
    if value is not None:
        low, high = ratio["low"].number, ratio["high"].number
        result = f"{plain(value)} \N{MULTIPLICATION SIGN}"
        ends_of = interval(ratio)
        tone = _tone(value if low is None else low, value if high is None else high, 1.0)
        return (f"{result} ({ends_of})" if ends_of else result), tone
    if change["value"].number is None:
        return "", ""
    low, high = (change[end].number for end in ("low", "high"))
    is_share = unit == "share"
    message = f"{gain(change)} points" if is_share else f"{change['value'].number:+.3g}"
    if low is None or high is None:
        return message, ""
    tone = _tone(low, high, 0.0)
    flipped = {"good": "bad", "bad": "good"} if part["better"].text == "lower" else {}
    return message, flipped.get(tone, tone)


def _tone(low: float, high: float, even: float) -> str:
    return "good" if low > even else "bad" if high < even else ""
