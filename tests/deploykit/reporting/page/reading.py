"""A page as tests read it: its elements, its texts, and what is wrong with it."""

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

_EMPTY = {"meta", "link", "img", "br"}
_STEP = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([A-Za-z_]\w*)')


class PageReader(HTMLParser):
    """Reads a page. AssertionError: an element does not end where it should, or an id is twice."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.places: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, self.open
        assert len(self.ids) == len(set(self.ids))
        assert {each[1:] for each in self.links if each.startswith("#")} <= set(self.ids)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given), given
        for name in ("src", "href", "xlink:href", "action", "data"):
            if name in given:
                self.links.append(str(given[name]))
        if "id" in given:
            self.ids.append(str(given["id"]))
        if given.get("data-place"):
            self.places.append(str(given["data-place"]))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} ends, but nothing is open"
        assert self.open[-1] == tag, f"{tag} ends inside {self.open[-1]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def read(html: str) -> PageReader:
    """Return a page. AssertionError: it is not whole, loads something, runs something, is large."""
    found = PageReader(html)
    assert len(html.encode()) <= 2_000_000
    assert not {"script", "iframe", "object", "embed", "form", "base"} & set(found.tags)
    loaded = [each for each in found.links if not each.startswith(("#", "data:"))]
    assert loaded == []
    assert "url(" not in html.partition("</style>")[0]
    assert "@import" not in html.partition("</style>")[0]
    return found


def at(document: Any, place: str) -> Any:
    """Return what lies at a place of a document. KeyError, IndexError: nothing does."""
    found, position = document, 0
    while position < len(place):
        step = _STEP.match(place, position)
        assert step, place[position:]
        index, quoted, key = step.groups()
        if index is not None:
            found = found[int(index)]
        else:
            name = key if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found = found[name]
        position = step.end()
    return found
