"""Tables as data, and their text for a terminal; `notebook.py` renders them as HTML.

A result declares its columns: `table(shards, {"shard": "{file}", "size": "{bytes:size}"})`.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.rendering.templates import filled
from deploykit.transforms.common.messages import escaped

NARROW = 20
"""The minimum width in characters of a text column on a narrow terminal."""
_GAP = 3
Cell = str | Callable[[Any], str | None]
"""A template for the text of a cell, or a function that returns the text."""


class OwnLines(str):
    """A text whose line breaks are its own: the values in it are escaped already."""


@dataclass
class Table:
    """A table of text, in which names are escaped already."""

    headings: tuple[str, ...]
    """The column headings. If empty, each row is a name and a value."""
    rows: list[tuple[str, ...]]
    texts: tuple[int, ...] = (0,)
    """The indices of text columns, which are aligned left and may be wrapped."""
    caption: str = ""
    has_total: bool = False
    """Whether the last row is a total, which is set apart."""

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yield the table, no wider than `width` if wrapped text makes that possible.

        Columns that do not fit follow below, again with the first column. A table without headings
        is never wrapped.
        """
        width = width if self.headings else None  # commands stay on one line for copying
        for columns in self._parts(width):
            yield ""
            yield from self._of_columns(columns)._rendered(width)
        yield ""
        if self.caption:
            yield escaped(self.caption)

    def _parts(self, width: int | None) -> list[list[int]]:
        """Return the indices of the columns for each block of the table."""
        if width is None:
            return [[*self._columns]]
        needed = [self._width(n, NARROW if n in self.texts else None) for n in self._columns]
        parts = [[0]]
        for n in self._columns[1:]:
            used = sum(needed[part] + _GAP for part in parts[-1])
            if used + needed[n] > width and len(parts[-1]) > 1:
                parts.append([0])
            parts[-1].append(n)
        return parts

    @property
    def _columns(self) -> range:
        return range(len(self.rows[0]) if self.rows else len(self.headings))

    def _width(self, column: int, most: int | None = None) -> int:
        from rich.cells import cell_len

        cells = [row[column] for row in (self.headings, *self.rows) if row]
        whole = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        return whole if most is None else min(whole, most)

    def _of_columns(self, columns: Sequence[int]) -> "Table":
        return replace(
            self,
            headings=tuple(self.headings[n] for n in columns) if self.headings else (),
            rows=[tuple(row[n] for n in columns) for row in self.rows],
            texts=tuple(place for place, n in enumerate(columns) if n in self.texts),
        )

    def _rendered(self, width: int | None) -> list[str]:
        """Return the table as lines of plain text; without `width`, nothing is wrapped."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        widths = [self._width(n) for n in self._columns]
        least = [min(item, NARROW) if n in self.texts else item for n, item in enumerate(widths)]
        gaps = _GAP * (len(widths) - 1)
        room = sum(widths) + gaps if width is None else max(sum(least) + gaps, width)
        drawing = RichTable(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=bool(self.headings)
        )
        for n, narrow in enumerate(least):
            side: Any = (
                {"justify": "left"} if n in self.texts else {"justify": "right", "no_wrap": True}
            )
            heading = self.headings[n] if self.headings else ""
            drawing.add_column(Text(heading), overflow="fold", min_width=narrow, **side)
        for n, row in enumerate(self.rows):
            is_set_apart = self.has_total and n == len(self.rows) - 2
            drawing.add_row(*map(Text, row), end_section=is_set_apart)
        console = Console(
            force_terminal=False,  # ignores FORCE_COLOR and TERM, as this is not a terminal
            file=io.StringIO(),
            width=max(room, 1),
            color_system=None,
            force_jupyter=False,
        )
        with console.capture() as capture:
            console.print(drawing)
        return [line.rstrip() for line in capture.get().removesuffix("\n").split("\n")]


def table(
    rows: Iterable[Any],
    columns: Mapping[str, Cell],
    caption: str = "",
    *,
    more: Iterable[tuple[str, Cell]] = (),
    has_total: bool = False,
) -> Table:
    """Return a table of rows; columns are templates or functions of a row, by heading.

    Columns in `more` may have equal headings. A column without any value is omitted. Numbers are
    aligned right.
    """
    rows, pairs = list(rows), (*columns.items(), *more)
    cells = [(heading, [_text(cell, row) for row in rows]) for heading, cell in pairs]
    shown = [(heading, column) for heading, column in cells if any(column) or not rows]
    return Table(
        tuple(escaped(heading) for heading, _ in shown),
        [tuple(text or "-" for text in row) for row in zip(*(c for _, c in shown), strict=True)],
        tuple(
            n
            for n, (_, column) in enumerate(shown)
            if not n or not all(text.lstrip("+-<")[:1].isdigit() for text in column if text)
        ),
        caption,
        has_total,
    )


def facts(row: Any, cells: Mapping[str, Cell]) -> Table:
    """Return names and values of one result as a table without headings, skipping empty values."""
    results = {name: _text(cell, row) for name, cell in cells.items()}
    return Table((), [(escaped(name), text) for name, text in results.items() if text], (0, 1))


def constant(texts: Mapping[str, str]) -> dict[str, Cell]:
    """Return cells that are the same for all rows."""

    def cell(text: str) -> Cell:
        return lambda _: text

    return {name: cell(text) for name, text in texts.items()}


def _text(cell: Cell, row: Any) -> str | None:
    if isinstance(cell, str):
        return filled(cell, row)
    text = cell(row)
    return None if text is None else shown_text(text)


def shown_text(text: str) -> str:
    """Return a text without control codes and line breaks, except its own ones."""
    return text if isinstance(text, OwnLines) else escaped(text)


def drawn(text: Iterable[str | Table], width: int | None = None) -> Iterator[str]:
    """Yield lines, and tables as lines, with an empty line around each table.

    There are no empty lines at either end, and no two consecutive ones. Control codes of names are
    escaped, and line breaks too: a name cannot add a line.
    """
    has_begun = has_gap = False
    for item in text:
        for line in [shown_text(item)] if isinstance(item, str) else item.lines(width):
            if line:
                yield from [""] * (has_begun and has_gap)
                yield line
            has_begun, has_gap = has_begun or bool(line), not line
