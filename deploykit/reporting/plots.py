"""Pictures in files: of a benchmark's result, and of anything else that is drawn on a sheet."""

import io
from pathlib import Path
from typing import Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.tables import machine_line
from deploykit.reporting.charts.figures import Draw
from deploykit.reporting.charts.gains import draw_gains, gain_rows
from deploykit.reporting.charts.latencies import draw_latencies
from deploykit.reporting.charts.lettering import clean, wrapped
from deploykit.reporting.charts.sheet import LINE, Place, Sheet
from deploykit.reporting.charts.style import MUTED, SMALL, TEXT, WIDTH, in_style
from deploykit.reporting.charts.throughput import draw_throughput, varied
from deploykit.reporting.charts.warm_ups import draw_warm_ups
from deploykit.text.durations import date
from deploykit.transforms.core.errors import GraphError

_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
_DPI = 120
_MARGIN, _GAP = 20.0, 36.0  # points
_TITLE = 15.0

Column = list[tuple[str, Draw]]
"""What is drawn from the top down, each under its heading."""


def check_plot(file_name: str) -> None:
    """Raise GraphError now for a plot that could not be drawn after a long run."""
    _kind(file_name)


def plot(result: BenchmarkResult, file_name: str) -> bytes:
    """Return a picture of the result, as PNG or SVG by the end of the file's name.

    It has the latencies of each measurement, throughput over latency where batches or calls in
    flight vary, how fast each is beside the first, and the warm-ups. GraphError: the name has
    another end.
    """
    rows, gains = result.measurements, gain_rows(result)
    along = varied(rows)
    left: Column = [("Latencies", lambda sheet, place: draw_latencies(sheet, place, rows))]
    right: Column = []
    if gains:
        title = "Beside the first of its load"
        left.append((title, lambda sheet, place: draw_gains(sheet, place, gains)))
    if along:
        title = f"Throughput over latency, by {along}"
        right.append((title, lambda sheet, place: draw_throughput(sheet, place, rows)))
    right.append(("Warm-up", lambda sheet, place: draw_warm_ups(sheet, place, rows)))
    return picture(
        f"deploykit benchmark, {date(result.started)}",
        machine_line(result),
        [left, right],
        file_name,
    )


def picture(title: str, line: str, columns: list[Column], file_name: str) -> bytes:
    """Return columns of charts under a title and a line, as PNG or SVG by the end of the name.

    GraphError: the name has another end.
    """
    kind, file = _kind(file_name), io.BytesIO()
    width = 2 * _MARGIN + WIDTH * len(columns) + _GAP * (len(columns) - 1)
    with in_style():
        sheet = Sheet()
        place = Place(_MARGIN, _MARGIN, width - 2 * _MARGIN)
        lines = wrapped(clean(title), _TITLE, place.width, 3, bold=True)
        top = sheet.write_lines(place, lines, size=_TITLE, bold=True) + 2
        told = wrapped(clean(line), SMALL, place.width, 3) if line else []
        top = sheet.write_lines(place.below(top), told, size=SMALL, colour=MUTED) + 12
        ends = [
            _draw_column(sheet, Place(_MARGIN + n * (WIDTH + _GAP), top, WIDTH), column)
            for n, column in enumerate(columns)
        ]
        figure = sheet.figure(width, max(ends) + _MARGIN)
        figure.savefig(file, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    return file.getvalue()


def _draw_column(sheet: Sheet, place: Place, column: Column) -> float:
    top = place.top
    for heading, draw in column:
        if heading:
            sheet.write(place.left, top + TEXT, heading, bold=True)
            top += LINE * TEXT + 4
        top = draw(sheet, place.below(top)) + 14
    return top


def _kind(file_name: str) -> str:
    kind = Path(file_name).suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise GraphError("plot-ending", source=file_name)
    return kind
