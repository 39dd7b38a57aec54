"""The gate for GitHub: workflow commands that annotate a run, and a Markdown comment.

Sources: GitHub Docs, Workflow commands for GitHub Actions; actions/toolkit, command.ts (escaping).
"""

import re
from collections.abc import Iterator

from deploykit.gating.result import GateResult
from deploykit.gating.tables import HEADINGS, notes, plot, rows
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, PASS
from deploykit.rendering.tables import OwnLines
from deploykit.transforms.common.messages import escaped

MARKER = "<!-- deploykit gate -->"
"""First line of the comment, by which a workflow finds and replaces its earlier comment."""
_TITLE = "deploykit gate"
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~#@])")


def annotations(result: GateResult) -> Iterator[str]:
    """Yield a workflow command for each failed or inconclusive check; if all pass, a notice."""
    kinds = {FAIL: "error", INCONCLUSIVE: "warning"}
    for check in result.checks:
        if check.verdict in kinds:
            yield _command(kinds[check.verdict], f"{_TITLE}: {check.name}", check.sentence)
    if result.verdict == PASS:
        yield _command("notice", _TITLE, result.headline)


def _command(kind: str, title: str, message: str) -> str:
    title, message = _encoded(escaped(title), _PROPERTY), _encoded(escaped(message), _DATA)
    return OwnLines(f"::{kind} title={title}::{message}")


def _encoded(text: str, replacements: dict[str, str]) -> str:
    return "".join(replacements.get(character, character) for character in text)


def comment(result: GateResult) -> str:
    """Return Markdown with the verdict, the table and a plot of the intervals.

    The plot is text: GitHub shows neither SVG nor data URIs in comments, and Mermaid's charts have
    no error bars.
    """
    lines = [MARKER, f"### {_TITLE}: {result.verdict}", "",
             f"Candidate `{_code(result.candidate)}`, baseline `{_code(result.baseline)}`", "",
             _row(HEADINGS), f"|{'---|' * len(HEADINGS)}"]  # fmt: skip
    for name, verdict, *cells in rows(result):
        strong = verdict if verdict not in (FAIL, INCONCLUSIVE) else f"**{verdict}**"
        lines.append(_row([_text(name), strong, *map(_text, cells)]))
    drawn = [*plot(result.checks)]
    if drawn:
        lines += ["", "```text", *(line.replace("`", "'") for line in drawn), "```"]
    lines += ["", *(f"* {_text(note)}" for note in notes(result))]
    return "\n".join(lines) + "\n"


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return a text without control codes as Markdown."""
    return _MARKDOWN.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Return a text for a code span."""
    return escaped(text).replace("`", "'")
