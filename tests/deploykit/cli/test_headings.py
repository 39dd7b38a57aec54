"""Help: options under headings, no bounds in brackets, and examples that are command lines."""

import re
import shlex
from pathlib import Path

import click
import pytest

from deploykit.cli.conditions import check_conditions
from deploykit.cli.help import Helped
from deploykit.cli.main import cli
from deploykit.cli.value_types import number, whole
from deploykit.transforms.common.errors import Error
from tests.deploykit.cli.test_outputs import LEAVES
from tests.support import raises

ROOT = Path(__file__).parents[3]
ROOT_CONTEXT = click.Context(cli, **cli.context_settings)  # commands keep its names of --help
EXAMPLES = [(words, example) for words, command in LEAVES.items() for example in command.examples]


def help_of(words):
    command = LEAVES[words]
    name = " ".join(words)
    return command.get_help(click.Context(command, ROOT_CONTEXT, name, terminal_width=80))


def sections(words):
    """Return what the help lists under each heading."""
    found, heading = {}, ""
    for line in help_of(words).splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line
            assert heading not in found
            found[heading] = []
        elif heading:
            found[heading].append(line)
    return found


@pytest.mark.parametrize("words", LEAVES)
def test_each_option_is_under_one_heading(words):
    found = sections(words)
    assert ":" not in found
    assert "Options:" not in found
    names = [name for name in found if name != "Examples:"]
    for name, place in (("Output:", -1), ("Model:", 0)):
        assert name not in names or names.index(name) == place % len(names)
    for option in LEAVES[words].params:
        if isinstance(option, click.Option) and not option.hidden:
            start = re.compile(rf"  (\S+, )*{option.opts[0]}(?![\w-])")
            shown = [name for name in names if any(map(start.match, found[name]))]
            assert len(shown) == 1, (option.name, shown)


def test_headings_of_quantize():
    found = list(sections(("quantize",)))
    assert found == [
        "Model:", "Data:", "Quantization:", "With --calibration:", "Without --calibration:",
        "Limits:", "Output:", "Examples:",
    ]  # fmt: skip
    assert len(sections(("serve",))) >= 7


@pytest.mark.parametrize("words", LEAVES)
def test_no_bounds_in_brackets(words):
    text = " ".join(help_of(words).split())
    assert not re.search(r"\bx ?[<>]|[<>]=? ?x\b|None\]|RANGE", text)


def test_what_a_number_may_be():
    for kind, wrong, expected in (
        (whole(1), "0", "a whole number from 1 to 1000000000"),
        (whole(1), "1.5", "a whole number from 1 to 1000000000"),
        (whole(1, 64), "65", "a whole number from 1 to 64"),
        (number(above=0), "0", "a number above 0, up to 1e+09"),
        (number(0), "-1e-9", "a number from 0 to 1e+09"),
        (number(0.5, 0.9999), "1", "a number from 0.5 to 0.9999"),
        (number(), "nan", "a number from -1e+09 to 1e+09"),
        (number(), "inf", "a number from -1e+09 to 1e+09"),
        (number(), "two", "a number from -1e+09 to 1e+09"),
    ):
        with raises(Error, "option-value", got=wrong, expected=expected):
            kind.convert(wrong, None, None)
    assert (whole(1, 64).convert("64", None, None), whole(-1).convert("-1", None, None)) == (64, -1)
    assert number(0.5, 0.9999).convert("0.5", None, None) == 0.5
    assert number(above=0).convert("1e-9", None, None) == 1e-9


def arguments(example):
    """Return the words after `deploykit` as a shell would split them."""
    line = example.partition(" >")[0].replace("\\\n", " ").replace("$PWD", ".")
    program, *found = shlex.split(line)
    assert program == "deploykit"
    return found


@pytest.mark.parametrize("words", LEAVES)
def test_each_command_has_two_examples_and_a_short_text(words):
    command = LEAVES[words]
    assert isinstance(command, Helped)
    assert len(command.examples) >= 2
    text = re.split(r"^\w.*:$", help_of(words), maxsplit=1, flags=re.MULTILINE)[0]
    assert len(text.splitlines()) <= 25


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "example"), EXAMPLES)
def test_an_example_is_a_command_line(words, example):
    """It is read without a complaint, and help shows it in one piece."""
    assert f"  {example}\n" in f"{help_of(words)}\n"
    assert max(map(len, example.splitlines())) <= 78
    name, *rest = arguments(example)
    command = cli.get_command(ROOT_CONTEXT, name)
    context = command.make_context(name, rest, parent=ROOT_CONTEXT)
    if isinstance(command, click.Group):  # `records` is short for `records convert`
        name, command, rest = command.resolve_command(context, context._protected_args)
        context = command.make_context(name, [*rest, *context.args], parent=context)
    assert (command.name, command.help) == (words[-1], LEAVES[words].help)
    check_conditions(context)


@pytest.mark.sampled
def test_examples_work(deploykit, tmp_path, monkeypatch):
    """The way of a model, as the examples go it; those of servers need one."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    for name in ("freeze", "transform", "optimize", "calibrate", "quantize", "verify", "export"):
        for example in LEAVES[name,].examples:
            if "--calibration" not in example:  # it takes minutes
                found = deploykit(*arguments(example))
                assert found.status == 0, (example, found.stderr)
    assert (tmp_path / "served" / "fashion" / "2" / "saved_model.pb").exists()
