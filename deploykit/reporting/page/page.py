"""A self-contained HTML page for the documents of deploykit."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from deploykit.rendering.progress import date
from deploykit.reporting.charts.inline import CSS
from deploykit.reporting.page.summary import machine_of, settings_of, subject
from deploykit.reporting.page.values import FILTERS, NOTHING, DocumentPart, shown
from deploykit.transforms.common import removed
from deploykit.transforms.common.documents import FORMAT, Documented, Hidden
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import escaped

if TYPE_CHECKING:
    import jinja2

MAX_BYTES = 2_000_000
"""Maximum size of a page, regardless of its documents."""
_FRAME_BYTES = 60_000  # reserved for each document, besides its sections
_MAX_CHAPTERS = 12
_LONGEST_FILE = 120  # characters of its name
_SCHEMA = 1  # of the commands' JSON output
_EMPTY = ("", NOTHING, (NOTHING, ""), ("", ""))
_IMAGES = re.compile(r'<div class="drawings".*?</div>|<h\d>[^<]*</h\d>\n<ul class="photos".*?</ul>',
                     re.DOTALL)  # fmt: skip
_COMMANDS = {"tune": "tuned", "transform": "optimize", "freeze": "verify"}


@dataclass(frozen=True)
class DocumentKind:
    """Title of a document kind, and the macros of sections.html.jinja that render it."""

    title: str
    macros: str
    keys: str = ""
    """Alternatives of required keys, separated by commas, for documents without a kind."""


KINDS: Mapping[str, DocumentKind] = {
    "ship": DocumentKind("Shipped model", "ship"),
    "accuracy": DocumentKind("Accuracy", "accuracy"),
    "benchmark": DocumentKind("Benchmark", "speed profiles machine"),
    "input": DocumentKind("Input benchmark", "input_styles machine"),
    "tuned": DocumentKind("Settings", "tuned machine"),
    "quantize": DocumentKind("Quantization", "judged verification layers", "int8_layers layers"),
    "load-test": DocumentKind("Load test", "load", "loads address"),
    "placement": DocumentKind("Placement", "placement",
                              "devices model_nodes, devices ops_by_precision"),
    "optimize": DocumentKind("Optimization", "steps", "steps verified"),
    "verify": DocumentKind("Verification", "verification", "verified by_output"),
    "check": DocumentKind("Validation", "soundness", "sound graphs"),
    "export": DocumentKind("Export", "exported", "signatures version"),
}  # fmt: skip
"""Kinds, in the order in which the keys of a document without a kind are compared."""


@dataclass(frozen=True)
class ReportPage(Documented):
    """A report of results as an HTML page."""

    html: Hidden[str]
    kinds: tuple[str, ...]
    """Kinds of the documents: `ship`, `benchmark`, `tuned` and so on, in order."""
    files: tuple[str, ...]
    """Name of each document: the path of a file, or `result.document()` for a value."""
    output: Hidden[str | None] = None
    """Path of the written file, or None."""

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that its CSS does not affect the notebook."""
        return (
            f'<iframe sandbox title="report" srcdoc="{escape(self.html)}" '
            'style="width:100%;height:48rem;border:0"></iframe>'
        )


class ChartMaker(Protocol):
    """Draws the named chart of a document, such as `latencies`."""

    def __call__(
        self, name: str, document: Mapping[str, Any], of: str, /
    ) -> Iterable[tuple[str, str]]:
        """Yield a label and an SVG element for each chart."""


@dataclass(frozen=True)
class Section:
    """A section as HTML, with its link target and the part of the document that it shows."""

    title: str
    part: DocumentPart
    anchor: str
    html: str


