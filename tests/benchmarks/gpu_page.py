"""The page of the GPU benchmark's rows, which is written from them alone."""

from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = """# On a GPU

Written by `python -m tests.benchmarks gpu` from its rows. `fed`: NumPy arrays in and out, as a
server has them. `resident`: the inputs lie on the device and no output leaves it, which is
computing alone.
"""


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a page in Markdown: the rows by how they ended, each with its figures."""
    gpus = sorted({gpu for row in rows for gpu in row["gpus"]})
    cpus = sorted({str(row["cpu"]) for row in rows})
    lines = [_HEAD, f"GPU: {', '.join(gpus) or 'none'}. CPU: {', '.join(cpus)}.", ""]
    lines += ["| row | figures |", "|---|---|"]
    lines += [
        f"| {row['name']}{'' if row['gpus'] else ', on the CPU'} | {_figures(row['figures'])} |"
        for row in rows
        if row["status"] == "measured"
    ]
    for status, title in (("refused", "Refused"), ("not run", "Not run")):
        every = [row for row in rows if row["status"] == status]
        if every:
            lines += ["", f"## {title}", ""]
            lines += [f"* {names}: {why}" for why, names in _by_reason(every).items()]
    return "\n".join(lines) + "\n"


def _by_reason(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of rows by why they have no figures."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(str(row["why"]), []).append(str(row["name"]))
    return {why: "; ".join(each) for why, each in names.items()}


def _figures(figures: Mapping[str, Any]) -> str:
    shown = (
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
    return ", ".join(shown)
