"""Lines and tables as HTML; names in them are taken for text, whatever they hold."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeVar

from deploykit.text.tables import Table, shortened
from deploykit.transforms.core.display.escaped import escaped

MOST = 200
"""So many rows of a table, and lines in a row, are shown: the first and the last of them."""
_LAST = 50
_WIDEST = 2000  # characters of a line
_PLAIN = 'style="white-space: pre-wrap; margin: 0.3em 0; background: none"'
Item = TypeVar("Item")


def html(text: Iterable[str | Table]) -> str:
    """Return lines and tables as one piece of HTML, without colours of its own."""
    parts: list[str] = []
    lines: list[str] = []
    for each in text:
        if isinstance(each, str):
            lines += each.split("\n")
            continue
        parts += _paragraph(lines)
        parts.append(_table(each))
        lines = [each.caption] if each.caption else []
    parts += _paragraph(lines)
    # Jupyter would set what stands between two dollar signs as a formula.
    return f'<div class="deploykit tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _paragraph(lines: Sequence[str]) -> list[str]:
    if not any(lines):
        return []
    joined = "\n".join(map(_cell, shortest(lines))).strip("\n")
    return [f"<pre {_PLAIN}>{joined}</pre>"]


def shortest(lines: Sequence[str]) -> list[str]:
    """Return lines, of long ones their ends, and of many the first and the last."""
    shown, left_out = _ends(lines)
    drawn = [shortened(each, _WIDEST) for each in shown]
    if left_out:
        drawn.insert(MOST - _LAST, _more(left_out, "lines"))
    return drawn


def _table(table: Table) -> str:
    """Return a table: names on the left, figures on the right of their column."""
    shown, left_out = _ends(list(enumerate(table.rows)))
    rows = []
    for place, row in shown:
        if place in table.sections:
            rows.append(f'<tr><td colspan="{len(row)}">&nbsp;</td></tr>')
        rows.append(_row("td", row, table.texts))
    if left_out:
        more = f'<td colspan="{len(table.headings)}">{_more(left_out, "rows")}</td>'
        rows.insert(MOST - _LAST, f"<tr>{more}</tr>")
    heading = _row("th", table.headings, table.texts)
    return f"<table><thead>{heading}</thead><tbody>{''.join(rows)}</tbody></table>"


def _row(kind: str, cells: Sequence[str], texts: Sequence[int]) -> str:
    sides = ("left" if column in texts else "right" for column in range(len(cells)))
    drawn = (
        f'<{kind} style="text-align: {side}">{_cell(cell)}</{kind}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(drawn)}</tr>"


def _cell(text: str) -> str:
    return escape(escaped(text, keep="\n")).replace("\n", "<br>")


def _more(count: int, what: str) -> str:
    return f"… {count:,} {what} more …"


def _ends(items: Sequence[Item]) -> tuple[list[Item], int]:
    """Return what is shown of many items, and how many are left out."""
    if len(items) <= MOST:
        return list(items), 0
    return [*items[: MOST - _LAST], *items[-_LAST:]], len(items) - MOST
