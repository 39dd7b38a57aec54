"""The page of what was removed, from the tables whose sentences the errors quote."""

import re
from collections.abc import Mapping

from deploykit.transforms.common import removed
from docs.generator.markdown import code, plain

INTRODUCTION = """
Version 0.2 of deploykit does not have these parts of version 0.1. Until version 0.4, using one is
an error that names what takes its place. So is the table of a removed command in `deploykit.toml`,
or the key of a removed option. Files of version 0.1 are still read, without what was removed.
"""


def page() -> str:
    """Return the page."""
    tables = {
        "Commands": {f"deploykit {words}": text for words, text in removed.COMMANDS.items()},
        "Options": _joined(removed.OPTIONS, "deploykit {} {}"),
        "Python": {f"deploykit.{name}": text for name, text in removed.NAMES.items()}
        | _joined(removed.FIELDS, "{}({}=...)"),
    }
    parts = ["# What was removed, and what takes its place", INTRODUCTION.strip()]
    for title, table in tables.items():
        groups: dict[str, list[str]] = {}
        for name, text in table.items():
            groups.setdefault(text, []).append(code(name))
        rows = [f"| {', '.join(names)} | {_linked(text)} |" for text, names in groups.items()]
        parts += [f"## {title}", "\n".join(["| removed | instead |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _joined(tables: Mapping[str, Mapping[str, str]], form: str) -> dict[str, str]:
    return {form.format(of, name): table[name] for of, table in tables.items() for name in table}


def _linked(text: str) -> str:
    return re.sub(r"docs/(\S+\.md)", r"[docs/\1](\1)", plain(text))
