"""Markdown for generated pages: docstrings, cells, fences."""

import html
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_SECTIONS = ("Args:", "Returns:", "Commands:", "Example:")
_ERROR = re.compile(r"\b((?:[A-Z]\w*)?Error)(?=: )")


@dataclass
class Docstring:
    """The sections of a docstring."""

    text: str
    """Text before the sections, in Markdown."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Description of each parameter, in Markdown."""
    rest: str = ""
    """Text after the arguments, such as the errors, in Markdown."""
    example: str = ""
    commands: tuple[str, ...] = ()
    """Shell commands; a line that is indented further continues the previous one."""


def raw_docstring(thing: object) -> str:
    """Return the text before the sections of a docstring, unchanged."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    end = next((i for i, line in enumerate(lines) if line in _SECTIONS), len(lines))
    rest = next((i for i, line in enumerate(lines) if _ERROR.match(line)), len(lines))
    return "\n".join(lines[: min(end, rest)]).strip()


def docstring(thing: object, is_raw: bool = False) -> Docstring:
    """Return the sections of a docstring; with `is_raw`, arguments are not Markdown."""
    parts: dict[str, list[str]] = {name: [] for name in ("", *_SECTIONS, "rest")}
    section = ""
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line in _SECTIONS:
            section = line
            continue
        if line and not line.startswith(" ") and section:
            section = "rest"
        parts[section].append(line)
    return Docstring(
        _prose(parts[""]),
        dict(_arguments(parts["Args:"], str if is_raw else plain)),
        _prose(parts["rest"]),
        inspect.cleandoc("\n".join(["", *parts["Example:"]])),
        tuple(re.split(r"\n(?=\S)", inspect.cleandoc("\n".join(["", *parts["Commands:"]])))),
    )


def _prose(lines: list[str]) -> str:
    """Return lines in Markdown; each error starts a paragraph."""
    text = "\n".join(f"\n{line}" if _ERROR.match(line) else line for line in lines)
    text = re.sub(r"\n{3,}", "\n\n", text.strip())
    return plain(_ERROR.sub(r"`\1`", text))


def _arguments(lines: list[str], marked: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    for entry in re.split(r"\n(?=    \S)", "\n".join(lines)):
        name, colon, text = entry.strip().partition(": ")
        if colon:
            yield name, marked(" ".join(text.split()))


def plain(text: str) -> str:
    """Escape Markdown in text, except code between backticks."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<|])", r"\\\1", p) for p in pieces)


def code(text: str) -> str:
    """Return code for a cell of a table or a line."""
    if "|" not in text:
        return f"`{text}`"
    # GitHub ends a cell at a bar within backticks, and the site shows the backslash before one.
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def fence(text: str, language: str) -> str:
    """Return a block of code."""
    lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return f"```{language}\n{lines}\n```"


def link(text: str, target: str) -> str:
    """Return a link."""
    return f"[{text}]({target})"
