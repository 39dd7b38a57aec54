"""Values show themselves in Jupyter: all of them, quickly, and whatever names they hold."""

import inspect
import json
import typing
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser
from types import UnionType

import pytest
from IPython.lib import pretty

import deploykit
from deploykit.rendering import notebook as drawing
from deploykit.rendering.formatters import shown
from deploykit.rendering.formatters.shown import DRAWN, html_of, plain_of, text_of
from deploykit.rendering.notebook import html
from deploykit.rendering.tables import table
from deploykit.transforms.common.documents import AsHtml
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import GraphDef
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import because

HOSTILE = "<script>alert(1)</script>&\"'$x$\ud800\x1b[31m\u202e"


class Reader(HTMLParser):
    """Notes tags and text, and fails where a tag is not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def returned() -> dict[str, type]:
    """Return the types of what public functions return, by function and type."""
    found = {}
    for name in deploykit.__all__:
        function = getattr(deploykit, name)
        if not inspect.isfunction(function):
            continue
        kind = typing.get_type_hints(function)["return"]
        for each in typing.get_args(kind) if isinstance(kind, UnionType) else (kind,):
            if each not in (int, GraphDef, typing.Any):  # those of others show themselves
                found[f"{name}: {each.__name__}"] = each
    return found


RETURNED = returned()


def draws_itself(kind: type) -> bool:
    """Say whether a class has HTML of its own, as a page has."""
    return getattr(kind, "_repr_html_", None) not in (None, AsHtml._repr_html_)


@pytest.mark.parametrize("kind", RETURNED.values(), ids=RETURNED)
def test_what_a_function_returns_shows_itself(kind):
    is_in_table = any(each.__name__ in DRAWN for each in kind.__mro__)
    assert draws_itself(kind) or (issubclass(kind, AsHtml) and is_in_table), "nothing draws it"


def test_what_shows_in_no_way_is_seen():
    class Silent(AsHtml):
        """A class that nothing draws."""

    with pytest.raises(AssertionError, match="nothing draws it"):
        test_what_a_function_returns_shows_itself(Silent)


@pytest.mark.parametrize("kind", RETURNED.values(), ids=RETURNED)
def test_what_cannot_be_drawn_shows_as_text(kind):
    """A value that was made up, and lacks all that is drawn of it."""
    if draws_itself(kind):
        return
    empty = object.__new__(kind)
    if is_dataclass(kind):
        for each in fields(kind):
            object.__setattr__(empty, each.name, None)
    assert len(Reader(empty._repr_html_()).text) > 5
    assert len(plain_of(empty)) > 5


def test_the_table_names_no_class_that_no_function_returns():
    in_table = {each.__name__ for each in RETURNED.values() if not draws_itself(each)}
    assert {*DRAWN} == in_table


def test_a_benchmark_shows_the_tables_of_the_command_line():
    found = result(measurement("a.pb", 4.0), measurement("b.pb", 2.0))
    shown = Reader(found._repr_html_())
    assert shown.tags.count("table") == 2
    assert "a.pb" in shown.text
    assert all(each in shown.text for each in text_of(found) if isinstance(each, str))


def test_in_the_terminal_of_ipython_it_is_text():
    found = result(measurement("a.pb", 4.0), measurement("b.pb", 2.0))
    alone, within = (pretty.pretty(each) for each in (found, [found]))
    assert "p50 ms" in alone
    assert alone.count("\n") > 10
    assert within == f"[{found!r}]"


def test_names_are_text_whatever_they_hold():
    rows = [(HOSTILE, f"{HOSTILE}\n{HOSTILE}")]
    hostile = table(rows, {HOSTILE: "{0}"}, HOSTILE, more=[(HOSTILE, "{1}")])
    drawn = html([HOSTILE, hostile, HOSTILE])
    shown = Reader(drawn)
    assert "script" not in shown.tags
    assert shown.text.count("<script>alert(1)</script>&\"'$x$\\ud800\\x1b[31m\\u202e") == 8
    json.dumps(drawn).encode()
    drawn.encode()
    assert "tex2jax_ignore" in drawn  # or $x$ were a formula


def graph_of(count, name="node"):
    graph = Graph()
    for each in range(count):
        graph.add(Node(f"{name}{each}", "NoOp"))
    return graph


def test_a_graph_shows_what_is_in_it_and_not_its_nodes():
    graph = graph_of(10_000)
    drawn = graph._repr_html_()
    assert "10000 NoOp" in Reader(drawn).text
    assert len(drawn) < 2000


def test_huge_results_show_their_ends():
    huge = table(range(100_000), {"name": "row{}", "number": "{}"})
    lines = [f"line{each}" for each in range(100_000)]
    drawn = html([huge, *lines, "x" * 10**6])
    shown = Reader(drawn)
    assert len(drawn) < 100_000
    assert shown.tags.count("tr") == drawing.MOST + 2
    for kind in ("row", "line"):
        assert f"{kind}0" in shown.text
    assert "row99999" in shown.text
    assert because("rows-not-shown", count="99,800") in shown.text
    assert because("lines-not-shown", count="99,801") in shown.text
    assert shown.text.rstrip().endswith("x")


def test_an_error_while_drawing_is_not_the_readers(monkeypatch):
    monkeypatch.setitem(shown.DRAWN, "Graph", "text.missing")
    assert "Graph" in Reader(graph_of(3)._repr_html_()).text

    class Worse:
        def __repr__(self):
            raise RuntimeError

    assert "a Worse" in html_of(Worse())
    assert len(html_of("x" * 10**7)) < 3000
