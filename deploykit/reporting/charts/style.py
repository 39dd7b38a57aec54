"""Style of charts: colours that a page can override, fonts, fitting names, and units."""

import functools
import logging
import math
import unicodedata
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from deploykit.rendering.templates import number
from deploykit.transforms.common.messages import escaped

INK = "#222222"
MUTED = "#5c5c5c"
GRID = "#dddddd"
PAPER = "#ffffff"
# Okabe and Ito's colours are safe for colour-blind readers; their yellow is invisible on white.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666")
MARKERS = ("o", "s", "^", "D", "v")

VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)
}
"""The CSS variable of each colour in a page."""

TEXT, SMALL = 12.0, 11.0
"""Font sizes in points."""

_RC: dict[str, Any] = {
    "font.size": SMALL,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlesize": SMALL,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "figure.facecolor": PAPER,
    "svg.fonttype": "none",  # text elements are small and searchable
    "svg.hashsalt": "deploykit",
    "text.parse_math": False,  # a file name may contain $
    "text.hinting": "none",  # else the width of text depends on its size
}
UNITS: dict[str, Sequence[tuple[float, str]]] = {
    "ms": ((1e-3, " µs"), (1, " ms"), (1e3, " s")),
    "us": ((1, " µs"), (1e3, " ms"), (1e6, " s")),
    "count": ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")),
    "share": ((0.01, " %"),),
    "plain": ((1, ""),),
}
"""Units by kind of value, as (factor, sign), smallest first."""
_WIDER = 1.01  # browsers may space letters slightly wider


@contextmanager
def in_style() -> Iterator[None]:
    """Draw and save in this style, independent of the user's matplotlibrc."""
    logger = logging.getLogger("matplotlib")  # it logs its own caches on import
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        from matplotlib import style

        with style.context(["default", _RC]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # the font may lack letters of a name
            yield
    finally:
        logger.setLevel(level)


def series_colour(index: int) -> str:
    """Return the colour of a series by its index from 0; the colours repeat after seven."""
    return SERIES[index % len(SERIES)]


def unit_of(value: float, kind: str) -> tuple[float, str]:
    """Return the factor and the sign of the unit that fits a value."""
    units = UNITS[kind]
    return max([unit for unit in units if unit[0] <= abs(value) * 1.0001] or [units[0]])


def amount(value: float, kind: str) -> str:
    """Return a value with three significant digits, in a fitting unit; see UNITS."""
    factor, sign = unit_of(value, kind)
    return f"{number(value / factor)}{sign}"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether the value is a finite number; values of a document may be null."""
    return isinstance(value, int | float) and math.isfinite(value)


def text_width(text: str, size: float) -> float:
    """Return the width of a single-line text in points, in a font as wide as DejaVu Sans."""
    return size * sum(map(_letter_width, text))


@functools.lru_cache(4096)
def _letter_width(letter: str) -> float:
    """Return the width of a letter for size 1; one that the font may lack counts as wide."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if not unicodedata.category(letter).startswith(("L", "N", "P", "S", "Z")):
        return 1.0
    if ord(letter) > 0x2FF and not 0x2000 <= ord(letter) < 0x2300:
        return 1.15
    font = FontProperties(family="DejaVu Sans", size=100)
    ten, none = (
        text_to_path.get_text_width_height_descent(f"x{text}x", font, ismath=False)[0]
        for text in (10 * letter, "")
    )
    return _WIDER * float(ten - none) / 1000


def shortened(text: str, size: float, width: float) -> str:
    """Return a single-line text of at most this width in points, shortened in the middle."""
    text = escaped(text)
    if text_width(text, size) <= width:
        return text

    def without_middle(letters: int) -> str:
        return f"{text[: (letters + 1) // 2]}…{text[len(text) - letters // 2 :]}"

    fits = range(1, len(text))
    letters_left = bisect_right(fits, width, key=lambda n: text_width(without_middle(n), size))
    return without_middle(letters_left)


def distinct(names: Sequence[str], size: float, width: float) -> list[str]:
    """Return names of at most this width, with numbers if two would look the same."""
    results = [shortened(name, size, width) for name in names]
    if len(set(results)) == len(set(names)):
        return results
    return [shortened(f"{place}. {name}", size, width) for place, name in enumerate(names, 1)]
