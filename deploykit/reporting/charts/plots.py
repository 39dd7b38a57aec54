"""Charts as files, for the option --plot of commands."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.tables import machine_line
from deploykit.rendering.progress import date
from deploykit.reporting.charts.bars import gains
from deploykit.reporting.charts.chart import WIDTH, Chart, lay_out, new_figure
from deploykit.reporting.charts.curves import loads, throughput, varied
from deploykit.reporting.charts.strips import latencies
from deploykit.reporting.charts.style import INK, MUTED, SMALL, TEXT, in_style, shortened
from deploykit.transforms.common.errors import GraphError

_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
_DPI = 120
_TITLE, _TITLE_LINE, _HEADING = 14.0, 20.0, 24.0  # points


def check_plot(file_name: str) -> None:
    """Raise GraphError for an unsupported file name, before a long run."""
    _kind(file_name)


def plot(result: BenchmarkResult, file_name: str) -> bytes:
    """Return an image of the result, as PNG or SVG by the file name's extension.

    It shows the latencies of each measurement, throughput over latency if batch or concurrency
    vary, and speedups relative to the first. GraphError: another extension.
    """
    along, ratios = varied(result.measurements), gains(result)
    charts = [("Latencies", latencies(result))]
    if ratios:
        charts.append(("Relative to the first of its load", ratios))
    if along:
        charts.append((f"Throughput over latency, by {along}", throughput(result)))
    title = f"deploykit benchmark, {date(result.started)}"
    return picture(title, machine_line(result), charts, file_name)


def plot_loads(results: Mapping[str, Any], file_name: str) -> bytes:
    """Return an image of throughput over latency, with a point for each load.

    `results` is the document of a load test. GraphError: the extension is neither .png nor .svg.
    """
    drawn = loads(results)
    line = "" if drawn else "no request was answered"
    title = f"{results['model']} at {results['address']}"
    return picture(title, line, [("", drawn)] if drawn else [], file_name)


def picture(title: str, line: str, charts: Sequence[tuple[str, Chart]], file_name: str) -> bytes:
    """Return charts with their headings under a title and a line, as PNG or SVG by the extension.

    GraphError: another extension.
    """
    kind, file = _kind(file_name), io.BytesIO()
    lines = [(title, _TITLE, INK), *([(line, SMALL, MUTED)] if line else [])]
    top = _TITLE_LINE * len(lines) + 10
    with in_style():
        heights = [top, *(_HEADING * bool(heading) + chart.height for heading, chart in charts)]
        figure = new_figure(WIDTH, sum(heights))
        head, *parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[
            :, 0
        ]
        for place, (text, size, colour) in enumerate(lines, 1):
            head.text(0.01, 1 - _TITLE_LINE * place / top, shortened(text, size, WIDTH - 16),
                      fontsize=size, color=colour)  # fmt: skip
        for part, (heading, chart) in zip(parts, charts, strict=True):
            if heading:
                part.suptitle(heading, x=0.01, ha="left", fontsize=TEXT, fontweight="bold",
                              color=INK)  # fmt: skip
            chart.draw_into(part)
        lay_out(figure)
        figure.savefig(file, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    return file.getvalue()


def _kind(file_name: str) -> str:
    kind = Path(file_name).suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise GraphError("plot-ending", source=file_name)
    return kind
