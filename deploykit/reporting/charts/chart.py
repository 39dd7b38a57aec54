"""Charts that can be drawn into a figure, and their common axes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.reporting.charts.style import (
    MARKERS,
    SMALL,
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

WIDTH = 760.0
"""Width of a chart in points."""
NAME_WIDTH = 280.0
"""Maximum width of the names of rows and of a legend, in points."""
LINE = 14.0
"""Height of a line of small text, in points."""
_INCH = 72.0
_LEGEND_LINE = 16.5
_NOTE_WIDTH = 400.0
_DIGITS = 5  # of a position, as a share of the figure
_LONG = 4  # ratio of the highest and the lowest value above which an axis is logarithmic
_LABEL = "label"
_OFFSETS = [(x, y) for y in (6, -6, 0) for x in (6, -6, 0) if x or y]
_ALIGN = {6: ("left", "bottom"), -6: ("right", "top"), 0: ("center", "center")}


@dataclass(frozen=True)
class Chart:
    """A chart of WIDTH for a figure or a subfigure."""

    body: float
    """Height of the axes with their tick labels, in points."""
    draw: Callable[["FigureLike"], "Axes"]
    """Draws the axes into a figure of the chart's size, and returns the lowest axes."""
    notes: Sequence[str] = ()
    """Lines below the horizontal axis; the first may be the title of that axis."""
    legend: Sequence[str] = ()
    """Name of each series."""
    is_bars: bool = False
    """Whether the legend is above the axes with square markers, instead of beside them."""

    @property
    def height(self) -> float:
        """Total height in points."""
        above = _LEGEND_LINE * len(self.legend) + 6
        return self.body + LINE * len(self._lines()) + above * self.is_bars

    def figure(self) -> "Figure":
        """Return the chart as a matplotlib figure."""
        with in_style():
            figure = new_figure(WIDTH, self.height)
            self.draw_into(figure)
            lay_out(figure)
        return figure

    def draw_into(self, figure: "FigureLike") -> None:
        """Draw the chart into a figure or subfigure of its size; see `lay_out`."""
        self.draw(figure).set_xlabel("\n".join(self._lines()), loc="left")
        if not self.legend:
            return
        result = figure.legend(
            [_mark(number, self.is_bars) for number in range(len(self.legend))],
            [str(place) for place in range(len(self.legend))],
            loc="outside upper left" if self.is_bars else "outside right upper",
            frameon=False, handlelength=0.8, handletextpad=0.6, borderpad=0, labelspacing=0.35,
        )  # fmt: skip
        names = distinct(self.legend, SMALL, NAME_WIDTH)
        for text, name in zip(result.get_texts(), names, strict=True):
            text.set_text(name)  # matplotlib skips a label that starts with an underscore

    def _lines(self) -> list[str]:
        return [line for note in self.notes for line in _wrapped(note)]


def _wrapped(note: str) -> list[str]:
    """Return the lines of a note, no wider than axes without their tick labels."""
    lines = [""]
    for word in note.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, SMALL) <= _NOTE_WIDTH:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _mark(number: int, is_bar: bool) -> "Line2D":
    """Return the legend marker of a series."""
    from matplotlib.lines import Line2D

    marker = MARKERS[1 if is_bar else number % len(MARKERS)]
    colour = series_colour(number)
    return Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=6)


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / _INCH, height / _INCH), layout="constrained")


def benchmark_of(results: BenchmarkResult | Mapping[str, Any]) -> BenchmarkResult:
    """Return a benchmark's result, or convert its document. GraphError: it is neither."""
    return results if isinstance(results, BenchmarkResult) else result_of(results, "the document")


def limits(values: Iterable[float], zero: bool = False) -> tuple[float, float]:
    """Return axis limits that show all values; linear ones start at 0 if `zero`."""
    known = list(values)
    low, high = min(known), max(known)
    if is_long(low, high):
        room = (high / low) ** 0.04
        return low / room, high * room
    if zero and low >= 0:
        return 0.0, 1.12 * high or 1.0
    room = max(0.04 * (high - low), 0.02 * abs(high)) or 1.0
    return low - room, high + room


def is_long(low: float, high: float) -> bool:
    """Return whether an axis with these limits is logarithmic."""
    return high > _LONG * low > 0


def set_axis(axes: "Axes", name: Literal["x", "y"], ends: tuple[float, float], kind: str) -> None:
    """Set the limits and ticks of an axis, with units for this kind of values; see UNITS."""
    from matplotlib import ticker

    low, high = ends
    log = is_long(low, high)

    def label(value: float, position: object) -> str:
        factor, sign = unit_of(value if log else max(abs(low), abs(high)), kind)
        return f"{value / factor:.6g}{sign if value else ''}"

    axes.set(**{f"{name}scale": "log" if log else "linear", f"{name}lim": ends})
    axis = axes.xaxis if name == "x" else axes.yaxis
    locator: ticker.Locator = ticker.MaxNLocator(5, steps=[1, 2, 5, 10])
    if log:
        spans = ((8, (1, 1.5, 2, 3, 4, 5, 7)), (20, (1, 2, 3, 5)), (200, (1, 2, 5)))
        subs = next((subs for span, subs in spans if high < span * low), (1,))
        locator = ticker.LogLocator(subs=subs, numticks=7 if len(subs) > 1 else 5)
    axis.set_major_locator(locator)
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(label))


def add_label(axes: "Axes", text: str, x: float, y: float) -> None:
    """Annotate a point; see `lay_out`."""
    axes.annotate(text, (x, y), (6, 6), textcoords="offset points", gid=_LABEL, in_layout=False)


def lay_out(figure: "Figure") -> None:
    """Fix the layout of a figure, and move point labels off others and, if possible, off lines.

    Earlier labels have priority; a label without free space is hidden.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import SubFigure
    from matplotlib.transforms import Bbox

    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")  # a layout takes longer than drawing
    # The solver's last digits vary, and the ids of clip paths with them, so that equal data would
    # give different files. Data is inside its axes, so no clip path is needed.
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


def row_axes(axes: "Axes", labels: Sequence[Sequence[str]]) -> None:
    """Set up axes with a row of height 1 for each label, from 0 down; a label has lines."""
    texts = [[shortened(line, SMALL, NAME_WIDTH) for line in lines] for lines in labels]
    axes.set_ylim(len(texts), 0)
    axes.set_yticks([row + 0.5 for row in range(len(texts))], ["\n".join(text) for text in texts])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def vertical_lines(
    axes: "Axes",
    lines: Iterable[tuple[float, float, float]],
    **style: str | float | tuple[int, tuple[int, int]],
) -> None:
    """Draw vertical lines (x, start, end) as one path, which is small in a file."""
    points = [(x, y) for x, start, end in lines for y in (start, end, math.nan)]
    axes.plot([x for x, _ in points], [y for _, y in points], **style)  # type: ignore[arg-type]
