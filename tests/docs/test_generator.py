"""The generated pages say what the code says, wherever they are made."""

import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

import deploykit
from deploykit.api.comparison import VerifyOptions
from deploykit.cli.main import COMMANDS
from deploykit.cli.presenters import graphs, serving
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import Difference
from deploykit.verification.coverage import WeakClass
from deploykit.verification.verify import Verification
from docs.generator import __main__ as generator
from docs.generator import api, command_table, commands
from docs.generator.markdown import docstring, plain
from docs.generator.signatures import inner, members, signature
from tests.differential.test_defects import DEFECTS
from tests.pairwise import once_each


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the generated pages as they are committed, which `make check` compares."""
    paths = [*generator.DOCS.rglob("*.md"), *(generator.DOCS / generator.SCHEMAS).glob("*.json")]
    found = {str(path.relative_to(generator.DOCS)): path.read_text() for path in paths}
    return {
        name: text
        for name, text in found.items()
        if name.endswith(".json") or text.startswith(generator.MARK)
    }


@pytest.mark.sampled
def test_a_page_that_differs_is_named(tmp_path, monkeypatch, capsys):
    pages = generator.pages()
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    monkeypatch.setattr(generator, "pages", lambda: pages)
    (tmp_path / "by-hand.md").write_text("# By hand\n")
    assert generator.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [f"docs/{path}" for path in sorted(pages)]
    assert generator.main(["--check"]) == 0
    (tmp_path / "transforms" / "old.md").write_text(generator.MARK + "# old\n")
    (tmp_path / "commands.md").write_text(pages["commands.md"].replace("freeze", "fleece"))
    (tmp_path / "python-api.md").unlink()
    assert capsys.readouterr().out == ""
    assert generator.main(["--check"]) == 1
    wrong = ["commands.md", "python-api.md", "transforms/old.md"]
    assert capsys.readouterr().out.splitlines() == [
        f"docs/{path} is out of date; run `make docs`" for path in wrong
    ]
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    assert not (tmp_path / "transforms" / "old.md").exists()
    assert (tmp_path / "by-hand.md").exists()


def test_choices_have_one_order():
    """Python keeps one of two Literals with equal members: the order would be that of imports."""
    table = json.loads(command_table.text())
    orders: dict[frozenset[str], set[tuple[str, ...]]] = {}
    for command in table.values():
        for option in command["parameters"]:
            choices = tuple(option["choices"])
            orders.setdefault(frozenset(choices), set()).add(choices)
    assert len(orders) > 10
    assert [found for found in orders.values() if len(found) > 1] == []


@once_each(["columns"], ["40", "200"], quick=1)
def test_the_terminal_changes_nothing(pages, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert generator.MARK + commands.page() == pages["commands.md"]


def test_each_option_of_each_command_is_shown(pages):
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", pages["commands.md"], re.M | re.S))
    shown = commands.contexts()
    assert [name for name, _ in shown] == list(sections)
    assert {*COMMANDS, "input write", "records convert", "records verify"} <= sections.keys()
    for name, context in shown:
        for parameter in context.command.get_params(context):
            if getattr(parameter, "hidden", False):
                continue
            text = (
                max({*parameter.opts} - getattr(parameter, "hidden_spellings", set()), key=len)
                if parameter.param_type_name == "option"
                else (parameter.make_metavar(context))
            )
            assert text in sections[name], f"{name} {text}"


def test_each_public_name_is_shown_once(pages):
    headings = re.findall(r"^### (.*)$", pages["python-api.md"], re.M)
    assert len(headings) == len(set(headings))
    aliases = {name for name in deploykit.__all__ if typing.get_args(getattr(deploykit, name))}
    assert set(deploykit.__all__) - aliases <= set(headings)


def test_each_transform_is_shown_before_and_after(pages):
    for name in pipeline.names():
        page = pages[f"transforms/{name}.md"]
        assert re.findall(r"(before|after), \d+ node", page)[:2] == ["before", "after"]
        for parameter in pipeline.parameters(name):
            assert f"| `{parameter}` |" in page
        assert f"[`{name}`]({name}.md)" in pages["transforms/README.md"]


def test_each_defect_of_the_original_is_shown(pages):
    rows = [line for line in pages["graph-transform-tool.md"].splitlines() if line[:2] == "| "]
    tables = {each.transform for each in DEFECTS}
    assert len(rows) == len(DEFECTS) + len(tables)
    for each in DEFECTS:
        assert f"| {plain(each.what)} | {plain(each.original)} | {plain(each.deploykit)} |" in rows


def test_which_command_a_function_is():
    found = {name: api.command_of(name) for name in (
        "freeze", "load_test", "convert_records", "write_input", "list_transforms", "load_graph",
    )}  # fmt: skip
    assert found == {
        "freeze": "freeze", "load_test": "load-test", "convert_records": "records convert",
        "write_input": "input write", "list_transforms": "transforms", "load_graph": "",
    }  # fmt: skip


WIDTH = 3


class Shape:
    """A shape <T>, 2 * 3.

    Args:
        width: how wide;
            in meters.
        *sides: `a|b`.

    GraphError: it has none.

    Example:
        >>> Shape(3)

        3
    """

    def __init__(self, width: "int | None" = WIDTH, *sides: float, name: str = "a", **more):
        """Make it."""


def area(shape: Shape, *, unit: tuple[str, ...] = ("m",), key=len, **more: Any) -> "float | None":
    """Return the area, where the signature is too long for one line."""


def test_a_docstring_in_its_parts():
    said = docstring(Shape)
    assert said.text == r"A shape \<T>, 2 \* 3."
    assert said.arguments == {"width": "how wide; in meters.", "*sides": "`a|b`."}
    assert said.rest == "`GraphError`: it has none."
    assert said.example == ">>> Shape(3)\n\n3"


def test_signatures_are_those_of_the_source_with_constants_filled_in():
    assert signature(Shape) == (
        'Shape(width: int | None = 3, *sides: float, name: str = "a", **more)'
    )
    assert signature(KeyError) == "KeyError()"
    assert signature(area).splitlines() == [
        "area(",
        "    shape: Shape,",
        "    *,",
        '    unit: tuple[str, ...] = ("m",),',
        "    key = len,",
        "    **more: Any,",
        ") -> float | None",
    ]


def test_members_are_fields_and_what_is_public_also_of_bases():
    found = {each.code.split("(")[0].split(":")[0]: each for each in members(Graph)}
    assert {"add", "inputs", "match", "Graph.from_graph_def"} <= found.keys()
    assert not any("._" in name or name.startswith("_") for name in found)
    assert found["add"].code == "add(node: Node) -> Node"
    fields = [each for each in members(deploykit.RunConfig) if ": " in each.code]
    assert [each.code.split(":")[0] for each in fields][:2] == ["batch", "threads"]
    assert fields[1].code == "threads: tuple[int, int] | None = None"
    assert fields[1].said.text.startswith("Threads per op, and concurrent ops.")


def test_classes_in_signatures_and_in_their_fields_are_found():
    assert inner([deploykit.verify]) == [Difference, Verification, VerifyOptions, WeakClass]


def test_values_of_an_unknown_type_need_a_format():
    assert command_table._format(Path | None, Flag())["format"] == "path"
    assert command_table._format(complex, Flag(format="number"))["format"] == "number"
    with pytest.raises(TypeError, match="complex"):
        command_table._format(complex, Flag())


def test_a_presenter_is_where_it_is_defined(monkeypatch):
    monkeypatch.setattr(graphs, "status", serving.status, raising=False)
    assert command_table._presenting("status") is serving
    with pytest.raises(LookupError, match="document"):
        command_table._presenting("document")
