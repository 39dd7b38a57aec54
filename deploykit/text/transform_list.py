"""The transforms and their parameters."""

from collections.abc import Iterator
from typing import Any

from deploykit.text.tables import Table, constant, facts
from deploykit.text.templates import said


def lines(found: Any) -> Iterator[str | Table]:
    """Yield one transform with everything about it, or a line for each of several."""
    described = found.transforms
    if len(described) > 1:
        yield facts(None, constant({row["name"]: row["summary"] for row in described}))
        return
    for transform in described:
        yield f"{transform['name']}\n\n{transform['text']}"
        for parameter in transform["parameters"]:
            default = "required" if parameter["required"] else f"default {parameter['default']!r}"
            repeatable = ", may be repeated" if parameter["repeatable"] else ""
            yield f"\n  {parameter['name']} ({parameter['type']}, {default}{repeatable})"
            yield from said(parameter, "      {help}")
