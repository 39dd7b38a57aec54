"""What a page is built of: sections, and in them words, facts, tables, pictures, photos."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploykit.reporting.page.amounts import NOTHING
from deploykit.reporting.page.part import DocumentPart
from deploykit.text.templates import sentence

_EMPTY = ("", NOTHING, (NOTHING, ""), ("", ""))
MOST_ROWS = 60
"""So many rows of a table are shown, unless it says otherwise."""


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str
    tone: str = ""
    """`good`, `bad` or `doubt`: how it is marked."""
    kind: str = "words"


@dataclass(frozen=True)
class FactList:
    """Names with a value each; those without one are left out."""

    rows: tuple[tuple[str, str], ...]
    place: str = ""
    kind: str = "facts"


@dataclass(frozen=True)
class Grid:
    """A table: the first column holds names, `texts` are other columns of words, all else figures.

    A cell may be a tuple of a figure and of what stands below it in small letters.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | tuple[str, str], ...], ...]
    texts: frozenset[str] = frozenset()
    left_out: str = ""
    """How many rows are not shown, and where they are."""
    place: str = ""
    kind: str = "grid"


@dataclass(frozen=True)
class Drawings:
    """SVG elements side by side, and what each shows."""

    drawings: tuple[tuple[str, str], ...]
    place: str = ""
    kind: str = "drawings"


@dataclass(frozen=True)
class Photo:
    """A small picture and what was said of it."""

    name: str
    source: str
    """A data URI; empty: there is none."""
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Photos:
    """Small pictures side by side."""

    title: str
    photos: tuple[Photo, ...]
    left_out: str = ""
    place: str = ""
    kind: str = "photos"


@dataclass(frozen=True)
class CommandLines:
    """Commands, and what each is for."""

    rows: tuple[tuple[str, str], ...]
    place: str = ""
    kind: str = "commands"


Block = Words | FactList | Grid | Drawings | Photos | CommandLines


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    title: str
    blocks: tuple[Block, ...]
    file: str = ""
    place: str = ""
    """Where its figures are in the document."""


Pictures = Callable[[str, Mapping[str, Any], str], Iterable[tuple[str, str]]]
"""Draws what has a name, such as `latencies`, of a document: labels with an SVG element each."""
Drawer = Callable[[DocumentPart, Pictures], Iterable[Section]]
"""Makes sections of a document, none where it does not hold what they show."""


@dataclass
class SectionDraft:
    """A section while it is written."""

    title: str
    part: DocumentPart
    blocks: list[Block] = field(default_factory=list)

    def say(self, text: str, tone: str = "") -> None:
        """Add a paragraph, if there is anything to say."""
        if text:
            self.blocks.append(Words(sentence(text), tone))

    def facts(self, part: DocumentPart, *rows: tuple[str, str]) -> None:
        """Add the names that have a value."""
        known = tuple((name, value) for name, value in rows if value not in ("", NOTHING))
        if known:
            self.blocks.append(FactList(known, part.place))

    def grid(
        self,
        title: str,
        part: DocumentPart,
        headings: Sequence[str],
        rows: Sequence[tuple[str | tuple[str, str], ...]],
        *,
        texts: Iterable[str] = (),
        count: int | None = None,
    ) -> None:
        """Add a table, without columns in which nothing is known. `count`: of all rows."""
        if not rows:
            return
        kept = [
            n for n in range(len(headings))
            if not n or any(row[n] not in _EMPTY for row in rows)
        ]  # fmt: skip
        few = tuple(tuple(row[n] for n in kept) for row in rows)
        said = rest(part, len(rows), len(part) if count is None else count)
        names = tuple(headings[n] for n in kept)
        self.blocks.append(Grid(title, names, few, frozenset(texts), said, part.place))

    def draw(self, pictures: Pictures, part: DocumentPart, *names: str, of: str = "") -> None:
        """Add the pictures of names; their titles say what they are of, where there are several."""
        if isinstance(part.value, Mapping):
            drawn = tuple(each for name in names for each in pictures(name, part.value, of))
            if drawn:
                self.blocks.append(Drawings(drawn, part.place))

    def done(self) -> Iterable[Section]:
        """Yield it, if anything stands in it."""
        if self.blocks:
            yield Section(self.title, tuple(self.blocks), self.part.file, self.part.place)


def rest(part: DocumentPart, shown: int, count: int) -> str:
    """Say how many rows are not shown and where they are; nothing where all are."""
    if count <= shown:
        return ""
    where = f"{part.place} in {part.file}" if part.place else part.file
    return f"{shown:,} of {count:,} are shown; all of them are in {where}."
