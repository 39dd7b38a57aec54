"""Values of an untrusted JSON document, and their display on a page."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.rendering.progress import date
from deploykit.rendering.templates import number, sentence, size

NOTHING = "\N{EN DASH}"
"""Placeholder for an unknown value."""
LONGEST = 600
"""Maximum number of characters shown of a text."""
_DEEP, _FEW = 3, 20  # shown nesting levels, and elements of each
_LARGE, _SMALL = 1e15, 1e-4
ENGINES = {"tensorflow": "TensorFlow", "openvino": "OpenVINO"}
_SHARES = ("top1", "top5", "accuracy")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_IMAGE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
_LARGEST_IMAGE = 16_000  # characters
# Invisible characters: controls, surrogates, and changes of the writing direction.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclass(frozen=True)
class DocumentPart:
    """A value of a document; a missing value, or one of an unexpected type, counts as null."""

    value: Any
    place: str = ""
    """Path in the document, such as `stages[3].document.layers`; empty: the whole document."""
    file: str = ""
    """File of the document, or its name."""
    key: str = ""
    """Key of the value in its object."""

    def __getitem__(self, key: str | int) -> "DocumentPart":
        inner: Any = None
        if isinstance(key, str):
            if isinstance(self.value, dict):
                inner = self.value.get(key)
            plain = _PLAIN_KEY.fullmatch(key)
            step = f".{key}" if plain else f"[{_quoted(key)}]"
            step = step if self.place or not plain else key
        else:
            if isinstance(self.value, list | tuple) and key < len(self.value):
                inner = self.value[key]
            step = f"[{key}]"
        return DocumentPart(inner, f"{self.place}{step}", self.file, shown(str(key)))

    def __bool__(self) -> bool:
        return self.value not in (None, "", [], {}, ())

    def __iter__(self) -> Iterator["DocumentPart"]:
        """Yield the elements of a list."""
        for count in range(len(self)):
            yield self[count]

    def __len__(self) -> int:
        return len(self.value) if isinstance(self.value, list | tuple) else 0

    def head(self, most: int) -> list["DocumentPart"]:
        """Return the first elements of a list."""
        return [self[count] for count in range(min(most, len(self)))]

    def entries(self) -> list["DocumentPart"]:
        """Return the values of an object, each with its key."""
        return [self[str(key)] for key in self.value] if isinstance(self.value, dict) else []

    @property
    def number(self) -> float | None:
        """The value as a finite number, or None."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        try:
            result = float(self.value)
        except OverflowError:
            return None
        return result if math.isfinite(result) else None

    @property
    def text(self) -> str:
        """The value as displayable text; empty if it is not a string."""
        return shown(self.value) if isinstance(self.value, str) else ""

    @property
    def words(self) -> str:
        """Any value as displayable text: a setting, a shape, a list of names."""
        return self._words(_DEEP)

    def _words(self, levels: int) -> str:
        if isinstance(self.value, dict | list | tuple) and not levels:
            return "…"
        if isinstance(self.value, dict):
            few = self.entries()[:_FEW]
            return shown(", ".join(f"{item.key} {item._words(levels - 1)}" for item in few))
        if isinstance(self.value, list | tuple):
            inner = [item._words(levels - 1) for item in self.head(_FEW)]
            return shown(", ".join(inner + ["…"] * (len(self) > _FEW)))
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if self.number is not None:
            return f"{self.number:,.0f}" if isinstance(self.value, int) else f"{self.number:.6g}"
        return self.text

    @property
    def holds(self) -> bool:
        """Whether the value is true."""
        return self.value is True

    @property
    def image(self) -> str:
        """The data URI of a small image; empty for any other value."""
        fits = isinstance(self.value, str) and len(self.value) <= _LARGEST_IMAGE
        return self.value if fits and _IMAGE.fullmatch(self.value) else ""


