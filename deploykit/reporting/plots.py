"""Draw a result: how latencies are spread, the warm-up, throughput against latency."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.tables import machine_line
from deploykit.reporting import panels
from deploykit.transforms.core.errors import GraphError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text: small, and a browser finds it
    "svg.hashsalt": "deploykit",
    "text.parse_math": False,  # a file's name may hold $
}
_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
_DPI = 120
_MOST_ROWS = 50

# All in inches.
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.35, 0.3, 1.0, 0.35
_ROW, _NAME, _TICKS = 1.05, 0.25, 0.25
_STRIP, _FIGURES, _WARM_UP, _GAP = 5.0, 1.7, 2.0, 0.9
_CURVE, _CURVE_HEIGHT, _CURVE_AXIS, _LEGEND_LINE = 4.6, 3.4, 0.65, 0.17
_NAME_LETTERS, _LEGEND_LETTERS = 120, 72


def check_plot(file_name: str) -> None:
    """Raise GraphError now for a plot that could not be drawn after a long run."""
    _kind(file_name)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise GraphError(
            f"{file_name}: a plot needs matplotlib, which is not installed; "
            "install it with: pip install 'deploykit[report]'"
        ) from None


def plot(result: BenchmarkResult, file_name: str) -> bytes:
    """Return a picture of the result, as PNG or SVG by the end of the file's name.

    It has a row for each measurement: the latencies of the steady state, with p50 and p99, and
    those of the warm-up. Beside them is a curve of throughput against latency where batches or
    calls in flight vary. GraphError: the name has another end, or matplotlib is not installed.
    """
    return drawn(lambda: _figure(result), file_name)


def drawn(draw: Callable[[], "Figure"], file_name: str) -> bytes:
    """Return what is drawn, in the style of the house, as PNG or SVG by the end of the name."""
    check_plot(file_name)
    from matplotlib import style

    kind, file = _kind(file_name), io.BytesIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in letters that the font lacks
        draw().savefig(file, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    return file.getvalue()


def _kind(file_name: str) -> str:
    kind = Path(file_name).suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise GraphError(f"{file_name}: a plot is a .png or an .svg, so let its name end with that")
    return kind


def _figure(result: BenchmarkResult) -> "Figure":
    """Lay the panels out from the top left, each of a fixed size."""
    from matplotlib.figure import Figure

    rows = result.measurements[:_MOST_ROWS]
    varied = panels.varied(result.measurements)
    lines = panels.lines(result.measurements, varied)
    names = [_shown(line.name, _LEGEND_LETTERS) for line in lines] if len(lines) > 1 else []
    legend = _LEGEND_LINE * len(names)
    beside = _NAME + _CURVE_HEIGHT + _CURVE_AXIS + legend if varied else 0.0
    body = max(_ROW * len(rows), 2 * _ROW, beside - _BOTTOM)
    warm_ups = _LEFT + _STRIP + _FIGURES
    curve = warm_ups + _WARM_UP + _GAP
    width = curve + _CURVE + _RIGHT if varied else warm_ups + _WARM_UP + _RIGHT
    height = _TOP + body + _BOTTOM
    figure = Figure(figsize=(width, height))

    def write(x: float, y: float, text: str, **more: Any) -> None:
        figure.text(x / width, 1 - y / height, text, va="top", **more)

    def place(x: float, y: float, wide: float, high: float) -> "Axes":
        top = _TOP + y
        size = wide / width, high / height
        return figure.add_axes((x / width, 1 - (top + high) / height, *size))

    of_all = "" if len(rows) == len(result.measurements) else f", the first {len(rows)} are shown"
    when = _clean(result.started[:16].replace("T", " "))
    write(_LEFT, 0.2, f"deploykit benchmark, {when}", size=11, weight="bold")
    write(_LEFT, 0.45, f"{_clean(machine_line(result))}{of_all}")
    write(_LEFT, 0.8, "steady state (line: p50, dashes: p99, ticks: slower calls)", weight="bold")
    write(warm_ups, 0.8, "warm-up in ms (diamond: first run)", weight="bold")
    alike: dict[tuple[int, int], list[Measurement]] = {}
    for each in rows:
        alike.setdefault(panels.load(each), []).append(each)
    ends = {load: panels.ends(group) for load, group in alike.items()}
    colours = {id(each): line.colour for line in lines for each in line.measurements}
    step = body / len(rows)
    for number, each in enumerate(rows):
        top, high = number * step + _NAME, step - _NAME - _TICKS
        strip, warm_up = place(_LEFT, top, _STRIP, high), place(warm_ups, top, _WARM_UP, high)
        strip.set_title(_shown(each.name, _NAME_LETTERS), pad=3)
        panels.draw_strip(strip, each, colours[id(each)], ends[panels.load(each)])
        panels.draw_warm_up(warm_up, each, colours[id(each)], ends[panels.load(each)])
    strip.set_xlabel("latency of a call in ms")
    warm_up.set_xlabel("time since the first run in s")
    if varied:
        write(curve, 0.8, f"throughput against latency, by {varied}", weight="bold")
        panels.draw_curve(place(curve, _NAME, _CURVE, _CURVE_HEIGHT), lines, names, varied)
    return figure


def _shown(name: str, letters: int) -> str:
    """Return a name in one line; both its ends count."""
    name, half = _clean(name), letters // 2
    return name if len(name) <= letters else f"{name[: half - 2]} ... {name[-half + 2 :]}"


def _clean(text: str) -> str:
    """Return it without what XML or a font has no sign for, such as an undecodable byte."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
