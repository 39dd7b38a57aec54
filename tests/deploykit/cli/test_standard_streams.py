"""`-` is standard output where a command writes text, and is refused wherever else it is given."""

import json
import os
import re

import click
import numpy as np
import pytest

from deploykit.cli.value_types import PathName, TextOutput
from tests.deploykit.cli.test_outputs import LEAVES, VALUES, filled, shown
from tests.support import Containing, assert_error, raises, shows

PATH = re.compile(r"FILE|DIR\b|DATA|MODEL|PATH|SOURCE|IMAGE|FIRST|SECOND\b|REFERENCE|RESULT|\.json")
ON_A_SERVER = {("predict",), ("status",), ("load-test",)}
NO_PATHS = {"manifests", "metric", "unusable"}
PARAMETERS = [(words, each) for words, command in LEAVES.items() for each in command.params]
PATHS = [(words, each.name) for words, each in PARAMETERS if isinstance(each.type, PathName)]
TEXTS = [
    (words, each.name)
    for words, each in PARAMETERS
    if isinstance(each.type, TextOutput) and words != ("serve",)  # serve adds to its log
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Run in a folder in which no file may get the name `-`."""
    monkeypatch.chdir(tmp_path)
    yield
    assert [name for name in os.listdir() if name.startswith("-")] == []


def test_whatever_looks_like_a_path_is_one():
    """What the tests below walk: so that no new option slips through."""
    missing = {
        (words, each.name)
        for words, each in PARAMETERS
        if not getattr(each, "is_flag", False)
        if PATH.search(shown(each)) and each.name not in NO_PATHS
        if not isinstance(each.type, PathName | TextOutput)
    }
    assert missing == {(words, "model") for words in ON_A_SERVER}
    assert len(PATHS) > 70
    assert {words for words, _ in TEXTS} > {("calibrate",), ("tune",), ("doctor",), ("status",)}


def line_with(words, name, value, other):
    """Return a command line in which one parameter has this value, and no required one is left."""
    line = list(words)
    for parameter in LEAVES[words].params:
        given = value if parameter.name == name else other
        if isinstance(parameter, click.Argument):
            if parameter.required or parameter.name == name:
                line.append(given)
        elif parameter.name == name:
            line += [parameter.opts[0], value]
        elif parameter.required:
            line += [parameter.opts[0], VALUES.get(parameter.name, other)]
    return line


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "name"), PATHS)
def test_it_is_no_path(deploykit, words, name):
    values = ["-", "x=-"] if name == "given" else ["-"]
    for value in values:
        found = deploykit(*line_with(words, name, value, "nothing.pb"))
        assert (found.status, found.printed) == (2, "")
        assert shows(found.stderr, "option-value", got=Containing("-"))
        assert found.stderr.count("\n") == 1


def test_a_folder_before_it_makes_it_one():
    assert PathName().convert("./-", None, None) == "./-"
    assert PathName(named=True).convert("x=./-", None, None) == "x=./-"


@pytest.mark.parametrize(("words", "name"), TEXTS)
def test_two_texts_do_not_share_it(deploykit, words, name):
    others = [each for each in LEAVES[words].params if isinstance(each.type, TextOutput)]
    option = next(each for each in others if each.name == name)
    for other in others:
        if other is not option:
            line = [*filled(words, name, "-", garbage="x.pb"), other.opts[0], "-"]
            found = deploykit(*line)
            assert (found.status, found.printed) == (2, "")
            assert_error(found.error, "standard-output-twice")
    if not option.type.is_report:
        found = deploykit(*filled(words, name, "-", "--json", garbage="x.pb"))
        assert (found.status, found.printed) == (2, "")
        assert_error(found.error, "standard-output-twice", options=[option.opts[0], "--json"])


@pytest.mark.slow
def test_what_commands_say_of_a_model(deploykit, small):
    data = "data.npz"
    np.savez(data, x=np.random.default_rng(0).uniform(-1, 1, (70, 8, 8, 3)).astype(np.float32))
    for line in (
        ("inspect", small), ("diff", small, small), ("verify", small, small), ("doctor",),
        ("transforms",), ("placement", small), ("benchmark", small, "--runs=3"),
        ("sensitivity", small, "--calibration", data),
    ):  # fmt: skip
        alone, both = deploykit(*line, "-o", "-"), deploykit(*line, "-o", "-", "--json")
        assert (alone.status, both.status) == (0, 0), alone.stderr
        assert json.loads(alone.stdout)["command"] == line[0]
        assert json.loads(both.stdout)["command"] == line[0]
    assert sorted(os.listdir()) == [data, "small.pb"]


@pytest.mark.slow
def test_texts_of_other_kinds(deploykit, small):
    data = "data.npz"
    np.savez(data, x=np.random.default_rng(0).uniform(-1, 1, (70, 8, 8, 3)).astype(np.float32))
    ranges = deploykit("calibrate", small, "--data", data, "-o", "-")
    assert set(json.loads(ranges.stdout)["tensors"]) >= {"x", "out"}
    csv = deploykit("benchmark", small, "--runs=3", "--csv", "-")
    assert csv.status == 0, csv.stderr
    assert [line.split(",")[0] for line in csv.stdout.splitlines()] == ["name", "small.pb"]
    trace = deploykit("benchmark", small, "--runs=3", "--trace", "-")
    assert json.loads(trace.stdout)["traceEvents"]
    code = deploykit("input", "write", data, "-o", "-")
    assert code.stdout == deploykit("input", "write", data).stdout
    compile(code.stdout, "data.py", "exec")
    assert sorted(os.listdir()) == [data, "small.pb"]


@pytest.mark.slow
def test_an_interrupted_search_keeps_nothing_under_this_name(deploykit, small):
    found = deploykit("tune", small, "--budget=0.05", "--batch=1", "-o", "-")
    assert found.status == 0, found.stderr
    assert json.loads(found.stdout)["kind"] == "tuned"


@pytest.mark.sampled
def test_a_file_of_this_name_can_be_given(deploykit, small):
    assert deploykit("freeze", small, "-o", "./-").status == 0
    assert json.loads(deploykit("inspect", "./-", "--json").stdout)["outputs"] == ["out"]
    for name in ("-", "-.json"):
        os.remove(name)


def test_python_writes_no_graph_there_either(small):
    import deploykit
    from deploykit.transforms.common.errors import FileError

    with raises(FileError, "graph-to-stdout"):
        deploykit.save_graph(deploykit.freeze(small), "-")
