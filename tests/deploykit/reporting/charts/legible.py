"""What is wrong with a figure for those who read it: texts that are cut off or lie on others."""

from collections.abc import Iterator
from itertools import combinations

from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from deploykit.reporting.charts.style import in_style

_SLACK = 0.5  # pixels


def faults(figure: Figure) -> list[str]:
    """Return a sentence for each text or shape that sticks out, and each two texts that overlap."""
    with in_style():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()  # lays it out
        ticks = {id(each) for each in unseen_ticks(figure)}
        written = [each for each in figure.findobj(Text)
                   if is_seen(each) and each.get_text() and id(each) not in ticks]  # fmt: skip
        spans = [(each.get_text(), each.get_window_extent(renderer)) for each in written]
        shapes = [each.get_window_extent(renderer) for each in figure.findobj(Patch)]
    found = [f"{text!r} sticks out" for text, span in spans if sticks_out(span, figure.bbox)]
    found += ["a shape sticks out" for span in shapes if sticks_out(span, figure.bbox)]
    pairs = combinations(spans, 2)
    return found + [f"{a!r} lies on {b!r}" for (a, x), (b, y) in pairs if meet(x, y)]


def unseen_ticks(figure: Figure) -> Iterator[Text]:
    """Yield the labels of ticks beyond the ends of an axis, or of an axis that is not shown."""
    for axis in figure.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not axis.get_visible() or not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def is_seen(text: Artist) -> bool:
    return text.get_visible() and text.get_alpha() != 0


def sticks_out(span: Bbox, page: Bbox) -> bool:
    return (
        span.x0 < page.x0 - _SLACK or span.y0 < page.y0 - _SLACK
        or span.x1 > page.x1 + _SLACK or span.y1 > page.y1 + _SLACK
    )  # fmt: skip


def meet(a: Bbox, b: Bbox) -> bool:
    return min(a.x1, b.x1) - max(a.x0, b.x0) > _SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > _SLACK
