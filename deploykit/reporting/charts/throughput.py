"""Throughput over latency: of models and settings, and of a server under load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.settings import RunConfig
from deploykit.benchmarking.statistics import summary
from deploykit.reporting.charts.figures import benchmark_of, chart, is_number
from deploykit.reporting.charts.lettering import all_wrapped, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LEGEND_INDENT, SHAPES, Place, Sheet, Spot
from deploykit.reporting.charts.style import MUTED, SMALL, series_colour
from deploykit.reporting.charts.value_plane import ValuePlane, draw_plane, write_labels
from deploykit.text.serving import load_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 12
_HIGH = 230.0  # points
_MOST_WHISKERS = 60
_LOADS = {"closed": "closed loop: callers wait for answers", "open": "open loop: calls at a rate"}


@dataclass(frozen=True)
class CurveLine:
    """Measurements that differ only in what a curve goes along."""

    name: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve: latencies in milliseconds, and how much is done in a second."""

    label: str
    p50: float
    p99: float
    rate: float


Curve = tuple[str, Sequence[CurvePoint]]
"""A name and its points, in their order."""


def throughput(found: "BenchmarkResult | Mapping[str, Any]") -> "Figure":
    """Return throughput over latency, with a line for each model and each of the other settings.

    `found` is a result of `deploykit.benchmark`, or its document. GraphError: it is neither.
    """
    measurements = benchmark_of(found).measurements
    return chart(lambda sheet, place: draw_throughput(sheet, place, measurements))


def loads(found: Mapping[str, Any]) -> "Figure | None":
    """Return throughput over latency of a load test's document; None: no call was answered."""
    curves = load_curves(found["loads"])
    if not curves:
        return None
    return chart(lambda sheet, place: draw_loads(sheet, place, found))


def trials(found: Mapping[str, Any]) -> "Figure | None":
    """Return throughput over latency of a tuned document: the defaults, what is recommended, and
    all else that was tried. None: there are no figures.
    """
    clouds = _trial_points(found)
    titles = "Latency of a call: p50, whisker to p99", "Items a second"
    if not clouds:
        return None
    return chart(lambda sheet, place: draw_curves(sheet, place, clouds, titles, joined=False))


def _trial_points(found: Mapping[str, Any]) -> list[Curve]:
    """Return the points of each choice of a tuned document, and those of all other trials."""

    def points(each: Mapping[str, Any] | None) -> list[CurvePoint]:
        names = ("p50_ms", "p99_ms", "items_per_second")
        known = [v for v in map((each or {}).get, names) if is_number(v) and v > 0]
        return [CurvePoint("", *known)] if len(known) == len(names) else []

    choices = [("default settings", "default"), ("recommended for latency", "latency"),
               ("recommended for throughput", "throughput")]  # fmt: skip
    clouds: list[Curve] = [(title, points(found.get(name))) for title, name in choices]
    rest = [point for trial in found.get("trials") or () for point in points(trial)]
    clouds.append((f"{len(rest)} trials of the search", rest))
    return [cloud for cloud in clouds if cloud[1]]


def varied(measurements: Sequence[Measurement]) -> str:
    """Return what a curve can go along: `batch`, `calls in flight`, or nothing."""
    if len({each.samples for each in measurements}) > 1:
        return "batch"
    return "calls in flight" if len({e.settings.concurrency for e in measurements}) > 1 else ""


def lines(measurements: Sequence[Measurement], along: str) -> list[CurveLine]:
    """Return the lines of a curve: one for each model and for each of the other settings."""
    groups: dict[tuple[str, RunConfig], list[Measurement]] = {}
    for each in measurements:
        rest = replace(each.settings, batch=None)
        if along == "calls in flight":
            rest = replace(rest, concurrency=1)
        groups.setdefault((each.model, rest), []).append(each)
    models = {model for model, _ in groups}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({rest for _, rest in groups}) > 1
    return [
        CurveLine(
            ", ".join([short[model]] * (len(models) > 1) + [str(rest)] * several) or short[model],
            tuple(sorted(group, key=lambda each: (each.samples, each.settings.concurrency))),
        )
        for (model, rest), group in groups.items()
    ]


def draw_throughput(sheet: Sheet, place: Place, measurements: Sequence[Measurement]) -> float:
    """Draw items a second over p50, with whiskers to p99; return where it ends."""
    along = varied(measurements)
    curves = []
    for line in lines(measurements, along):
        points = []
        for each in line.measurements:
            figures = summary(each)
            count = each.samples if along == "batch" else each.settings.concurrency
            label = str(count) if along else ""
            points.append(CurvePoint(label, figures.p50, figures.p99, figures.items_per_second))
        curves.append((line.name, points))
    numbers = f"; numbers: {along}" if along else ""
    titles = f"Latency of a call: p50, whisker to p99{numbers}", "Items a second"
    return draw_curves(sheet, place, curves, titles)