def shown(text: str, longest: int = LONGEST) -> str:
    """Return a text with invisible characters replaced; a long one is shortened in the middle."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-longest // 2 :]}"
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _quoted(key: str) -> str:
    return '"' + shown(key).replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(value: float | None) -> str:
    """Return a number with three significant digits: 0.00123, 12.3, 12,345."""
    if value is None:
        return NOTHING
    if value and not _SMALL <= abs(value) < _LARGE:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else number(value)


def whole(value: float | None) -> str:
    """Return a count as text."""
    return NOTHING if value is None else f"{value:,.0f}" if abs(value) < _LARGE else f"{value:.2e}"


def amount(value: float | None, unit: str) -> str:
    """Return a value with a unit: share (as a percentage), bytes, or a text after the number."""
    if value is None:
        return NOTHING
    if unit == "share":
        return f"{100 * value:.1f} %" if abs(value) < _LARGE else f"{value:.2e}"
    if unit == "bytes":
        return size(int(value)) if 0 <= value < _LARGE else f"{value:.2e} B"
    return f"{plain(value)} {unit}".rstrip()


def seconds(value: float | None) -> str:
    """Return a duration in readable form: 3 ms, 0.4 s, 12 s, 2:10 min."""
    if value is None:
        return NOTHING
    if not 0 <= value < 1e7:
        return f"{value:.2e} s"
    if value < 0.1:
        return f"{number(1000 * value)} ms"
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 100 else f"{int(value) // 60}:{int(value) % 60:02} min"


def span(low: float | None, high: float | None, unit: str = "", to: str = " to ") -> str:
    """Return an interval as text; empty if it is unknown or a point."""
    if low is None or high is None or low == high:
        return ""
    ends = [amount(item, unit) for item in (low, high)]
    last = ends[0].rpartition(" ")
    if last[0] and last[2] == ends[1].rpartition(" ")[2]:
        ends[0] = last[0]  # the unit appears once
    return to.join(ends)


def interval(part: DocumentPart, unit: str = "") -> str:
    """Return the interval of a list of two, or of an object with `low` and `high`."""
    low, high = ("low", "high") if isinstance(part.value, dict) else (0, 1)
    return span(part[low].number, part[high].number, unit)


def with_interval(part: DocumentPart, unit: str = "") -> str:
    """Return the `value` of an object with its interval."""
    value, ends = amount(part["value"].number, unit), interval(part, unit)
    return f"{value} ({ends})" if ends else value


def times(part: DocumentPart, key: str = "value") -> str:
    """Return a ratio with its interval: 2.1x (2.0-2.2)."""
    value, ends = part[key].number, span(part["low"].number, part["high"].number, to="-")
    if value is None:
        return NOTHING
    return f"{plain(value)}x ({ends})" if ends else f"{plain(value)}x"


def gain(part: DocumentPart) -> str:
    """Return a change with its sign; changes of shares are in percentage points."""
    value, ends = part["value"].number, [part[end].number for end in ("low", "high")]
    if value is None:
        return NOTHING
    known = [end for end in ends if end is not None]
    return _signed(value) + (f" ({' to '.join(map(_signed, known))})" if len(known) == 2 else "")


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}" if abs(value) < _LARGE else f"{value:+.2e}"


def _of_number(show: Callable[..., str]) -> Callable[..., str]:
    """Return a filter that formats the number of a part, or a number."""

    def filter_(value: DocumentPart | float | None, *more: str) -> str:
        return show(value.number if isinstance(value, DocumentPart) else value, *more)

    return filter_


def _tally(texts: list[str]) -> str:
    """Return the count of each of the first few distinct texts: 3 done, 1 skipped."""
    return ", ".join(f"{count} {text}" for text, count in list(Counter(texts).items())[:4])


FILTERS: Mapping[str, Callable[..., Any]] = {
    **{item.__name__: _of_number(item) for item in (plain, whole, amount, seconds)},
    "share": lambda part: amount(part.number, "share"),
    "volume": lambda part: amount(part.number, "bytes"),
    "interval": interval,
    "with_interval": with_interval,
    "times": times,
    "gain": gain,
    "sentence": sentence,
    "unit": lambda metric: "share" if metric.text in _SHARES else "",
    "span": lambda ends: span(*ends),
    "engine": lambda part: ENGINES.get(part.text, part.text),
    "settings": lambda part: ", ".join(
        f"{entry.key.replace('_', ' ')} {entry.words}" for entry in part.entries()
    ),
    "texts": lambda part, key="": [(item[key] if key else item).text for item in part],
    "tally": _tally,
    "date": lambda part: date(part.text),
}
"""Jinja filters that format parts."""
