"""Documents of deploykit as one HTML page, which needs nothing but itself."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from deploykit.rendering.progress import date
from deploykit.reporting.charts.inline import CSS
from deploykit.reporting.page.summary import Card, figure_cards
from deploykit.reporting.page.values import FILTERS, NOTHING, DocumentPart, shown
from deploykit.transforms.common.documents import FORMAT, Documented, Hidden
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import escaped

if TYPE_CHECKING:
    import jinja2

MOST_BYTES = 2_000_000
"""No page is larger, whatever its documents hold."""
_FRAME_BYTES = 60_000  # of that for each document, beside the sections that fit
_MOST_CHAPTERS = 12
_LONGEST_FILE = 120  # characters of its name
_SCHEMA = 1  # of what commands print
_EMPTY = ("", NOTHING, (NOTHING, ""), ("", ""))
_IMAGES = re.compile(r'<div class="drawings".*?</div>|<h\d>[^<]*</h\d>\n<ul class="photos".*?</ul>',
                     re.DOTALL)  # fmt: skip
_COMMANDS = {"tune": "tuned", "transform": "optimize", "freeze": "verify"}


@dataclass(frozen=True)
class DocumentKind:
    """How a document is called, and the macros of sections.html.jinja that show it."""

    title: str
    macros: str
    keys: str = ""
    """All of one of these, split at commas: a document that does not say its kind has them."""


KINDS: Mapping[str, DocumentKind] = {
    "ship": DocumentKind("Shipped model", "ship"),
    "accuracy": DocumentKind("Accuracy", "accuracy"),
    "benchmark": DocumentKind("Benchmark", "speed profiles machine"),
    "input": DocumentKind("Input benchmark", "input_styles machine"),
    "tuned": DocumentKind("Settings", "tuned machine"),
    "quantize": DocumentKind("Quantization", "judged verification layers", "int8_layers layers"),
    "load-test": DocumentKind("Load test", "load", "loads address"),
    "plan": DocumentKind("Plan", "plan", "outcomes needed"),
    "placement": DocumentKind("Placement", "placement",
                              "devices model_nodes, devices ops_by_precision"),
    "optimize": DocumentKind("Optimization", "steps", "steps verified"),
    "verify": DocumentKind("Verification", "verification", "verified by_output"),
    "check": DocumentKind("Soundness", "soundness", "sound graphs"),
    "export": DocumentKind("Export", "exported", "signatures version"),
}  # fmt: skip
"""Kinds in the order in which a document that does not say its kind is held against their keys."""


@dataclass(frozen=True)
class ReportPage(Documented):
    """An HTML page that shows results."""

    html: Hidden[str]
    kinds: tuple[str, ...]
    """What was shown: `ship`, `benchmark`, `tuned` and the like, in order."""
    files: tuple[str, ...]
    """How each is called: the path of a file, `result.document()` of a value."""
    output: Hidden[str | None] = None
    """The file that it was written to."""

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its rules change nothing of a notebook's."""
        return (
            f'<iframe sandbox title="report" srcdoc="{escape(self.html)}" '
            'style="width:100%;height:48rem;border:0"></iframe>'
        )


class ChartMaker(Protocol):
    """Draws what has a name, such as `latencies`, of a document; a label with an SVG each."""

    def __call__(
        self, name: str, document: Mapping[str, Any], of: str, /
    ) -> Iterable[tuple[str, str]]:
        """Yield them."""


@dataclass(frozen=True)
class Section:
    """A section as HTML, where a link finds it, and the part of the document that it shows."""

    title: str
    part: DocumentPart
    anchor: str
    html: str


