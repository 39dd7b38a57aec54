"""Charts as values that draw themselves into a figure, and the axes that they share."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.reporting.charts.style import (
    GRID,
    INK,
    MARKERS,
    MUTED,
    SMALL,
    TEXT,
    distinct,
    in_style,
    series_colour,
    shortened,
    text_width,
    unit_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

    FigureLike = Figure | SubFigure

WIDTH = 380.0
"""Of a chart, in points: about as many as the CSS pixels of a phone."""
LINE = 14.0
"""The height of a line of small text, in points."""
PLANE = 290.0
"""The `body` of a chart with two axes of values."""
ROW_END = 0.9
"""Where the data of a row ends, as a share of it."""
_INCH = 72.0
_LEGEND_LINE, _LEGEND_INDENT = 16.5, 30.0
_NOTE_WIDTH = 325.0
_DIGITS = 5  # of a position, as a share of the figure
_LONG = 4  # an axis whose highest value is more than so many times the lowest is logarithmic
_LABEL = "label"
_OFFSETS = [(x, y) for y in (6, -6, 0) for x in (6, -6, 0) if x or y]
_ALIGN = {6: ("left", "bottom"), -6: ("right", "top"), 0: ("center", "center")}


@dataclass(frozen=True)
class Chart:
    """A chart of WIDTH that can be drawn into a figure or into a part of one."""

    body: float
    """The height of its axes with their tick labels, in points."""
    draw: Callable[["FigureLike"], "Axes"]
    """Draws its axes into a figure of its size, and returns the lowest of them."""
    notes: Sequence[str] = ()
    """What is written below the horizontal axis; a title of that axis is the first of them."""
    legend: Sequence[tuple[str, int | None]] = ()
    """Names, each with the number of its series; None: it has no mark."""
    is_bars: bool = False
    """Whether the legend stands above, with squares for marks."""

    @property
    def height(self) -> float:
        """The height of all of it, in points."""
        rest = LINE * len(self._lines()) + (_LEGEND_LINE * len(self.legend) + 6)
        return self.body + rest

    def figure(self) -> "Figure":
        """Return the chart as a figure."""
        with in_style():
            figure = new_figure(WIDTH, self.height)
            self.draw_into(figure)
            lay_out(figure)
        return figure

    def draw_into(self, figure: "FigureLike") -> None:
        """Draw it into a figure of its size, or a part of one; see `lay_out`."""
        self.draw(figure).set_xlabel("\n".join(self._lines()), loc="left")
        if not self.legend:
            return
        result = figure.legend(
            [_mark(number, self.is_bars) for _, number in self.legend],
            [str(place) for place in range(len(self.legend))],
            loc="outside upper left" if self.is_bars else "outside lower left",
            frameon=False, handlelength=0.8, handletextpad=0.6, borderpad=0, labelspacing=0.35,
        )  # fmt: skip
        names = distinct([name for name, _ in self.legend], SMALL, WIDTH - _LEGEND_INDENT)
        for text, name in zip(result.get_texts(), names, strict=True):
            text.set_text(name)  # matplotlib skips a label that starts with an underscore

    def _lines(self) -> list[str]:
        return [line for note in self.notes for line in _wrapped(note)]


def _wrapped(note: str) -> list[str]:
    """Return the lines of a note, as wide as axes are beside the labels of their ticks."""
    lines = [""]
    for word in note.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, SMALL) <= _NOTE_WIDTH:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _mark(number: int | None, is_bar: bool) -> "Line2D":
    """Return the mark of a series in a legend, or none."""
    from matplotlib.lines import Line2D

    if number is None:
        return Line2D([], [], linestyle="none")
    marker = MARKERS[1 if is_bar else number % len(MARKERS)]
    colour = series_colour(number)
    return Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=6)


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / _INCH, height / _INCH), layout="constrained")


def benchmark_of(results: BenchmarkResult | Mapping[str, Any]) -> BenchmarkResult:
    """Return a result of `benchmark`, or that of its document. GraphError: it is neither."""
    return results if isinstance(results, BenchmarkResult) else result_of(results, "the document")


def limits(values: Iterable[float], zero: bool = False, log: bool = True) -> tuple[float, float]:
    """Return the limits of an axis that shows all values, from 0 on if `zero` and not log."""
    known = list(values)
    low, high = min(known), max(known)
    if log and is_long(low, high):
        room = (high / low) ** 0.04
        return low / room, high * room
    if zero and low >= 0:
        return 0.0, 1.12 * high or 1.0
    room = max(0.04 * (high - low), 0.02 * abs(high)) or 1.0
    return low - room, high + room


def is_long(low: float, high: float) -> bool:
    """Return whether an axis with these limits is logarithmic."""
    return high > _LONG * low > 0


def set_axis(
    axes: "Axes", name: Literal["x", "y"], ends: tuple[float, float], kind: str, log: bool = True
) -> None:
    """Set the limits of an axis, and ticks with units; see UNITS for the kind of its values."""
    from matplotlib import ticker

    low, high = ends
    log = log and is_long(low, high)

    def label(value: float, position: object) -> str:
        factor, sign = unit_of(value if log else max(abs(low), abs(high)), kind)
        return f"{value / factor:.6g}{sign if value or kind == 'share' else ''}"

    axes.set(**{f"{name}scale": "log" if log else "linear", f"{name}lim": ends})
    axis = axes.xaxis if name == "x" else axes.yaxis
    locator: ticker.Locator = ticker.MaxNLocator(5, steps=[1, 2, 5, 10], integer=kind == "number")
    if log:
        spans = ((8, (1, 1.5, 2, 3, 4, 5, 7)), (20, (1, 2, 3, 5)), (200, (1, 2, 5)))
        subs = next((subs for span, subs in spans if high < span * low), (1,))
        locator = ticker.LogLocator(subs=subs, numticks=7 if len(subs) > 1 else 5)
    axis.set_major_locator(locator)
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(label))


def new_plane(
    figure: "FigureLike",
    scales: tuple[tuple[Sequence[float], str], tuple[Sequence[float], str]],
    title: str,
    *,
    zero: bool = False,
    log: bool = True,
) -> "Axes":
    """Return axes for values of both directions, each with its kind; the title is that of y."""
    axes = figure.add_subplot()
    for name, (values, kind) in zip(("x", "y"), scales, strict=True):
        set_axis(axes, "x" if name == "x" else "y", limits(values, zero, log), kind, log)
    axes.grid()
    axes.set_title(title)
    return axes


def add_label(axes: "Axes", text: str, x: float, y: float) -> None:
    """Write a label beside a point; see `lay_out`."""
    axes.annotate(text, (x, y), (6, 6), textcoords="offset points", gid=_LABEL, in_layout=False)


def lay_out(figure: "Figure") -> None:
    """Lay a figure out for good; move labels of points off others, and off lines where they can.

    The first labels have the choice; one that has no room is hidden.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import SubFigure
    from matplotlib.transforms import Bbox

    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")  # a layout takes longer than to draw
    # The solver's last digits vary, and the ids of clip paths with them: the same data would give
    # another file. Data lies inside its axes, so nothing needs a clip path.
    for part in figure.findobj(SubFigure):
        part.bbox_relative.p0, part.bbox_relative.p1 = (
            ends.round(_DIGITS) for ends in (part.bbox_relative.p0, part.bbox_relative.p1)
        )
    for axes in figure.axes:
        bounds = (round(bound, _DIGITS) for bound in axes.get_position().bounds)
        axes.set_position(Bbox.from_bounds(*bounds))
    for item in figure.findobj():
        item.set_clip_on(False)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    labels = [
        (axes, text) for axes in figure.axes for text in axes.texts if text.get_gid() == _LABEL
    ]
    used: list[Bbox] = []
    for axes, label in labels:
        inside = axes.get_window_extent(renderer)
        lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
        free = []
        for rank, (x, y) in enumerate(_OFFSETS):
            label.set(position=(x, y), ha=_ALIGN[x][0], va=_ALIGN[y][1])
            box = label.get_window_extent(renderer)
            corners = [box.min, box.max]
            if inside.count_contains(corners) == len(corners) and not box.count_overlaps(used):
                crossed = sum(line.intersects_bbox(box.padded(2), filled=False) for line in lines)
                free.append((crossed, rank, box))
        label.set_visible(bool(free))
        if free:
            _, rank, box = min(free, key=lambda entry: entry[:2])
            x, y = _OFFSETS[rank]
            label.set(position=(x, y), ha=_ALIGN[x][0], va=_ALIGN[y][1])
            used.append(box)