@dataclass(frozen=True)
class ShownTable:
    """Rows of a table, without empty columns."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str | tuple[str, str], ...], ...]
    left_out: str
    """A note on the number of hidden rows, and where they are."""


@dataclass
class Chapter:
    """A document with its rendered sections."""

    kind: str
    part: DocumentPart
    number: int
    """Number of the document if the page shows several, otherwise 0."""
    images: ChartMaker
    summary: str = ""
    """Summary of a shipped model as HTML."""
    sections: list[Section] = field(default_factory=list)

    @property
    def kind_title(self) -> str:
        """Title of the document kind."""
        return KINDS[self.kind].title

    @property
    def title(self) -> str:
        """Title of the document, with its number if the page shows several."""
        result = (self.part["name"].text if self.kind == "ship" else "") or self.kind_title
        return f"{self.number}. {result}" if self.number else result

    @property
    def started(self) -> str:
        """Start of the measurement."""
        return date(self.part["started"].text)

    @property
    def subject(self) -> str:
        """The model, its settings and the machine."""
        return subject(self.part, self.part)

    def drawings(
        self, part: DocumentPart, names: Sequence[str], of: str, measured: Sequence[DocumentPart]
    ) -> list[tuple[str, str]]:
        """Return the charts of a part that are in `names`, as labels and SVG elements.

        The labels name the model and the settings. The charts show only these measurements of the
        part, if there are any in `measured`.
        """
        if not isinstance(part.value, Mapping):
            return []
        value = dict(part.value)
        if measured:
            value["measurements"] = [item.value for item in measured]
        of = subject(part, self.part, of, measured)
        if self.number:
            of = f"{of}; result {self.number}"
        return [image for name in names for image in self.images(name, value, of)]


def html_of(
    documents: Sequence[Mapping[str, Any]],
    images: ChartMaker = lambda name, document, of: (),
    files: Sequence[str] = (),
) -> str:
    """Return a page that shows documents one after another, at most MAX_BYTES in UTF-8.

    Args:
        documents: output of commands with --json, or the `report.json` of a shipped model.
        images: draws the named chart of a document, such as `latencies`.
        files: name of each document; default: `document`.

    GraphError: a document has an unknown kind or format; the message names its file.
    """
    names = [*files, *["document"] * (len(documents) - len(files))]
    several = len(documents) > 1
    chapters = [
        Chapter(kind_of(item, name), DocumentPart(item, "", shown(name, _LONGEST_FILE)),
                number if several else 0, images)
        for number, (item, name) in enumerate(zip(documents, names, strict=True), 1)
    ]  # fmt: skip
    few = chapters[:_MAX_CHAPTERS]
    level = 2 + several
    left = MAX_BYTES - _FRAME_BYTES * (len(few) + 1)
    for item in few:
        left = _write_sections(item, level, left, sum(len(other.sections) for other in few))
    return _environment().get_template("page.html.jinja").render(
        title=f"{len(chapters)} results" if several else shown(few[0].title),
        chapters=few,
        left_out=[chapter.part.file for chapter in chapters[_MAX_CHAPTERS:]][:_MAX_CHAPTERS],
        level=level,
        charts_css=CSS,
    )  # fmt: skip


def _write_sections(chapter: Chapter, level: int, left: int, before: int) -> int:
    """Add the sections of a chapter within the size limit; return the remaining bytes.

    A section that is too large loses its images; if that is not enough, only the location of its
    values remains.
    """

    def add(title: str, part: DocumentPart, html: str) -> None:
        nonlocal left
        if not html.strip():
            return
        where = f"{part.place} in {part.file}" if part.place else part.file
        words = f"Skipped, as the page would be too large; the values are in {where}."
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
    if chapter.kind == "ship":
        chapter.summary = str(macros.summary(chapter.part))
        left -= len(chapter.summary.encode())
    for name in KINDS[chapter.kind].macros.split():
        getattr(macros, name)(chapter.part)
    if not chapter.sections:
        macros.empty("Metrics", chapter.part, "This document contains no metrics.")
    return left


def _safe(text: str) -> str:
    return escape(escaped(text))


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
        part: the list, or the part from which the rows are.
        columns: headings, each with a Jinja expression over a row, which is called `it`.
        most: maximum number of rows of the list.
        count: number of all rows; None: the length of the list.
        rows: rows to show instead of the list.
        names: other names in the expressions.
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
    """Return a note on hidden rows and where they are; empty if all are shown."""
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
        finalize=lambda value: escaped(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS
    environment.globals |= {
        "table_of": table_of, "rest_of": rest_of, "known_rows": _known_rows,
        "settings_of": settings_of, "machine_of": machine_of,
    }  # fmt: skip
    return environment


@cache
def _expression(source: str) -> "jinja2.environment.TemplateExpression":
    return _environment().compile_expression(source)


def kind_of(document: Any, file: str) -> str:
    """Return the kind of a document. GraphError: unknown kind, or another format."""
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
        removed.check_command(str(kind), file)
        raise GraphError("report-kind-unknown", source=file, kind=kind, known=sorted(KINDS))
    if number != expected:
        raise GraphError("document-format", source=file, what=what, got=number, known=expected)
    return kind


def _by_keys(document: Mapping[str, Any]) -> str | None:
    """Return the kind of a document from its keys."""
    for name, kind in KINDS.items():
        for keys in filter(None, kind.keys.split(", ")):
            if set(keys.split()) <= document.keys():
                return name
    return None
