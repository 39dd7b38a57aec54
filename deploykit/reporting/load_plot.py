"""Pictures in files of how a server bears a load."""

from collections.abc import Mapping
from typing import Any

from deploykit.reporting.charts.throughput import draw_loads, load_curves
from deploykit.reporting.plots import Column, picture


def plot_loads(found: Mapping[str, Any], file_name: str) -> bytes:
    """Return a picture of throughput over latency, with a point for each load.

    `found` is the document of a load test. GraphError: the name ends with neither .png nor .svg.
    """
    answered = bool(load_curves(found["loads"]))
    line = "" if answered else "no call was answered"
    column: Column = [("", lambda sheet, place: draw_loads(sheet, place, found))]
    title = f"{found['model']} at {found['address']}"
    return picture(title, line, [column if answered else []], file_name)
