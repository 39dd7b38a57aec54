"""A command and its function do the same where nothing is asked for: their defaults are equal."""

import inspect
from dataclasses import MISSING, fields, is_dataclass

import click
import pytest

import deploykit
from deploykit.cli.main import cli
from deploykit.transforms.core.running.child import Limits

# The command, its function, the least that it is called with, what options are called otherwise,
# and what is no matter of the function: arguments, and how and where a result is shown.
SHOWN = {"as_json", "output", "force"}
COMMANDS = [
    ("freeze", "freeze", ["m"], {}, {"model"}),
    ("inspect", "inspect", ["m"], {}, {"model"}),
    ("check", "check", ["m"], {}, {"model"}),
    ("diff", "diff", ["a", "b"], {}, {"first", "second"}),
    ("transform", "transform", ["--in_graph=a", "--out_graph=b", "--transforms=remove_device"],
     {"output_as_text": "as_text"}, {"in_graph", "out_graph", "transforms"}),
    ("optimize", "optimize", ["m"], {}, {"model"}),
    ("calibrate", "calibrate", ["m", "--data=d"], {}, {"model", "data"}),
    ("sensitivity", "sensitivity", ["m", "--calibration=d"], {"ranges_file": "ranges"},
     {"model", "data", "top"}),
    ("quantize", "quantize", ["m"], {}, {"model", "threads"}),  # which are one pair here
    ("verify", "verify", ["a", "b"], {}, {"reference", "result"}),
    ("accuracy", "accuracy", ["m", "--data=d"], {}, {"models", "data"}),
    ("export", "export", ["m", "d"], {}, {"model", "base_dir", "manifests", "batching", "tuned"}),
    ("benchmark", "benchmark", ["m"], {},
     {"models", "top", "csv_file", "plot_file", "trace_file"}),
    ("compare", "compare", ["a", "b"], {}, {"a", "b"}),
    ("doctor", "doctor", [], {}, set()),
    ("ship", "ship", ["m"], {}, {"model", "output"}),
    ("input write", "write_input", ["d"], {}, {"data"}),
    ("placement", "placement", ["m"], {"no_soft_placement": "soft_placement"}, {"model", "log"}),
    ("records convert", "convert_records", ["s", "d"], {}, {"sources", "folder"}),
    ("records inspect", "inspect_records", ["d"], {}, {"folder"}),
    ("records verify", "verify_records", ["d"], {}, {"folder"}),
    ("infer", "infer", ["m", "d", "o"], {}, {"model", "data", "out"}),
    ("tune", "tune", ["m"], {}, {"model"}),
]  # fmt: skip


def defaults_of(function) -> dict[str, object]:
    """Return the defaults of a function's parameters, and of the fields of parameter objects."""
    found: dict[str, object] = {}
    objects = [deploykit.Source("m")]
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(parameter.default):
            objects.append(parameter.default)
        elif parameter.default is not inspect.Parameter.empty:
            found[name] = parameter.default
    for each in objects:
        for field in fields(each):
            if field.default is not MISSING or field.default_factory is not MISSING:
                found[field.name] = getattr(each, field.name)
    return found


def options_of(words: str, arguments: list[str]) -> dict[str, object]:
    """Return the options of a command by name, as it gets them where none is given."""
    command: click.Command = cli
    context = click.Context(cli, **cli.context_settings)
    for word in words.split():
        command = command.get_command(context, word)
    with Limits(seconds=600, memory=None, show_log=False):
        return command.make_context(words, list(arguments), parent=context).params


@pytest.mark.parametrize(
    ("words", "name", "arguments", "renamed", "left"), COMMANDS, ids=[each[0] for each in COMMANDS]
)
def test_defaults_are_equal(words, name, arguments, renamed, left):
    known = defaults_of(getattr(deploykit, name))
    for option, value in options_of(words, arguments).items():
        if option in left | SHOWN:
            continue
        meant = renamed.get(option, option)
        assert meant in known, f"{name}() has no {meant}, which {words} has as an option"
        assert type(known[meant]) is type(value) or isinstance(value, int | float), option
        said = (not value) if option.startswith("no_") else value
        assert known[meant] == said, option
    assert "output" not in known or known["output"] is None


def test_every_option_that_is_left_is_there():
    """So that the lists above name nothing that has gone."""
    for words, _, arguments, renamed, left in COMMANDS:
        assert (left | set(renamed)) <= options_of(words, arguments).keys(), words


@pytest.mark.parametrize(
    ("name", "arguments", "wrong", "nearest"),
    [
        ("benchmark", ("m",), "batches", "batch"),
        ("benchmark", ("m", [deploykit.Settings()]), "threads", ""),
        ("tune", ("m",), "budgets", "budget"),
        ("placement", ("m",), "shape", "shapes"),
        ("write_input", ("d",), "output_names", ""),
        ("write_input", ("d",), "input", "inputs"),
        ("convert_records", ("s", "d"), "shard", "shard_size"),
    ],
)
def test_an_unknown_option_is_refused(name, arguments, wrong, nearest):
    with pytest.raises(TypeError) as error:
        getattr(deploykit, name)(*arguments, **{wrong: 1})
    assert f"{name}() got an unexpected keyword argument '{wrong}'" in str(error.value)
    assert nearest in str(error.value)
