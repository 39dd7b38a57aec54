"""Transforms of the user's own: found, called with typed parameters, and their mistakes named."""

import sys
from itertools import count

import pytest

from deploykit.pipelines.catalogue import describe
from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir import pipeline
from tests.support import Containing, build, ops, raises, says, tf, transform

NUMBERS = count()

RELU = """
def swap(graph, *, op: str = "Relu6"):
    '''Put plain Relus in the place of others.

    Args:
        op: the op that is replaced.
    '''
    for match in graph.match(Op(op, name="node")):
        graph.replace(match["node"], replace(match["node"], op="Relu"))
"""
IMPORTS = """
from dataclasses import replace
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.pattern import Op
"""
WRITTEN_OUT = """
def wrote(graph, {parameter}):
    raise GraphError(repr(value))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module under a new name, and return the name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        name = f"outside_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def net():
    tf.nn.relu6(tf.compat.v1.placeholder(tf.float32, [2], "x"), "y")


def test_a_function_of_another_module_is_a_step_among_others(module):
    name = module(IMPORTS + RELU)
    graph = build(net, ["x"], ["y"])
    assert ops(transform(graph, f"{name}:swap strip_unused_nodes"))["Relu"] == 1
    assert ops(transform(graph, f'strip_unused_nodes {name}:swap(op="Relu")'))["Relu6"] == 1
    assert ops(graph)["Relu6"] == 1, "the graph that was given stays as it is"


def test_modules_are_imported_by_former_names_too(module, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("deploykit.transforms.core")]:
        monkeypatch.delitem(sys.modules, name)
    former = IMPORTS.replace("transforms.ir.", "transforms.core.").replace(".common.", ".core.")
    graph = build(net, ["x"], ["y"])
    with pytest.warns(DeprecationWarning, match="deploykit.transforms.ir.pattern"):
        assert ops(transform(graph, f"{module(former + RELU)}:swap"))["Relu"] == 1


def test_it_may_lie_in_a_package(module, tmp_path):
    name = module("")
    (tmp_path / f"{name}.py").unlink()
    folder = tmp_path / name / "inner"
    folder.mkdir(parents=True)
    (folder / "rewrites.py").write_text(IMPORTS + RELU)
    graph = build(net, ["x"], ["y"])
    assert ops(transform(graph, f"{name}.inner.rewrites:swap"))["Relu"] == 1


def test_it_explains_itself_like_any_other(module):
    found = describe(f"{module(IMPORTS + RELU)}:swap")
    assert found["summary"] == Containing("Put plain Relus")
    assert found["parameters"] == [
        {
            "name": "op",
            "type": "str",
            "repeatable": False,
            "default": "Relu6",
            "required": False,
            "help": Containing("is replaced"),
        }
    ]


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize(
    ("parameter", "given", "value"),
    [
        ("*, value: int", "(value=3)", 3),
        ("*, value: float = 1.0", "(value=3)", 3.0),
        ("value: bool = False", "(value=true)", True),
        ("value=2.5", "", 2.5),
        ("value=2.5", "(value=1)", 1.0),
        ("value=7", "(value=8)", 8),
        ("value=True", "(value=false)", False),
        ("value: str = 'a'", "(value=b)", "b"),
        ("value: 'int | None' = None", "(value=5)", 5),
        ("value: typing.Optional[float] = None", "(value=5)", 5.0),
        ("value: tuple[str, ...] = ()", "(value=a, value=b)", ("a", "b")),
        ("value: tuple[int, ...] = (), **others", "(value=4)", (4,)),
        ("value: int = 1, *others: 'Unknown'", "(value=4)", 4),
    ],
)
def test_parameters_have_the_types_that_the_function_says(module, future, parameter, given, value):
    text = WRITTEN_OUT.format(parameter=parameter).replace("(graph,", "(graph: 'Unknown',")
    name = module(f"{future}import typing\n{IMPORTS}{text}")
    with pytest.raises(GraphError) as error:
        transform(build(net, ["x"], ["y"]), f"{name}:wrote{given}")
    assert str(error.value) == f"{name}:wrote: {value!r}"


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("", "fold", says("module-function-missing", function="fold")),
        (
            "def fold_all(graph): pass",
            "fold_al",
            says("module-function-missing", function="fold_al"),
        ),
        ("fold = 3", "fold", says("not-a-function", kind="int")),
        ("def fold(): pass", "fold", says("transform-without-graph")),
        ("def fold(*, op: str = ''): pass", "fold", says("transform-without-graph")),
        (
            "def fold(graph, sizes: list[int]): pass",
            "fold",
            says("transform-parameter-type", parameter="sizes"),
        ),
        ("def fold(graph, size): pass", "fold", says("transform-parameter-type", parameter="size")),
        (
            "def fold(graph, size: 'Unknown'): pass",
            "fold",
            says("transform-parameter-type", parameter="size"),
        ),
        ("def fold(graph, size: int): pass", "fold", says("parameter-missing", name="size")),
        (
            "def fold(graph, size: int, /): pass",
            "fold",
            says("transform-parameter-type", parameter="size"),
        ),
        ("def fold(graph): return graph", "fold", says("transform-returned", kind="Graph")),
        ("def fold(graph): yield 1", "fold", says("transform-returned", kind="generator")),
        (
            "def fold(graph):\n    return {}['x']",
            "fold",
            says("transform-raised"),
        ),
        ("def fold(graph):\n    exit(3)", "fold", says("transform-raised")),
        ("import not_there_at_all", "fold", says("module-not-importable")),
        ("1 / 0", "fold", says("module-not-importable")),
        ("def fold(", "fold", says("module-not-importable")),
        ("raise SystemExit(3)", "fold", says("module-not-importable")),
    ],
)
def test_mistakes_are_told_in_one_sentence(module, text, function, message):
    name = module(text)
    with pytest.raises(PipelineError, match=message) as error:
        transform(build(net, ["x"], ["y"]), f"{name}:{function}")
    assert f"{name}" in str(error.value)
    assert len(str(error.value).split("\n  ")[0].splitlines()) == 1


@pytest.mark.parametrize("name", ["no_such_module:f", "json.no_such_module:f", "no.such.module:f"])
def test_a_module_that_is_not_there_is_named_with_a_caret(name):
    with raises(PipelineError, "module-missing") as error:
        pipeline.parse(f"fold_constants {name}")
    first, text, caret = str(error.value).split("\n")
    assert error.value.fields["name"] in first
    assert text == f"  fold_constants {name}"
    assert caret == "  " + " " * len("fold_constants ") + "^"


def test_an_error_may_be_passed_over_like_that_of_any_step(module):
    name = module("def fold(graph):\n    raise ValueError('no')")
    graph = build(net, ["x"], ["y"])
    (result,) = pipeline.run(graph, pipeline.parse(f"{name}:fold(ignore_errors=true)"))
    assert "ValueError: no" in str(result.error)
    assert str(result.graph) == str(graph)


def test_a_graph_that_it_breaks_is_refused(module):
    name = module("def cut(graph):\n    graph.remove(graph['x'])")
    with pytest.raises(GraphError, match=f"{name}:cut: .*x"):
        transform(build(net, ["x"], ["y"]), f"{name}:cut")


@pytest.mark.parametrize("text", ["a:", "a.b", "a:b:c", ":b", "a.:b", "a..b:c"])
def test_other_colons_and_dots_do_not_parse(text):
    with pytest.raises(PipelineError):
        pipeline.parse(text)


def test_nothing_is_imported_for_names_of_deploykit(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    assert [step.name for step in pipeline.parse("fold_constants")] == ["fold_constants"]
