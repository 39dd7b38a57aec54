"""Lines and tables as HTML for notebooks. Names are text, whatever characters they contain."""

import itertools
from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeVar

from deploykit.text.tables import Table
from deploykit.transforms.core.display.escaped import escaped

MOST = 200
"""Rows of a table, and lines in a row, that are shown: the first and the last of them."""
_LAST = 50
_WIDEST = 2000  # characters of a line
Item = TypeVar("Item")
_PLAIN = 'style="white-space: pre-wrap; margin: 0.3em 0; background: none"'


def html(text: Iterable[str | Table]) -> str:
    """Return lines and tables as one piece of HTML, without colours."""
    parts: list[str] = []
    for is_text, group in itertools.groupby(
        _with_captions(text), lambda part: isinstance(part, str)
    ):
        if is_text:
            lines = [line for part in group for line in str(part).split("\n")]
            joined = "\n".join(map(_cell, shortest(lines))).strip("\n")
            parts += [f"<pre {_PLAIN}>{joined}</pre>"] if joined else []
        else:
            parts += [_table(part) for part in group if isinstance(part, Table)]
    # Jupyter would show text between two dollar signs as a formula.
    return f'<div class="deploykit tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _with_captions(text: Iterable[str | Table]) -> Iterable[str | Table]:
    for part in text:
        yield part
        if isinstance(part, Table) and part.caption:
            yield part.caption


def shortest(lines: Sequence[str]) -> list[str]:
    """Return lines: the ends of long ones, and the first and the last of many."""
    half = _WIDEST // 2
    shown, left_out = _ends(lines)
    drawn = [line if len(line) <= _WIDEST else f"{line[:half]}…{line[-half:]}" for line in shown]
    if left_out:
        drawn.insert(MOST - _LAST, f"… {left_out:,} more lines …")
    return drawn


def _table(table: Table) -> str:
    """Return a table: text on the left, numbers on the right of their column."""
    shown, left_out = _ends(table.rows)
    rows = [_row("td", row, table) for row in shown]
    blank = '<tr><td colspan="{}">{}</td></tr>'
    if table.has_total:
        rows.insert(-1, blank.format(len(table.headings), "&nbsp;"))
    if left_out:
        rows.insert(MOST - _LAST, blank.format(len(table.rows[0]), f"… {left_out:,} more rows …"))
    heading = f"<thead>{_row('th', table.headings, table)}</thead>" if table.headings else ""
    return f"<table>{heading}<tbody>{''.join(rows)}</tbody></table>"


def _row(kind: str, cells: Sequence[str], table: Table) -> str:
    sides = ("left" if column in table.texts else "right" for column in range(len(cells)))
    drawn = (
        f'<{kind} style="text-align: {side}">{_cell(cell)}</{kind}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(drawn)}</tr>"


def _cell(text: str) -> str:
    return escape(escaped(text, keep="\n")).replace("\n", "<br>")


def _ends(items: Sequence[Item]) -> tuple[list[Item], int]:
    """Return the first and last of many items, and how many are left out."""
    if len(items) <= MOST:
        return [*items], 0
    return [*items[: MOST - _LAST], *items[-_LAST:]], len(items) - MOST
