"""Tables and figures as people read them."""

import copy
import itertools
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence

NARROW = 12
"""So many characters of a name are shown, however narrow the terminal is."""
_GAP = "   "


def size(count: int | None) -> str:
    """Return a number of bytes as people read it: 812 B, 4.9 MB."""
    if count is None:
        return "-"
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in_unit = count / 1000
        if count_in_unit < 1000:
            return (
                f"{count_in_unit:.3g} {unit}"
                if count_in_unit < 100
                else f"{count_in_unit:.0f} {unit}"
            )
        count = round(count_in_unit)
    return f"{count / 1000:.3g} GB"


def number(value: float) -> str:
    """Return a number with three digits that count, and no exponent."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])  # of what it is rounded to
    return f"{value:.{max(0, 2 - exponent)}f}"


def sentence(text: str) -> str:
    """Return a text that begins with a capital, unless a name may be its first word."""
    first = text.split(maxsplit=1)[0].rstrip(",:;") if text.strip() else ""
    return f"{text[0].upper()}{text[1:]}" if first.isalpha() else text


def shortened(text: str, width: int) -> str:
    """Return the start and the end of a text, with one `…` between them, in so many columns."""
    if _length(text) <= width:
        return text
    start, end = text[: width // 2], text[-((width - 1) // 2) :]
    while _length(start) + _length(end) > width - 1:  # some characters take two columns
        start, end = (start[:-1], end) if _length(start) > _length(end) else (start, end[1:])
    return f"{start}…{end}"


class Table:
    """Rows of cells under headings, each drawn in one line for each line of its cells.

    The first column holds names. Where a table is too wide, names are cut in the middle, though
    never so that two of them look alike; all other columns, such as figures, stay whole.
    """

    def __init__(self, *headings: str, texts: Collection[str] = ()) -> None:
        """Begin a table. `texts` are headings of other columns that are cut like names."""
        self.caption = ""
        self.rows: list[tuple[str, ...]] = []
        self.headings = headings
        self.texts = [n for n, heading in enumerate(headings) if not n or heading in texts]
        self.sections: set[int] = set()

    def add_row(self, *cells: str) -> None:
        """Add a cell for each column."""
        self.rows.append(cells)

    def add_section(self) -> None:
        """Leave a line empty before the next row."""
        self.sections.add(len(self.rows))

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yield the table, no wider than this if names can be cut so; the second is the heading."""
        if width is not None and self._needed() > width:
            for part in self._without_prefix()._parts_within(width):
                yield from part._lines(width)
            if self.caption:
                yield self.caption
        else:
            yield from self._lines(width)
            if self.caption:
                yield self.caption

    def _parts_within(self, width: int) -> "Iterator[Table]":
        """Yield it in tables that are no wider, if its columns are not: each with the names."""
        widths = self._widths(width)
        left = width - 1 - widths[0]
        columns, room = [0], left
        for number in range(1, len(widths)):
            room -= len(_GAP) + widths[number]
            if room < 0 and len(columns) > 1:
                yield self._of_columns(columns)
                columns, room = [0], left - len(_GAP) - widths[number]
            columns.append(number)
        yield self if len(columns) == len(widths) else self._of_columns(columns)

    def _of_columns(self, columns: Sequence[int]) -> "Table":
        """Return it with some of its columns."""
        found = copy.copy(self)
        found.headings = tuple(self.headings[each] for each in columns)
        found.rows = [tuple(row[each] for each in columns) for row in self.rows]
        found.texts = [n for n, each in enumerate(columns) if each in self.texts]
        return found

    def _lines(self, width: int | None) -> Iterator[str]:
        widths = self._widths(width)
        yield ""
        yield from self._drawn(self.headings, widths)
        yield f" {'─' * (sum(widths) + len(_GAP) * (len(widths) - 1))}"
        for place, row in enumerate(self.rows):
            if place in self.sections:
                yield ""
            yield from self._drawn(row, widths)
        yield ""

    def _needed(self) -> int:
        """Return the width of the whole table."""
        widths = self._widths(None)
        return sum(widths) + len(_GAP) * (len(widths) - 1) + 1

    def _without_prefix(self) -> "Table":
        """Return it with `…/` for the scopes that all names of layers begin with."""
        found = copy.copy(self)
        scopes = [row[0].split("/")[:-1] for row in self.rows if "/" in row[0]]
        shared = itertools.takewhile(lambda each: len({*each}) == 1, zip(*scopes, strict=False))
        prefix = "/".join(each[0] for each in shared)
        if len(scopes) < 2 or not prefix:
            return found
        found.rows = [
            (f"…{row[0].removeprefix(prefix)}" if "/" in row[0] else row[0], *row[1:])
            for row in self.rows
        ]
        return found

    def _widths(self, most: int | None) -> list[int]:
        """Return how wide each column is."""
        whole = [max(map(_length, column)) for column in map(_parts, self._columns())]
        if most is None:
            return whole
        found = list(whole)
        left = most - 1 - len(_GAP) * (len(whole) - 1)
        while sum(found) > left:
            widest = max(self.texts, key=found.__getitem__)
            if found[widest] <= NARROW:
                break
            found[widest] -= 1
        names = set(_parts(self._columns()[0]))
        found[0] += bisect_left(
            range(found[0], whole[0]),
            True,
            key=lambda width: len({shortened(name, width) for name in names}) == len(names),
        )
        for each in self.texts[1:]:  # names that would look alike took room of theirs
            found[each] = max(min(found[each], NARROW), found[each] - max(0, sum(found) - left))
        return found

    def _columns(self) -> list[tuple[str, ...]]:
        return list(zip(self.headings, *self.rows, strict=True))

    def _drawn(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        """Yield the lines of a row: names on the left, figures on the right of their column."""
        cells = [cell.split("\n") for cell in row]
        for line in range(max(map(len, cells))):
            drawn = []
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
                text = shortened(cell[line], width) if line < len(cell) else ""
                blank = " " * (width - _length(text))
                drawn.append(text + blank if column in self.texts else blank + text)
            yield f" {_GAP.join(drawn)}".rstrip()


def new_table(*headings: str, texts: Collection[str] = ()) -> Table:
    """Return an empty table; the first column holds names, and those of `texts` are text too."""
    return Table(*headings, texts=texts)


def drawn(text: "Iterable[str | Table]", width: int | None = None) -> Iterator[str]:
    """Yield lines as they are, and tables as lines."""
    for each in text:
        yield from [each] if isinstance(each, str) else each.lines(width)


def _parts(cells: Sequence[str]) -> list[str]:
    """Return the lines of cells."""
    return [line for cell in cells for line in cell.split("\n")]


def _length(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
