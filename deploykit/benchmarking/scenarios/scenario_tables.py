"""Show what a scenario found to people, and as cells for programs."""

from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.scenarios.scenario_result import ScenarioResult
from deploykit.text.tables import new_table, number
from deploykit.transforms.core.display.documents import document

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_ENDS = {"ms": " ms", "samples/s": "/s"}
_LINES = {
    "single": "single: one call after another, as in MLPerf's single stream",
    "offline": "offline: all samples there are, as fast as can be",
    "server": "server: calls arrive at random, and latencies count from when they were due",
}


def scenario_tables(result: BenchmarkResult) -> "list[str | Table]":
    """Return the figure of each, and what the scenario is; nothing for another benchmark."""
    found = [(each.name, each.scenario) for each in result.measurements if each.scenario]
    if not found:
        return []
    first = found[0][1]
    columns = ["calls", "calls/s", *(["at rate"] if first.rate_asked else []), "valid"]
    is_latency = first.unit == "ms"
    table = new_table("", first.figure, *(["at most"] if is_latency else []), *columns)
    for name, each in found:
        cells = [_figure(each, each.value)]
        cells += [_figure(each, each.at_most)] if is_latency else []
        cells += [str(each.calls), number(each.rate_reached)]
        cells += [number(each.rate_asked)] if each.rate_asked else []
        table.add_row(name, *cells, "yes" if each.valid else "no")
    lines = [_LINES[first.name]]
    if is_latency:
        lines.append("at most: where the percentile is at most, 99 % (MLPerf's early stopping)")
    return [table, *lines]


def scenario_row(found: ScenarioResult | None) -> dict[str, Any]:
    """Return the cells of a line of CSV; nothing for another benchmark."""
    if found is None:
        return {}
    cells = document(found) | {"why": "; ".join(found.why)}
    return {f"scenario_{name}": value for name, value in cells.items()}


def _figure(found: ScenarioResult, value: float | None) -> str:
    return "?" if value is None else f"{number(value)}{_ENDS[found.unit]}"
