"""The transform string: what the Graph Transform Tool accepts, what is added, and where it fails.

The first two tables are those of the original, run on TensorFlow 2.21.
"""

import re

import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.pipeline import parse_calls as parse
from tests.support import Containing, because, says


def parsed(text):
    return [(c.name, [(p.name, p.value) for p in c.parameters]) for c in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("foo", [("foo", [])]),
        ("foo()", [("foo", [])]),
        ("foo bar", [("foo", []), ("bar", [])]),
        ("foo bar(a=1)", [("foo", []), ("bar", [("a", "1")])]),
        ("foo(op=A)bar", [("foo", [("op", "A")]), ("bar", [])]),
        ("foo(op=A, op=B)", [("foo", [("op", "A"), ("op", "B")])]),
        ("foo(op=A op=B)", [("foo", [("op", "A"), ("op", "B")])]),
        ('set_device(device="/cpu:0")', [("set_device", [("device", "/cpu:0")])]),
        (r'foo(a="x\"y")', [("foo", [("a", r"x\"y")])]),
        ('foo(shape="1,224,224,3")', [("foo", [("shape", "1,224,224,3")])]),
        ("foo(shape=-1.5e_/x)", [("foo", [("shape", "-1.5e_/x")])]),
        ("foo\n bar", [("foo", []), ("bar", [])]),
    ],
)
def test_the_original_accepts(text, expected):
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("foo,bar", 3, says("syntax-unexpected", found=",")),
        ("foo;", 3, says("syntax-unexpected", found=";")),
        (
            "foo(op=A,)",
            9,
            says("syntax-unexpected", expected=because("parameter-after-comma")),
        ),
        ("foo(=A)", 4, says("syntax-unexpected", expected=because("parameter-name"), found="=")),
        ("foo(op)", 6, says("syntax-unexpected", expected="= after op", found=")")),
        ("foo(op=)", 7, says("syntax-unexpected", expected=Containing(" op"), found=")")),
        ("foo(op=", 7, says("syntax-ends", expected=Containing(" op"))),
    ],
)
def test_the_original_refuses(text, column, message):
    with pytest.raises(PipelineError) as found:
        parse(text)
    first, line, caret = str(found.value).split("\n")
    assert re.search(message, first)
    assert line == f"  {text}"
    assert caret == "  " + " " * column + "^"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo( )", [("foo", [])]),
        ("foo (op=A)", [("foo", [("op", "A")])]),
        ("foo(op = A)", [("foo", [("op", "A")])]),
        ("foo(op=A , op=B)", [("foo", [("op", "A"), ("op", "B")])]),
        ("foo(device=/cpu:0)", [("foo", [("device", "/cpu:0")])]),
        ("foo(a='x y')", [("foo", [("a", "x y")])]),
        ("foo(a='')", [("foo", [("a", "")])]),
        ("foo \\\n bar", [("foo", []), ("bar", [])]),
        ("foo # what for\nbar", [("foo", []), ("bar", [])]),
        ("foo(a=1, # why\n b=2)", [("foo", [("a", "1"), ("b", "2")])]),
        ("# only this", []),
    ],
)
def test_accepted_besides(text, expected):
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("foo(op=A", "foo(op=A", 3, says("parenthesis-open")),
        ("foo\nbar(a=1\n", "bar(a=1", 3, says("parenthesis-open")),
        ('foo(a="b)', 'foo(a="b)', 6, says("quote-open")),
        (
            "foo\nbar(a=;)",
            "bar(a=;)",
            6,
            says("syntax-unexpected", expected=Containing(" a")),
        ),
    ],
)
def test_mistakes_that_the_original_swallowed_have_a_caret(text, line, column, message):
    with pytest.raises(PipelineError) as found:
        parse(text)
    first, shown, caret = str(found.value).split("\n")
    assert re.search(message, first)
    assert (shown, caret) == (f"  {line}", "  " + " " * column + "^")