def row_axes(
    figure: "FigureLike", axes: "Axes", names: Sequence[str], texts: Sequence[str], height: float
) -> None:
    """Give axes a row for each name, from 0 down, with the name and a smaller text above its data.

    Args:
        figure: the figure or subfigure that the names are as wide as.
        axes: of the figure; a row is 1 high in them.
        names: one for each row, all different.
        texts: of each row; empty: there are none.
        height: of a row, in points.
    """
    from matplotlib.transforms import blended_transform_factory

    across = blended_transform_factory(figure.transSubfigure, axes.transData)
    axes.set_ylim(len(names), 0)
    axes.yaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="x", length=0)
    texts = [shortened(text, SMALL, WIDTH - 12) for text in texts]
    for size, colour, down, lines in ((TEXT, INK, 12, names), (SMALL, MUTED, 26, texts)):
        for row, line in enumerate(lines):
            axes.annotate(
                line, (0.01, row), (0, -down), xycoords=across, textcoords="offset points",
                fontsize=size, color=colour, va="baseline", in_layout=False,
            )  # fmt: skip


def row_grid(axes: "Axes", top: float) -> None:
    """Draw grid lines in the data of rows, which starts at this share of a row."""
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    rows = range(round(axes.get_ylim()[0]))
    for_each = [(x, row + top, row + ROW_END) for row in rows for x in ticks]
    vertical_lines(axes, for_each, color=GRID, linewidth=0.8, zorder=0)


def vertical_lines(
    axes: "Axes",
    lines: Iterable[tuple[float, float, float]],
    **style: str | float | tuple[int, tuple[int, int]],
) -> None:
    """Draw lines at x from one y to another as one path, which is small in a file."""
    points = [(x, y) for x, start, end in lines for y in (start, end, math.nan)]
    axes.plot([x for x, _ in points], [y for _, y in points], **style)  # type: ignore[arg-type]
