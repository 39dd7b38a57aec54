"""What is wrong with a figure for those who read it: texts that are cut off or lie on others."""

from itertools import combinations

from matplotlib.artist import Artist
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
        written = [each for each in figure.findobj(Text) if is_seen(each) and each.get_text()]
        spans = [(each.get_text(), each.get_window_extent(renderer)) for each in written]
        shapes = [each.get_window_extent(renderer) for each in figure.findobj(Patch)]
    found = [f"{text!r} sticks out" for text, span in spans if sticks_out(span, figure.bbox)]
    found += ["a shape sticks out" for span in shapes if sticks_out(span, figure.bbox)]
    pairs = combinations(spans, 2)
    return found + [f"{a!r} lies on {b!r}" for (a, x), (b, y) in pairs if meet(x, y)]


def is_seen(text: Artist) -> bool:
    return text.get_visible() and text.get_alpha() != 0


def sticks_out(span: Bbox, page: Bbox) -> bool:
    return (
        span.x0 < page.x0 - _SLACK or span.y0 < page.y0 - _SLACK
        or span.x1 > page.x1 + _SLACK or span.y1 > page.y1 + _SLACK
    )  # fmt: skip


def meet(a: Bbox, b: Bbox) -> bool:
    return min(a.x1, b.x1) - max(a.x0, b.x0) > _SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > _SLACK
