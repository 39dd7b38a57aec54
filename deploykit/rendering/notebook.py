"""Tables and progress as HTML in a notebook."""

import importlib
import itertools
import threading
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, TypeVar

from deploykit.rendering.progress import Watcher, Work, clock_time
from deploykit.rendering.tables import Table, shown_text

MOST = 200
"""The maximum number of rows of a table, and of consecutive lines; the middle is omitted."""
_LAST = 50
_WIDEST = 2000  # maximum characters of a line
Item = TypeVar("Item")
_PLAIN = 'style="white-space: pre-wrap; margin: 0.3em 0; background: none"'


def html(text: Iterable[str | Table]) -> str:
    """Return lines and tables as one piece of HTML, without colours."""
    parts: list[str] = []
    shown: list[str | Table] = []
    for part in text:
        shown += [part, part.caption] if isinstance(part, Table) and part.caption else [part]
    for is_text, group in itertools.groupby(shown, lambda part: isinstance(part, str)):
        if is_text:
            texts = [shown_text(part) for part in group if isinstance(part, str)]
            lines = shortest([line for text in texts for line in text.split("\n")])
            joined = "\n".join(map(escape, lines)).strip("\n")
            parts += [f"<pre {_PLAIN}>{joined}</pre>"] if joined else []
        else:
            parts += [_table(part) for part in group if isinstance(part, Table)]
    # Jupyter would show text between two dollar signs as a formula.
    return f'<div class="deploykit tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def shortest(lines: Sequence[str]) -> list[str]:
    """Return lines without the middle of long lines and of many lines."""
    half = _WIDEST // 2
    shown, left_out = _ends(lines)
    drawn = [line if len(line) <= _WIDEST else f"{line[:half]}…{line[-half:]}" for line in shown]
    if left_out:
        drawn.insert(MOST - _LAST, f"… {left_out:,} more lines …")
    return drawn


def _table(table: Table) -> str:
    """Return a table as HTML, with text aligned left and numbers right."""
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
    return escape(text).replace("\n", "<br>")


def _ends(items: Sequence[Item]) -> tuple[list[Item], int]:
    """Return the first and last items, and the number of omitted ones."""
    if len(items) <= MOST:
        return [*items], 0
    return [*items[: MOST - _LAST], *items[-_LAST:]], len(items) - MOST


QUIET_SECONDS = 1.0  # shorter work shows nothing
EVERY_SECONDS = 1.0  # between updates of the browser


class Cell(Watcher):
    """A progress line in the output of the running cell."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._turn = threading.Lock()  # no update after the last line
        self._shown: Any = None

    def began(self, work: Work) -> None:
        """Show the line after one second of work, and update it every second."""
        self._ended, self._shown = threading.Event(), None
        threading.Thread(
            target=self._follow, args=(work, self._ended), name="deploykit-progress", daemon=True
        ).start()

    def ended(self, work: Work) -> None:
        """Show the duration, and where the work stopped after an error."""
        with self._turn:
            self._ended.set()
        if self._shown is not None:
            end = f"{work.said}  stopped after" if work.stopped else f"{work.title}  done in"
            self._show(f"{end} {clock_time(work.elapsed)}")

    def _follow(self, work: Work, ended: threading.Event) -> None:
        ended.wait(QUIET_SECONDS)
        while not ended.wait(EVERY_SECONDS if self._shown is not None else 0):
            with self._turn:
                if not ended.is_set():
                    self._show(work.line)

    def _show(self, line: str) -> None:
        if self._shown is not None:
            self._shown.update({"text/plain": line}, raw=True)
            return
        display = importlib.import_module("IPython.display").display
        self._shown = display({"text/plain": line}, raw=True, display_id=True)
