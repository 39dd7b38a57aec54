"""Pictures in files of how many replicas a load takes."""

from collections.abc import Mapping
from typing import Any

from deploykit.reporting.charts.replicas import draw_replicas
from deploykit.reporting.plots import Column, picture
from deploykit.text.templates import number


def plot_plan(found: Mapping[str, Any], file_name: str) -> bytes:
    """Return a picture of p99 over the calls that each replica gets, and of the plan in it.

    `found` is the document of a plan. GraphError: the name ends with neither .png nor .svg.
    """
    column: Column = [("", lambda sheet, place: draw_replicas(sheet, place, found))]
    limit = f"p99 within {number(found['p99_limit_ms'])} ms"
    count, cores = found["replicas"], found["cores"]
    answer = f"{count} replica{'s' * (count != 1)} of {cores} core{'s' * (cores != 1)}"
    answer = found["problem"] or answer
    title = f"{found['model']}: {number(found['rate'])} calls/s with {limit}"
    return picture(title, answer, [column], file_name)
