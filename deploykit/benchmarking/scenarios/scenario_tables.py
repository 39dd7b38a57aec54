"""Show what a scenario found to people, and as cells for programs."""

from typing import Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.scenarios.scenario_result import ScenarioResult
from deploykit.text.tables import Cell, Table, table
from deploykit.text.templates import number
from deploykit.transforms.core.display.documents import document

_ENDS = {"ms": " ms", "samples/s": "/s"}
_LINES = {
    "single": "single: one call after another, as in MLPerf's single stream",
    "offline": "offline: all samples at the highest throughput",
    "server": "server: requests arrive at random; latencies count from the scheduled time",
}


def scenario_tables(result: BenchmarkResult) -> list[str | Table]:
    """Return the figure of each, and what the scenario is; nothing for another benchmark."""
    found = [(each.name, each.scenario) for each in result.measurements if each.scenario]
    if not found:
        return []
    first = found[0][1]
    columns: dict[str, Cell] = {
        "": lambda row: row[0],
        first.figure: lambda row: _metric(row[1], row[1].value),
        "at most": lambda row: _metric(row[1], row[1].at_most) if first.unit == "ms" else None,
        "calls": "{1.calls}",
        "calls/s": "{1.rate_reached:number}",
        "requested": lambda row: number(row[1].rate_asked) if row[1].rate_asked else None,
        "valid": "{1.valid:yes}",
    }
    lines = [_LINES[first.name]]
    if first.unit == "ms":
        lines.append("at most: upper bound of the percentile at 99 % confidence (MLPerf)")
    return [table(found, columns), *lines]


def scenario_row(found: ScenarioResult | None) -> dict[str, Any]:
    """Return the cells of a line of CSV; nothing for another benchmark."""
    if found is None:
        return {}
    cells = document(found) | {"why": "; ".join(found.why)}
    return {f"scenario_{name}": value for name, value in cells.items()}


def _metric(found: ScenarioResult, value: float | None) -> str | None:
    return None if value is None else f"{number(value)}{_ENDS[found.unit]}"
