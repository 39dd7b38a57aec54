"""Charts as figures of their own, and values as their documents."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.reporting.charts.scale import UNITS
from deploykit.reporting.charts.sheet import Place, Sheet
from deploykit.reporting.charts.style import WIDTH, in_style
from deploykit.text.templates import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sheet, Place], float]
"""Draws a chart at a place of a sheet, and returns where it ends."""

_MARGIN = 4.0


def chart(draw: Draw, width: float = WIDTH) -> "Figure":
    """Return a chart as a figure, as wide as a phone unless told otherwise; in points."""
    with in_style():
        sheet = Sheet()
        bottom = draw(sheet, Place(_MARGIN, _MARGIN, width - 2 * _MARGIN))
        return sheet.figure(width, bottom + _MARGIN)


def benchmark_of(found: BenchmarkResult | Mapping[str, Any]) -> BenchmarkResult:
    """Return a result of `benchmark`, of its document too. GraphError: it is something else."""
    return found if isinstance(found, BenchmarkResult) else result_of(found, "the document")


def amount(value: float, kind: str) -> str:
    """Return a value with three digits that count, in the unit that suits it; see UNITS."""
    units = UNITS[kind]
    factor, sign = max([each for each in units if each[0] <= abs(value)] or [units[0]])
    return f"{number(value / factor)}{sign}"


def is_number(value: object) -> TypeGuard[float]:
    """Say whether it is a finite number: a figure of a document may be null."""
    return isinstance(value, int | float) and math.isfinite(value)
