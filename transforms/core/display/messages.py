"""The sentences of errors: messages.json holds each once, by code, with places for its fields.

A place is as of `str.format`. Besides, `{names:,}` joins a list by commas ("none": it is empty),
`{names: or }` by " or ", `{names!q:,}` puts each in quotes, and `{count:plural}` is an "s" unless
the count is 1.
"""

import functools
import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("messages.json")


@functools.cache
def catalogue() -> dict[str, str]:
    """Return the templates by code; they are read when the first error is shown."""
    found: dict[str, str] = json.loads(CATALOGUE.read_bytes())
    return found


def template(code: object) -> str | None:
    """Return the template of a code; None: it is no code."""
    return catalogue().get(code) if isinstance(code, str) else None


class _MessageFormatter(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), "?")

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "q":
            return [f"'{each}'" for each in (value if isinstance(value, list) else [value])]
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "plural":
            return "" if value == 1 else "s"
        if isinstance(value, list) and format_spec:
            between = ", " if format_spec == "," else format_spec
            return between.join(map(str, value)) or "none"
        try:
            return format(value, format_spec)
        except (TypeError, ValueError):  # such as None, where numbers are shown
            return str(value)


def render(text: str, fields: Mapping[str, object]) -> str:
    """Return a template with its fields in their places."""
    return _MessageFormatter().vformat(text, (), fields)


def fields_of(text: str) -> set[str]:
    """Return the names of the fields that a template has places for."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}
