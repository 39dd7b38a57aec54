"""Scatter charts with numbered points and their list: the roofline, and noise by layer.

Source: Williams, Waterman, Patterson, Roofline, 2009.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.profiling.profile import Profile
from deploykit.reporting.charts.chart import (
    PLANE,
    Chart,
    add_label,
    new_plane,
)
from deploykit.reporting.charts.style import (
    INK,
    MARKERS,
    PAPER,
    amount,
    is_number,
    series_colour,
)
from deploykit.transforms.common.documents import document

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deploykit.reporting.charts.chart import FigureLike

_NAMED, _MAX_OPS, _MAX_NODES, _MAX_LAYERS = 6, 5, 300, 400
_SIZES = ((0.1, 10.0), (0.02, 7.5), (0.0, 5.0))
"""Minimum shares of the time, and the marker sizes of such nodes in points."""
_STATES = {"int8": "int8", "float": "kept in float32"}
_ROOF_KEY = "Line: machine limit; size: share of the time; numbers: the slowest nodes"
_NOISE_KEY = "Numbers: the layers with the most noise"

Node = Mapping[str, Any]


def roofline(profile: Profile | Mapping[str, Any]) -> Chart | None:
    """Return the arithmetic rate of nodes over their operations per byte, and the machine's peak.

    `profile` is one of `deploykit.benchmark`, or its document. None: no node has operations.
    """
    result = document(profile) if isinstance(profile, Profile) else profile
    every, peak = counted_nodes(result), result["peak"]
    nodes = every[:_MAX_NODES]
    if not nodes:
        return None
    reached = [node["flops"] / node["ms"] / 1e6 for node in nodes]
    dense = [node["flops"] / node["moved"] for node in nodes]
    ridge = peak["gflops"] / peak["gigabytes"]
    total = sum(node["ms"] for node in result["nodes"])
    kinds = _kinds(nodes)
    left_out = len(every) - len(nodes)
    more = f"; {left_out} faster nodes are not shown" if left_out else ""
    notes = ["Operations per byte read or written", _ROOF_KEY + more]
    legend: list[tuple[str, int | None]] = [(kind, n) for n, kind in enumerate(kinds)]
    for number, node in enumerate(nodes[:_NAMED], 1):
        legend.append((f"{number}  {amount(node['ms'], 'ms')}: {node['name']}", None))

    def draw(figure: "FigureLike") -> "Axes":
        scales = (
            ([*dense, ridge / 4, 4 * ridge], "count"),
            ([*reached, peak["gflops"] / 4, 1.2 * peak["gflops"]], "count"),
        )
        axes = new_plane(figure, scales, "Billion operations per second")
        start = max(axes.get_xlim()[0], axes.get_ylim()[0] / peak["gigabytes"])
        axes.plot([start, ridge, axes.get_xlim()[1]],
                  [peak["gigabytes"] * start, peak["gflops"], peak["gflops"]], color=INK,
                  linewidth=1.4)  # fmt: skip
        points: dict[tuple[int, float], list[tuple[float, float]]] = {}
        for x, y, node in zip(dense, reached, nodes, strict=True):
            kind = kinds.index(node["op"]) if node["op"] in kinds else len(kinds) - 1
            size = next(size for share, size in _SIZES if node["ms"] >= share * total)
            points.setdefault((kind, size), []).append((x, y))
        for (kind, size), some in sorted(points.items(), reverse=True):
            _draw_points(axes, some, kind, size)
        for number, (x, y) in enumerate(list(zip(dense, reached, strict=True))[:_NAMED], 1):
            add_label(axes, str(number), x, y)
        return axes

    return Chart(PLANE, draw, notes, legend)


def counted_nodes(profile: Mapping[str, Any]) -> list[Node]:
    """Return the nodes whose operations, bytes and time are known, slowest first."""
    known = [n for n in profile["nodes"] if n["flops"] > 0 and n["moved"] > 0 and n["ms"] > 0]
    return sorted(known, key=lambda node: -node["ms"])


def _kinds(nodes: Sequence[Node]) -> list[str]:
    """Return the ops that take the most time, and `other ops` if there are more."""
    times: dict[str, float] = {}
    for node in nodes:
        times[node["op"]] = times.get(node["op"], 0.0) + node["ms"]
    ordered = sorted(times, key=lambda op: -times[op])
    return ordered if len(ordered) <= _MAX_OPS else [*ordered[: _MAX_OPS - 1], "other ops"]


def layer_noise(quantized: Mapping[str, Any]) -> Chart | None:
    """Return the noise of each layer when only that layer is int8, in order of execution.

    `quantized` is the document of `Quantized`. None: it contains no noise values.
    """
    numbered = enumerate(quantized.get("layers") or (), 1)
    layers = [(number, layer) for number, layer in numbered if is_number(layer.get("sqnr_db"))]
    if not layers:
        return None
    shown = sorted(layers, key=lambda item: item[1]["sqnr_db"])[:_MAX_LAYERS]
    left_out = len(layers) - len(shown)
    more = f"; {left_out} layers with less noise are not shown" if left_out else ""
    notes = ["Layer, in the order of execution", _NOISE_KEY + more]
    points = {
        state: [(n, item["sqnr_db"]) for n, item in shown if item["computes_in"] == state]
        for state in _STATES
    }
    legend: list[tuple[str, int | None]] = [
        (title, index) for index, (state, title) in enumerate(_STATES.items()) if points[state]
    ]
    for number, layer in shown[:_NAMED]:
        legend.append((f"{number}  {layer['sqnr_db']:.1f} dB: {layer['layer']}", None))

    def draw(figure: "FigureLike") -> "Axes":
        levels = [layer["sqnr_db"] for _, layer in layers]
        scales = (([number for number, _ in layers], "number"), (levels, "plain"))
        axes = new_plane(figure, scales, "SQNR of the outputs in dB", log=False)
        for index, state in enumerate(_STATES):
            _draw_points(axes, points[state], index, 6)
        for number, layer in shown[:_NAMED]:
            add_label(axes, str(number), number, layer["sqnr_db"])
        return axes

    return Chart(PLANE, draw, notes, legend)


def _draw_points(
    axes: "Axes", points: Sequence[tuple[float, float]], index: int, size: float
) -> None:
    axes.plot([x for x, _ in points], [y for _, y in points], color=series_colour(index),
              linestyle="none", marker=MARKERS[index % len(MARKERS)], markersize=size,
              markeredgecolor=PAPER, markeredgewidth=0.8)  # fmt: skip
