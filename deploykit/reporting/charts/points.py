"""Scatter chart with numbered points and their list: noise by layer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.reporting.charts.chart import (
    PLANE,
    Chart,
    add_label,
    new_plane,
)
from deploykit.reporting.charts.style import (
    MARKERS,
    PAPER,
    is_number,
    series_colour,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deploykit.reporting.charts.chart import FigureLike

_NAMED, _MAX_LAYERS = 6, 400
_STATES = {"int8": "int8", "float": "kept in float32"}
_NOISE_KEY = "Numbers: the layers with the most noise"


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
