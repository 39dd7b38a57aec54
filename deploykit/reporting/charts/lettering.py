"""How wide a text is, and how it is broken into lines that fit."""

import functools
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence

_SIGNS = "/_-,;:=.|"  # a line may end behind one of these, if there is no blank
_ROOM = 1.01  # letters in a row may lie closer, and some farther apart
_TALLER = (4, 8, 16)


def clean(text: str) -> str:
    """Return it without what XML or a font has no sign for, such as an undecodable byte."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return how wide a text in one line is, in points, in a font as wide as DejaVu Sans."""
    return size * sum(_letter_width(letter, bold) for letter in text)


@functools.lru_cache(4096)
def _letter_width(letter: str, bold: bool) -> float:
    """Return the width of a letter for a size of 1; one that the font may lack counts as wide."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if not unicodedata.category(letter).startswith(("L", "N", "P", "S", "Z")):
        return 1.0
    if ord(letter) > 0x2FF and not 0x2000 <= ord(letter) < 0x2300:
        return 1.1
    font = FontProperties(family="DejaVu Sans", size=100, weight="bold" if bold else "normal")
    ten, none = (
        text_to_path.get_text_width_height_descent(f"x{text}x", font, ismath=False)[0]
        for text in (10 * letter, "")
    )
    return _ROOM * float(ten - none) / 1000


def wrapped(text: str, size: float, width: float, most: int, bold: bool = False) -> list[str]:
    """Return the lines of a text, each no wider than this; the middle is left out of a long one.

    Args:
        text: one line without signs that cannot be printed.
        size: of the letters, in points.
        width: of a line, in points.
        most: lines at most.
        bold: whether the letters are.
    """
    lines = _broken(text, size, width, bold)
    if len(lines) <= most:
        return lines
    keep = bisect_right(
        range(len(text)),
        most,
        key=lambda letters: len(_broken(_without_middle(text, letters), size, width, bold)),
    )
    return _broken(_without_middle(text, max(0, keep - 1)), size, width, bold)[:most]


def all_wrapped(names: Sequence[str], size: float, width: float, most: int = 2) -> list[list[str]]:
    """Return the lines of each name, with as many lines as keep them apart."""
    cleaned = [clean(name) for name in names]
    found: list[list[str]] = []
    for lines in (most, *(each for each in _TALLER if each > most)):
        found = [wrapped(name, size, width, lines) for name in cleaned]
        if len(set(map(tuple, found))) == len(set(cleaned)):
            return found
    numbered = [f"{number}. {name}" for number, name in enumerate(cleaned, 1)]
    return [wrapped(name, size, width, most) for name in numbered]


def _without_middle(text: str, letters: int) -> str:
    """Return so many letters of a text: of its start and of its end."""
    return f"{text[: (letters + 1) // 2]}…{text[len(text) - letters // 2 :]}"


def _broken(text: str, size: float, width: float, bold: bool) -> list[str]:
    """Return lines that end behind a blank or a sign, or anywhere in a word that is too long."""
    lines, start, end, used = [], 0, 0, 0.0
    while end < len(text):
        used += size * _letter_width(text[end], bold)
        if used <= width or end == start:
            end += 1
            continue
        least = start + (end - start) // 3
        blank = text.rfind(" ", least, end) + 1
        end = blank or max(text.rfind(sign, least, end) + 1 for sign in _SIGNS) or end
        lines.append(text[start:end].rstrip())
        start, used = end, 0.0
    return [*lines, text[start:]] if text[start:] or not lines else lines
