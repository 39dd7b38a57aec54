"""What the nodes of a model reach of what the machine can do: a roofline.

Source: Williams, Waterman, Patterson, Roofline, 2009.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.profiling.profile import Profile
from deploykit.reporting.charts.figures import amount, chart
from deploykit.reporting.charts.lettering import all_wrapped, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LEGEND_INDENT, SHAPES, Place, Sheet
from deploykit.reporting.charts.style import INK, MUTED, SMALL, series_colour
from deploykit.reporting.charts.value_plane import ValuePlane, draw_plane, write_labels
from deploykit.transforms.core.display.documents import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIGH = 230.0  # points
_NAMED, _OPS = 6, 5
_SIZES = ((0.1, 9.0), (0.02, 6.5), (0.0, 4.0))
"""Marks of nodes that take such a share of the time or more, in points."""
_MOST_NODES = 300
KEY = "Line: what the machine can do; size: share of the time; numbers: the costliest nodes, below"

Node = Mapping[str, Any]


def roofline(profile: Profile | Mapping[str, Any]) -> "Figure | None":
    """Return what nodes reach over their arithmetic for each byte, beside the machine's peak.

    `profile` is one of `deploykit.benchmark`, or its document. None: no node has operations.
    """
    found = document(profile) if isinstance(profile, Profile) else profile
    if not counted_nodes(found):
        return None
    return chart(lambda sheet, place: draw_roofline(sheet, place, found))


def counted_nodes(profile: Mapping[str, Any]) -> list[Node]:
    """Return the nodes whose operations, bytes and time are known, the costliest first."""
    known = [n for n in profile["nodes"] if n["flops"] > 0 and n["moved"] > 0 and n["ms"] > 0]
    return sorted(known, key=lambda node: -node["ms"])


def draw_roofline(sheet: Sheet, place: Place, profile: Mapping[str, Any]) -> float:
    """Draw the nodes under the roof, and name the costliest; return where that ends."""
    found, peak = counted_nodes(profile), profile["peak"]
    nodes = found[:_MOST_NODES]
    reached = [node["flops"] / node["ms"] / 1e6 for node in nodes]
    dense = [node["flops"] / node["moved"] for node in nodes]
    ridge = peak["gflops"] / peak["gigabytes"]
    scales = (
        Scale.over([*dense, ridge / 4, 4 * ridge], "count"),
        Scale.over([*reached, peak["gflops"] / 4, 1.2 * peak["gflops"]], "count"),
    )
    titles = "Operations for each byte read or written", "Billion operations a second"
    plane = draw_plane(sheet, place, scales, titles, _HIGH)
    _draw_roof(sheet, plane, peak)
    spots = [plane.spot(x, y) for x, y in zip(dense, reached, strict=True)]
    total = sum(node["ms"] for node in profile["nodes"])
    kinds = _kinds(nodes)
    for number, kind in reversed(list(enumerate(kinds))):
        shape, limit = SHAPES[number % len(SHAPES)], float("inf")
        for share, size in _SIZES:
            chosen = [
                spot
                for spot, node in zip(spots, nodes, strict=True)
                if _kind(node, kinds) == kind and share <= node["ms"] / total < limit
            ]
            sheet.marks(chosen, series_colour(number), size, shape)
            limit = share
    wanted = [(spot, str(number)) for number, spot in enumerate(spots[:_NAMED], 1)]
    write_labels(sheet, plane, wanted)
    names = all_wrapped(kinds, SMALL, place.width - LEGEND_INDENT)
    entries = [(series_colour(n), SHAPES[n % len(SHAPES)], name) for n, name in enumerate(names)]
    bottom = sheet.legend(place.below(plane.bottom + 4), entries)
    return _write_names(sheet, place.below(bottom + 2), nodes, len(found) - len(nodes))


def _write_names(sheet: Sheet, place: Place, nodes: Sequence[Node], left_out: int) -> float:
    named = [
        f"{number}  {amount(node['ms'], 'ms')}: {node['name']}"
        for number, node in enumerate(nodes[:_NAMED], 1)
    ]
    more = f"; {left_out} cheaper nodes are not shown" if left_out else ""
    lines = wrapped(KEY + more, SMALL, place.width, 4)
    top = sheet.write_lines(place, lines, size=SMALL, colour=MUTED) + 3
    for lines in all_wrapped(named, SMALL, place.width):
        top = sheet.write_lines(place.below(top), lines, size=SMALL) + 2
    return top


def _kinds(nodes: Sequence[Node]) -> list[str]:
    """Return the ops that take the most time, and `other ops` where there are more."""
    times: dict[str, float] = {}
    for node in nodes:
        times[node["op"]] = times.get(node["op"], 0.0) + node["ms"]
    ordered = sorted(times, key=lambda op: -times[op])
    return ordered if len(ordered) <= _OPS else [*ordered[: _OPS - 1], "other ops"]


def _kind(node: Node, kinds: Sequence[str]) -> str:
    return node["op"] if node["op"] in kinds else kinds[-1]


def _draw_roof(sheet: Sheet, plane: ValuePlane, peak: Mapping[str, float]) -> None:
    """Draw what memory allows, up to what arithmetic allows."""
    most, bytes_rate = peak["gflops"], peak["gigabytes"]
    start = max(plane.x.low, plane.y.low / bytes_rate)
    ridge = most / bytes_rate
    values = [(start, bytes_rate * start), (ridge, most), (plane.x.high, most)]
    sheet.line([plane.spot(*each) for each in values], INK, 1.4)