@dataclass(frozen=True)
class ShownTable:
    """Rows of cells, without columns in which nothing is known."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str | tuple[str, str], ...], ...]
    left_out: str
    """How many rows are not shown, and where they are."""


@dataclass
class Chapter:
    """A document as it is shown."""

    kind: str
    part: DocumentPart
    number: int
    """Of several; 0: there is one only."""
    images: ChartMaker
    sections: list[Section] = field(default_factory=list)

    @property
    def kind_title(self) -> str:
        """What documents of its kind are called."""
        return KINDS[self.kind].title

    @property
    def title(self) -> str:
        """Its title, with its number where there are several."""
        result = (self.part["name"].text if self.kind == "ship" else "") or self.kind_title
        return f"{self.number}. {result}" if self.number else result

    @property
    def started(self) -> str:
        """When it began."""
        return date(self.part["started"].text)

    @property
    def cards(self) -> tuple[Card, ...]:
        """The figures of a shipped model."""
        return figure_cards(self.part) if self.kind == "ship" else ()

    def drawings(self, part: DocumentPart, names: Sequence[str], of: str) -> list[tuple[str, str]]:
        """Return labels, each with an SVG element, of what `names` show of a part."""
        if not isinstance(part.value, Mapping):
            return []
        if self.number:
            of = f"{of}, result {self.number}" if of else f"result {self.number}"
        return [image for name in names for image in self.images(name, part.value, of)]


def html_of(
    documents: Sequence[Mapping[str, Any]],
    images: ChartMaker = lambda name, document, of: (),
    files: Sequence[str] = (),
) -> str:
    """Return a page that shows documents, one after another; at most MOST_BYTES in UTF-8.

    Args:
        documents: what the commands print with --json, and the `report.json` of a shipped model.
        images: draws what has a name, such as `latencies`, of a document.
        files: how each document is called; `document` where it is not said.

    GraphError: a document is of another kind or format; the sentence names its file.
    """
    names = [*files, *["document"] * (len(documents) - len(files))]
    several = len(documents) > 1
    chapters = [
        Chapter(kind_of(item, name), DocumentPart(item, "", shown(name, _LONGEST_FILE)),
                number if several else 0, images)
        for number, (item, name) in enumerate(zip(documents, names, strict=True), 1)
    ]  # fmt: skip
    few = chapters[:_MOST_CHAPTERS]
    level = 2 + several
    left = MOST_BYTES - _FRAME_BYTES * (len(few) + 1)
    for item in few:
        left = _write_sections(item, level, left, sum(len(other.sections) for other in few))
    return _environment().get_template("page.html.jinja").render(
        title=f"{len(chapters)} results" if several else shown(few[0].title),
        chapters=few,
        left_out=[chapter.part.file for chapter in chapters[_MOST_CHAPTERS:]][:_MOST_CHAPTERS],
        level=level,
        charts_css=CSS,
    )  # fmt: skip


def _write_sections(chapter: Chapter, level: int, left: int, before: int) -> int:
    """Add the sections of a chapter, each as large as a page may hold; return the bytes left.

    A section that is too large loses its images, then all but where its values are.
    """

    def add(title: str, part: DocumentPart, html: str) -> None:
        nonlocal left
        if not html.strip():
            return
        where = f"{part.place} in {part.file}" if part.place else part.file
        words = f"Left out, as the page would be too large; the figures are in {where}."
        html = re.sub(r">\n{2,}<", ">\n<", html.strip())
        forms = (html, _IMAGES.sub("", html), f'<p class="words doubt">{_safe(words)}</p>')
        result = next((form for form in forms if len(form.encode()) <= left), forms[-1])
        left -= len(result.encode())
        anchor = f"s{before + len(chapter.sections) + 1}"
        chapter.sections.append(Section(title, part, anchor, result))

    macros: Any = _environment().get_template("sections.html.jinja").make_module({
        "add": add, "added": lambda: len(chapter.sections), "drawings": chapter.drawings,
        "level": level,
    })  # fmt: skip
    for name in KINDS[chapter.kind].macros.split():
        getattr(macros, name)(chapter.part)
    if not chapter.sections:
        macros.empty("Figures", chapter.part, "This document holds no figures.")
    return left


def _safe(text: str) -> str:
    return escape(escaped(text, keep="\n"))


def table_of(
    part: DocumentPart,
    columns: Sequence[tuple[str, str]],
    most: int,
    count: int | None,
    rows: Sequence[Any] | None,
    names: Mapping[str, Any],
) -> ShownTable:
    """Return a table of a list.

    Args:
        part: the list, or the part that the rows are taken from.
        columns: headings, each with a Jinja expression over a row, which is called `it`.
        most: rows that are shown of the list.
        count: of all rows; None: the length of the list.
        rows: what is shown instead of the list.
        names: what else the expressions use.
    """
    shown_rows = part.head(most) if rows is None else rows
    cells = [[_cell(_expression(how)(it=row, **names)) for _, how in columns] for row in shown_rows]
    retained = [
        n for n in range(len(columns)) if not n or any(row[n] not in _EMPTY for row in cells)
    ]
    return ShownTable(
        tuple(columns[n][0] for n in retained),
        tuple(tuple(row[n] for n in retained) for row in cells),
        rest_of(part, len(cells), count),
    )


def _cell(value: object) -> str | tuple[str, str]:
    return value if isinstance(value, str | tuple) else NOTHING


def rest_of(part: DocumentPart, most: int, count: int | None = None) -> str:
    """Return how many rows are not shown and where they are; nothing where all are."""
    count = len(part) if count is None else count
    if count <= most:
        return ""
    where = f"{part.place} in {part.file}" if part.place else part.file
    return f"{most:,} of {count:,} are shown; all of them are in {where}."


def _known_rows(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in rows if value and value != NOTHING]


@cache
def _environment() -> "jinja2.Environment":
    from pathlib import Path

    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        extensions=["jinja2.ext.do"],
        finalize=lambda value: escaped(value, keep="\n") if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS
    environment.globals |= {"table_of": table_of, "rest_of": rest_of, "known_rows": _known_rows}
    return environment


@cache
def _expression(source: str) -> "jinja2.environment.TemplateExpression":
    return _environment().compile_expression(source)


def kind_of(document: Any, file: str) -> str:
    """Return the kind of a document. GraphError: it is not one of KINDS, or of another format."""
    if not isinstance(document, Mapping):
        raise GraphError("document-not-object", source=file)
    kind, command = document.get("kind"), document.get("command")
    if kind is not None:
        number, expected, what = document.get("format"), FORMAT, "format"
    elif command is not None:
        number, expected, what = document.get("schema"), _SCHEMA, "schema"
        kind = _COMMANDS.get(command, command) if isinstance(command, str) else command
    else:
        kind = _by_keys(document)
        number = expected = None
        what = ""
    if not isinstance(kind, str) or kind not in KINDS:
        raise GraphError("report-kind-unknown", source=file, kind=kind, known=sorted(KINDS))
    if number != expected:
        raise GraphError("document-format", source=file, what=what, got=number, known=expected)
    return kind


def _by_keys(document: Mapping[str, Any]) -> str | None:
    """Return the kind of a document by the keys that it has."""
    for name, kind in KINDS.items():
        for keys in filter(None, kind.keys.split(", ")):
            if set(keys.split()) <= document.keys():
                return name
    return None
