"""The transforms in lines for people."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def lines(described: Iterable[Mapping[str, Any]], whole: bool) -> Iterator[str]:
    """Yield the transforms as text: a line each, or with `whole` everything."""
    for transform in described:
        if not whole:
            yield f"{transform['name']:29}{transform['summary']}"
            continue
        yield transform["name"]
        yield ""
        yield transform["text"]
        for parameter in transform["parameters"]:
            default = "required" if parameter["required"] else f"default {parameter['default']!r}"
            repeatable = ", may be repeated" if parameter["repeatable"] else ""
            yield ""
            yield f"  {parameter['name']} ({parameter['type']}, {default}{repeatable})"
            yield f"      {parameter['help']}"