def load_curves(found: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return the curves of loads whose calls were answered: closed loops, and open ones."""
    curves: dict[str, list[CurvePoint]] = {}
    for each in sorted(found, key=lambda each: (each["callers"], each["rate"])):
        if latency := each["latency_ms"]:
            name = load_name(each["callers"], each["rate"])
            point = CurvePoint(name, latency["p50"], latency["p99"], each["throughput"])
            curves.setdefault(_LOADS["open" if each["rate"] else "closed"], []).append(point)
    return list(curves.items())


def draw_loads(sheet: Sheet, place: Place, found: Mapping[str, Any]) -> float:
    """Draw what a server answered, and what limits it; return where that ends."""
    titles = "Latency of a call: p50, whisker to p99", "Answers a second"
    bottom = draw_curves(sheet, place, load_curves(found["loads"]), titles)
    notes = []
    if unanswered := sum(not each["latency_ms"] for each in found["loads"]):
        notes.append(f"{unanswered} of {len(found['loads'])} loads had no answer")
    if limited := sum(each["generator_limited"] for each in found["loads"]):
        notes.append(f"at {limited} of the loads the generator was the limit, not the server")
    if (limit := found.get("latency_limit_ms")) is not None:
        rate = f"{found['highest_rate']:.4g} requests/s"
        notes.append(f"99 % of requests are within {limit:g} ms up to {rate}")
    told = [line for note in notes for line in wrapped(note, SMALL, place.width, 3)]
    return sheet.write_lines(place.below(bottom), told, size=SMALL, colour=MUTED)


def draw_curves(
    sheet: Sheet,
    place: Place,
    curves: Sequence[Curve],
    titles: tuple[str, str],
    *,
    joined: bool = True,
) -> float:
    """Draw curves in a plane, with a legend where there are several; return where it ends.

    Points of a curve that are not `joined` are bare marks.
    """
    shown = curves[:MOST_LINES]
    flat = [point for _, points in shown for point in points]
    times = [point.p50 for point in flat] + [max(point.p50, point.p99) for point in flat]
    scales = (
        Scale.over(times, "ms", zero=True),
        Scale.over([point.rate for point in flat], "count", zero=True),
    )
    plane = draw_plane(sheet, place, scales, titles, _HIGH)
    drawn = [
        each
        for number, (_, points) in reversed(list(enumerate(shown)))
        for each in _draw_curve(sheet, plane, points, number, joined)
    ]
    ordered = [each for _, points in shown for each in _ends_first(points)]
    wanted = [(plane.spot(p.p50, p.rate), p.label) for p in ordered if p.label]
    write_labels(sheet, plane, wanted, drawn)
    if len(curves) == 1 and not curves[0][0]:
        return plane.bottom
    names = all_wrapped([name for name, _ in shown], SMALL, place.width - LEGEND_INDENT)
    entries = [
        (series_colour(number), SHAPES[number % len(SHAPES)], name)
        for number, name in enumerate(names)
    ]
    bottom = sheet.legend(place.below(plane.bottom + 4), entries)
    if len(shown) == len(curves):
        return bottom
    told = [f"The first {len(shown)} of {len(curves)} lines are shown"]
    return sheet.write_lines(place.below(bottom), told, size=SMALL, colour=MUTED)


def _draw_curve(
    sheet: Sheet, plane: ValuePlane, points: Sequence[CurvePoint], number: int, joined: bool
) -> list[Sequence[Spot]]:
    """Draw a line with its marks and whiskers, and return its lines."""
    colour = series_colour(number)
    spots = [plane.spot(point.p50, point.rate) for point in points]
    whiskers: list[Sequence[Spot]] = []
    caps = []
    shown = _MOST_WHISKERS if joined or len(points) == 1 else 0
    for point, (x, y) in list(zip(points, spots, strict=True))[:shown]:
        end, _ = plane.spot(max(point.p50, point.p99), point.rate)
        whiskers.append(((x, y), (end, y)))
        caps.append(((end, y - 3), (end, y + 3)))
    sheet.lines([*whiskers, *caps], colour, 0.8)
    if len(spots) > 1 and joined:
        sheet.line(spots, colour, 1.6)
    sheet.marks(spots, colour, 6, SHAPES[number % len(SHAPES)])
    return [spots, *whiskers] if joined else whiskers


def _ends_first(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points that tell most first: if there is no room, others lose their label."""
    return [*points[-1:], *points[:1], *points[1:-1]] if len(points) > 1 else list(points)
