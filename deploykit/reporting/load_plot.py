"""Draw how latency grows with the load on a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deploykit.calling.server_load import Load
from deploykit.reporting.plots import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)
_COLOURS = {"p50": "#1f5fa8", "p99": "#c0392b"}


def plot_loads(loads: Sequence[Load], title: str, file_name: str) -> bytes:
    """Return a picture of p50 and p99 over throughput, with a point for each load.

    GraphError: the name ends with neither .png nor .svg, or matplotlib is not installed.
    """
    return drawn(lambda: _figure(loads, title), file_name)


def _figure(loads: Sequence[Load], title: str) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel("answers in a second")
    axes.set_ylabel("latency in ms")
    for kind, mark, style in (("closed", "o", "-"), ("open", "^", "--")):
        steps = [each for each in loads if each.latency_ms and bool(each.rate) == (kind == "open")]
        steps.sort(key=lambda each: (each.callers, each.rate))
        for name, colour in _COLOURS.items():
            if steps:
                x = [each.throughput for each in steps]
                y = [each.latency_ms[name] for each in steps]
                axes.plot(x, y, style, marker=mark, color=colour, label=f"{name}, {kind} loop")
        for each in steps:
            place = (each.throughput, each.latency_ms["p99"])
            axes.annotate(each.name, place, textcoords="offset points", xytext=(4, 4))
    if any(each.latency_ms for each in loads):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(frameon=False)
    axes.set_xlim(left=0)
    axes.grid(True)
    return figure
