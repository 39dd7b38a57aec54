"""Documents of deploykit as one HTML page, which needs nothing but itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from deploykit.reporting.charts.inline import CSS
from deploykit.reporting.page.blocks import Pictures, Section, Words
from deploykit.reporting.page.chapters import KINDS, Chapter, chapter
from deploykit.reporting.page.part import shown
from deploykit.transforms.core.display.escaped import escaped

if TYPE_CHECKING:
    import jinja2

MOST_BYTES = 2_000_000
"""No page is larger, whatever its documents hold."""
_FRAME_BYTES = 60_000  # of that for each document, beside the sections that fit
_MOST_CHAPTERS = 12


def no_pictures(name: str, document: Mapping[str, Any], of: str) -> Iterable[tuple[str, str]]:
    """Draw nothing."""
    return ()


@dataclass(frozen=True)
class _SectionText:
    """A section as HTML, and where a link finds it."""

    title: str
    anchor: str
    html: str


def html_of(
    documents: Sequence[Mapping[str, Any]],
    pictures: Pictures = no_pictures,
    files: Sequence[str] = (),
) -> str:
    """Return a page that shows documents, one after another; at most MOST_BYTES in UTF-8.

    Args:
        documents: what the commands print with --json, and the `report.json` of a shipped model.
        pictures: draws what has a name, such as `latencies`, of a document.
        files: how each document is called; `document` where it is not said.

    GraphError: a document is of another kind or format; the sentence names its file.
    """
    names = [*files, *["document"] * (len(documents) - len(files))]
    chapters = [
        _numbered(number if len(documents) > 1 else 0, *each, pictures)
        for number, each in enumerate(zip(documents, names, strict=True), 1)
    ]
    few = chapters[:_MOST_CHAPTERS]
    title = shown(few[0].title) if len(few) == 1 else f"{len(chapters)} results"
    environment = _environment()
    level = 2 if len(few) == 1 else 3
    written = _written(few, level)
    left_out = [each.file for each in chapters[_MOST_CHAPTERS:]][:_MOST_CHAPTERS]
    return environment.get_template("page.html.jinja").render(
        title=title,
        kinds={name: each.title for name, each in KINDS.items()},
        chapters=list(zip(few, written, strict=True)),
        left_out=left_out,
        level=level,
        charts_css=CSS,
    )


def _numbered(number: int, document: Mapping[str, Any], file: str, pictures: Pictures) -> Chapter:
    """Return a chapter; of several, its title and those of its pictures hold its number."""
    if not number:
        return chapter(document, file, pictures)

    def numbered(name: str, document: Mapping[str, Any], of: str) -> Iterable[tuple[str, str]]:
        return pictures(name, document, f"{of}, result {number}" if of else f"result {number}")

    found = chapter(document, file, numbered)
    return replace(found, title=f"{number}. {found.title}")


def _written(chapters: Sequence[Chapter], level: int) -> list[list[_SectionText]]:
    """Return the sections of chapters as HTML, as many as a page may hold."""
    template = _environment().get_template("section.html.jinja")
    left, count, found = MOST_BYTES - _FRAME_BYTES * (len(chapters) + 1), 0, []
    for each in chapters:
        texts = []
        for section in each.sections:
            count += 1
            anchor = f"s{count}"
            html = ""
            for form in _smaller(section):
                html = template.render(section=form, anchor=anchor, level=level)
                if len(html.encode()) <= left:
                    break
            left -= len(html.encode())
            texts.append(_SectionText(section.title, anchor, html))
        found.append(texts)
    return found


def _smaller(section: Section) -> Iterator[Section]:
    """Yield a section, then without pictures, then with a word on where its figures are."""
    yield section
    plain = tuple(each for each in section.blocks if each.kind not in ("drawings", "photos"))
    yield replace(section, blocks=plain)
    where = f"{section.place} in {section.file}" if section.place else section.file
    words = Words(f"Left out, as the page would be too large; the figures are in {where}.", "doubt")
    yield replace(section, blocks=(words,))


@cache
def _environment() -> "jinja2.Environment":
    from pathlib import Path

    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=lambda value: escaped(value, keep="\n") if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
