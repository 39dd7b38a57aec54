"""Templates for sentences and table cells, with readable formats for values.

In `"{rows:n row} of [[{parts} parts, ]]{bytes:size}"`, each field has a format. The part in double
brackets is omitted if a value in it is missing or empty.
"""

import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from deploykit.rendering.progress import clock_time
from deploykit.transforms.common.messages import escaped

_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


def filled(template: str, row: Any) -> str | None:
    """Return a template filled with values of a row; None if a value is missing or empty.

    Fields are paths of attributes, keys and indices; `{}` is the row itself. Formats are those of
    Python, `n NOUN` for a count, `list N` for the first N of a list, and the names in `FORMS`. A
    pair of numbers is formatted as an interval. Values are escaped, as names may contain control
    codes and line breaks.
    """
    parts = _OPTIONAL.split(template)
    texts = [_filled(part, row) for part in parts]
    if None in texts[::2]:
        return None
    return "".join(text or "" for text in texts)


def filled_lines(row: Any, *templates: str) -> Iterator[str]:
    """Yield the templates whose values are all present, as lines."""
    for template in templates:
        if (text := filled(template, row)) is not None:
            yield text


def rendered_rows(rows: Iterable[Any], template: str) -> Iterator[str]:
    """Yield a line for each row that has all values of the template."""
    for row in rows:
        yield from filled_lines(row, template)


def _filled(template: str, row: Any) -> str | None:
    results = []
    for literal, path, form, _ in string.Formatter().parse(template):
        results.append(literal)
        if path is not None:
            value = _at(row, path)
            if value is None or (isinstance(value, Sized) and not len(value)):
                return None
            results.append(escaped(_formatted(value, form or "")))
    return "".join(results)


def _at(value: Any, path: str) -> Any:
    while path and value is not None:
        if isinstance(value, Mapping) and path in value:
            return value[path]
        name, _, path = path.partition(".")
        if isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = value[int(name)] if name.isdigit() else getattr(value, name)
    return value


def _formatted(value: Any, form: str) -> str:
    if form.startswith("n "):
        return counted(value, form[2:])
    if form.startswith("list "):
        return listed([*map(str, value)], int(form[5:]))
    one = FORMS.get(form, lambda number: format(number, form))
    if isinstance(value, list | tuple):
        numbers = len(value) == 2 and not isinstance(value[0], str)
        return between(value, one) if form and numbers else ", ".join(map(str, value))
    return one(value)


def size(count: int | None) -> str:
    """Return a number of bytes as text: 812 B, 4.9 MB."""
    if count is None:
        return "-"
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in_unit = count / 1000
        if count_in_unit < 1000:
            return (
                f"{count_in_unit:.3g} {unit}"
                if count_in_unit < 100
                else f"{count_in_unit:.0f} {unit}"
            )
        count = round(count_in_unit)
    return f"{count / 1000:.3g} GB"


def number(value: float) -> str:
    """Return a number with three significant digits, and no exponent."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])  # of the rounded value
    return f"{value:.{max(0, 2 - exponent)}f}"


def decibels(ratio: float) -> str:
    """Return a noise ratio as text: `26.0 dB`, or `equal` for an infinite ratio."""
    return "equal" if ratio == math.inf else f"{ratio:.1f} dB"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 row, 1,200 rows."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def between(ends: Sequence[float], form: Callable[[float], str] = number) -> str:
    """Return an interval as text: 1.14-1.95, or -0.5 to 0.3 if an end has a sign."""
    low, high = map(form, ends)
    unit = " %" if low.endswith(" %") and high.endswith(" %") else ""
    return f"{low.removesuffix(unit)}{' to ' if low[:1] in '-+' else '-'}{high}"


def listed(names: Sequence[str], most: int) -> str:
    """Return up to `most` names separated by commas, and the number of the others."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def sentence(text: str) -> str:
    """Return a text with a capital first letter, unless its first word may be a name."""
    first = text.split(maxsplit=1)[0].rstrip(",:;") if text.strip() else ""
    return f"{text[0].upper()}{text[1:]}" if first.isalpha() else text


FORMS: Mapping[str, Callable[[Any], str]] = {
    "size": size,
    "number": number,
    "share": lambda value: f"{100 * value:.1f} %",
    "percent": lambda value: f"{100 * value:.0f} %",
    "dB": decibels,
    "time": clock_time,
    "on": lambda value: "on" if value else "off",
}
