"""What became of layers in 8 bits: how much noise each brings, and how long each takes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.reporting.charts.bars import BarRow, draw_bars, most_and_rest
from deploykit.reporting.charts.figures import chart, is_number
from deploykit.reporting.charts.lettering import all_wrapped, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import Place, Sheet
from deploykit.reporting.charts.style import MUTED, SMALL, series_colour
from deploykit.reporting.charts.value_plane import draw_plane, write_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KERNELS = {"eigen_us": "float, Eigen", "onednn_us": "float, oneDNN", "float_us": "float",
            "int8_us": "8 bits"}  # fmt: skip
_STATES = (("int8", "computes in 8 bits", "round"), ("float", "stays float", "square"))
_HIGH, _NAMED, _MOST_LAYERS = 200.0, 6, 400
KEY = "Numbers: the layers with the most noise, below"


def layer_noise(quantized: Mapping[str, Any]) -> "Figure | None":
    """Return how much noise each layer brings if it alone is in 8 bits, in order of execution.

    `quantized` is the document of `Quantized`. None: it holds no such figure.
    """
    layers = _measured(quantized)
    return chart(lambda sheet, place: draw_layer_noise(sheet, place, layers)) if layers else None


def layer_times(quantized: Mapping[str, Any]) -> "Figure | None":
    """Return how long each layer takes in float and in 8 bits, of the costliest ones.

    `quantized` is the document of `Quantized`. None: it holds no times.
    """
    rows, kernels = _timed(quantized)
    if not rows:
        return None
    return chart(lambda sheet, place: draw_layer_times(sheet, place, rows, kernels))


def draw_layer_noise(
    sheet: Sheet, place: Place, layers: Sequence[tuple[int, Mapping[str, Any]]]
) -> float:
    """Draw a mark for each layer, and name the noisiest; return where that ends."""
    shown = sorted(layers, key=lambda each: each[1]["sqnr_db"])[:_MOST_LAYERS]
    scales = (
        Scale.even([number for number, _ in layers], "number"),
        Scale.even([layer["sqnr_db"] for _, layer in layers], "plain"),
    )
    titles = "Layer, in the order of execution", "Signal over noise of the outputs in dB"
    plane = draw_plane(sheet, place, scales, titles, _HIGH)
    spots = [plane.spot(number, layer["sqnr_db"]) for number, layer in shown]
    entries = []
    for colour, (state, title, shape) in enumerate(_STATES):
        pairs = zip(spots, shown, strict=True)
        chosen = [spot for spot, (_, layer) in pairs if layer["computes_in"] == state]
        sheet.marks(chosen, series_colour(colour), 5, shape)
        if chosen:
            entries.append((series_colour(colour), shape, [title]))
    numbers = [str(number) for number, _ in shown[:_NAMED]]
    write_labels(sheet, plane, list(zip(spots[:_NAMED], numbers, strict=True)))
    bottom = sheet.legend(place.below(plane.bottom + 4), entries)
    left_out = len(layers) - len(shown)
    more = f"; {left_out} layers with less noise are not shown" if left_out else ""
    key = wrapped(KEY + more, SMALL, place.width, 3)
    top = sheet.write_lines(place.below(bottom + 2), key, size=SMALL, colour=MUTED) + 3
    named = [
        f"{number}  {layer['sqnr_db']:.1f} dB: {layer['layer']}" for number, layer in shown[:_NAMED]
    ]
    for lines in all_wrapped(named, SMALL, place.width):
        top = sheet.write_lines(place.below(top), lines, size=SMALL) + 2
    return top


def draw_layer_times(
    sheet: Sheet, place: Place, rows: Sequence[BarRow], kernels: Sequence[str]
) -> float:
    """Draw bars for each kernel of a layer, the costliest layers first; return where they end."""
    return draw_bars(sheet, place, most_and_rest(rows, "layers"), kernels, "us")


def _measured(quantized: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the layers whose noise is known, with their numbers."""
    layers = enumerate(quantized.get("layers") or (), 1)
    return [(number, layer) for number, layer in layers if is_number(layer.get("sqnr_db"))]


def _timed(quantized: Mapping[str, Any]) -> tuple[list[BarRow], list[str]]:
    """Return the layers of which all kernels' times are known, and the kernels."""
    layers = quantized.get("layers") or ()
    known = [k for k in _KERNELS if any(is_number(layer.get(k)) for layer in layers)]
    rows = [
        BarRow(f"{layer['layer']} ({layer['op']})", tuple(layer[k] for k in known))
        for layer in layers
        if all(is_number(layer.get(k)) for k in known)
    ]
    return (rows, [_KERNELS[k] for k in known]) if known else ([], [])
