"""The rule of CSV, which every command that reads it asks: what is a header, and what is a number.

A first line is a header only if it cannot be a row: no cell is a number, and none is empty.
"""

import math
from collections.abc import Sequence
from typing import Any

BEYOND = "which is beyond float64"
_EXPECTED = "expected a number"


def number(cell: str) -> float:
    """Return a cell as a number, without the blanks around it.

    A number has Python's syntax of floats, in ASCII and without underscores. ValueError, with a
    reason: it is not a number, or beyond float64.
    """
    text = cell.strip()
    if not text.isascii() or "_" in text:  # float() accepts other digits, and 1_000
        raise ValueError(_EXPECTED)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if math.isinf(value) and "n" not in text.lower():  # neither inf nor infinity
        raise ValueError(BEYOND)
    return value


def is_number(cell: Any) -> bool:
    """Return whether a cell, a text or a Python value, is a number in float64."""
    return not _problem(cell)


def is_header(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line name the columns, as none is empty or a number."""
    return bool(cells) and all(cell.strip() and _problem(cell) == _EXPECTED for cell in cells)


def _problem(cell: Any) -> str:
    try:
        number(cell.decode() if isinstance(cell, bytes) else str(cell))
    except ValueError as error:  # UnicodeDecodeError is one
        return _EXPECTED if isinstance(error, UnicodeDecodeError) else str(error)
    return ""
