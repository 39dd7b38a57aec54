"""What a profile's time goes to, by op and by node."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.reporting.charts.bars import BarRow, draw_bars, most_and_rest
from deploykit.reporting.charts.figures import chart
from deploykit.reporting.charts.sheet import Place, Sheet
from deploykit.transforms.core.display.documents import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Profiled = BenchmarkResult | Mapping[str, Any]
"""A result of `deploykit.benchmark`, or its document."""


def profiles_of(found: Profiled) -> dict[str, Mapping[str, Any]]:
    """Return the profiles of a benchmark by the name of a measurement, as documents."""
    if isinstance(found, BenchmarkResult):
        return {name: document(each) for name, each in found.profiles.items()}
    return {each["name"]: each["profile"] for each in found["measurements"] if each.get("profile")}


def ops(found: Profiled) -> "Figure | None":
    """Return the time of a call by op, with a bar for each profile; None: there is no profile."""
    profiles = {name: each for name, each in profiles_of(found).items() if each["ops"]}
    if not profiles:
        return None
    return chart(lambda sheet, place: draw_ops(sheet, place, profiles))


def nodes(profile: Profile | Mapping[str, Any]) -> "Figure | None":
    """Return the time of a call by node, of one profile or its document; None: it has none."""
    found = document(profile) if isinstance(profile, Profile) else profile
    if not found["nodes"]:
        return None
    return chart(lambda sheet, place: draw_nodes(sheet, place, found))


def draw_ops(sheet: Sheet, place: Place, profiles: Mapping[str, Mapping[str, Any]]) -> float:
    """Draw the ops of all profiles, the costliest first; return where they end."""
    times = [{op["op"]: op["ms"] for op in each["ops"]} for each in profiles.values()]
    every = dict.fromkeys(op for each in times for op in each)
    rows = [BarRow(op, tuple(each.get(op) for each in times)) for op in every]
    shown = most_and_rest(rows, "ops")
    return draw_bars(sheet, place, shown, list(profiles), "ms", shares=True)


def draw_nodes(sheet: Sheet, place: Place, profile: Mapping[str, Any]) -> float:
    """Draw the nodes of a profile, the costliest first; return where they end."""
    rows = [BarRow(f"{each['name']} ({each['op']})", (each["ms"],)) for each in profile["nodes"]]
    return draw_bars(sheet, place, most_and_rest(rows, "nodes"), [""], "ms", shares=True)
