"""How charts look: colours by role, as a page can set them, and letters."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK = "#222222"
MUTED = "#5c5c5c"
GRID = "#dddddd"
PAPER = "#ffffff"
# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow that white hides.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666")

VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)
}
"""The CSS variable that stands for each colour in a page."""

TEXT, SMALL = 12.0, 11.0
"""Sizes of letters, in points."""
WIDTH = 380.0
"""Of a chart, in points: about as many as the CSS pixels of a phone."""

_RC: dict[str, Any] = {
    "font.size": TEXT,
    "figure.facecolor": PAPER,
    "svg.fonttype": "none",  # text stays text: small, and a browser finds it
    "svg.hashsalt": "deploykit",
    "text.parse_math": False,  # a file's name may hold $
    "text.hinting": "none",  # letters are as wide as they were measured, whatever their size
    "path.simplify": False,
}


@contextmanager
def in_style() -> Iterator[None]:
    """Draw and save in this style, whatever the user's own matplotlibrc says."""
    logger = logging.getLogger("matplotlib")  # it tells of caches of its own, when it is imported
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        from matplotlib import style

        with style.context(["default", _RC]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a name in letters that the font lacks
            yield
    finally:
        logger.setLevel(level)


def series_colour(number: int) -> str:
    """Return the colour of a series, counted from 0; after seven they come again."""
    return SERIES[number % len(SERIES)]
