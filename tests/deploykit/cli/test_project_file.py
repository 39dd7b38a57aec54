"""deploykit.toml: the command line wins, and what it cannot mean is refused."""

import json
import re

import pytest

from deploykit.cli import build
from deploykit.cli.conditions import check_conditions
from tests.deploykit.cli.test_conditions import parsed
from tests.support import Containing, says, shows


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write deploykit.toml in the current folder."""
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "deploykit.toml").write_text


def values(words, *given):
    """Return the values that a command runs with."""
    context = parsed(words, given)
    check_conditions(context)
    return context.params


@pytest.mark.parametrize(
    ("text", "words", "given", "expected"),
    [
        ("[quantize]\ninput-range = [0, 1]", "quantize", ("m", "--data", "d"),
         {"data": "d", "input_range": (-1, 1)}),
        ("[quantize]\ndata = 'd'", "quantize", ("m", "--input-range", "0,1"),
         {"data": None, "input_range": (0, 1)}),
        ("[quantize]\ndata = 'd'\ninput-range = [0, 1]", "quantize", ("m",),
         {"data": "d", "input_range": (-1, 1)}),
        ("[verify]\nmin-sqnr = 20", "verify", ("m", "n", "--tolerance", "0.1"),
         {"min_sqnr": None, "tolerance": 0.1}),
        ("[verify]\nshape = ['x=1']", "verify", ("m", "n", "--data", "d"), {"shapes": {}}),
        ("[load-test]\nrate = 3\nlatency-limit = 4\nseconds = 5", "load-test",
         ("a:1", "m", "--data", "d", "--concurrency", "2"),
         {"rate": None, "latency_limit": None, "seconds": 5}),
        ("['records convert']\nsources = ['a b', 'c']\nfolder = 'd'", "records convert", (),
         {"sources": ("a b", "c")}),
        ("[benchmark]\ntrace = 't.json'\nruns = 3", "benchmark", ("m", "--seconds", "2"),
         {"runs": None, "seconds": 2}),
        ("[serve]\nrest_api_port = 8501\nenable_batching = true", "serve", ("d",),
         {"rest_api_port": 8501, "enable_batching": True}),
        ("[transform]\nin_graph = 'm'\nout-graph = 'n'", "transform",
         ("--transforms", "fold_constants"), {"model": "m", "output": "n"}),
    ],
)  # fmt: skip
def test_the_command_line_wins(project, text, words, given, expected):
    project(text)
    found = values(words, *given)
    assert {name: found[name] for name in expected} == expected


def test_an_option_of_the_command_line_without_effect_is_still_refused(deploykit, project):
    project("[inspect]\ntop = 3\n")
    found = deploykit("inspect", "m.pb", "--force")
    assert found.status == 2
    assert shows(found.stderr, "option-no-effect", option="--force")


@pytest.mark.parametrize("table", [*build.table()])
def test_each_command_refuses_an_unknown_key(deploykit, project, table):
    project(f'["{table}"]\nnosuch = 1\n')
    found = deploykit(*table.split())
    assert found.status == 2
    assert shows(found.stderr, "project-unknown-option", table=table, name="nosuch")


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("top = {a = 1}", '{"a": 1}'),
        ("top = true", "true"),
        ("top = [true, 1]", "[true, 1]"),
        ("top = [[1], 1]", "[[1], 1]"),
        ("profile = 'yes'", '"yes"'),
        ("profile = [false]", "[false]"),
        ("top = 2020-01-01", '"2020-01-01"'),
    ],
)
def test_a_wrong_value_is_shown_as_it_is_written(deploykit, project, line, got):
    project(f"[benchmark]\n{line}\n")
    found = deploykit("benchmark", "m.pb")
    assert found.status == 2
    assert shows(found.stderr, "project-value", name=line.split()[0], got=got)


def test_one_option_under_two_names_is_refused(deploykit, project):
    project("[quantize]\ninput-range = [0, 1]\ninput_range = [0, 2]\n")
    assert shows(deploykit("quantize", "m.pb").stderr, "given-twice", name="input_range")


@pytest.mark.parametrize("text", ["json = true", "output = '-'"])
def test_an_error_is_a_document_where_the_file_wants_json(deploykit, project, text):
    project(f"[inspect]\n{text}\n")
    for given in (("nofile",), ("nofile", "--top=x")):
        if "--top=x" in given and text != "json = true":
            continue  # an unknown option ends the parse
        found = deploykit("inspect", *given)
        assert json.loads(found.stdout)["error"]["exit_status"] == found.status


DANGEROUS = [
    ("accuracy", "metric = 'mine:score'", "runs code"),
    ("benchmark", "pipeline = 'mine:read'", "runs code"),
    ("benchmark", "service-address = 'far:1'", "opens the network"),
    ("benchmark", "allow-op = ['ReadFile']", "lifts a protection"),
    ("transform", "transforms = 'fold_constants mine:change(x=1)'", "runs code"),
    ("transform", "transforms = ['mine:change']", "runs code"),
    ("accuracy", "metric = ['mine:score']", "runs code"),
    ("infer", "address = '10.0.0.1:6379'", "opens the network"),
    ("serve", "grpc_channel_arguments = 'grpc.max_concurrent_streams=9'", "changes a limit"),
    ("freeze", "memory-limit = 1000000", "changes a limit"),
    ("predict", "ca = 'own.pem'", "changes who is trusted"),
    ("serve", "host = '0.0.0.0'", "opens the network"),
    ("serve", "rest_plain = true", "lifts a protection"),
    ("serve", "allow_reload = false", "lifts a protection"),
    ("quantize", "force = true", "lifts a protection"),
    ("quantize", "allow-unverified = true", "lifts a protection"),
    ("quantize", "allow_low_accuracy = true", "lifts a protection"),
]


@pytest.mark.parametrize(("table", "line", "effect"), DANGEROUS)
def test_a_dangerous_option_is_for_the_command_line_only(deploykit, project, table, line, effect):
    project(f'["{table}"]\n{line}\n')
    found = deploykit(*table.split(), "m.pb")
    assert found.status == 2
    name = line.partition(" ")[0]
    assert shows(found.stderr, "project-dangerous", table=table, name=name, effect=effect)


@pytest.mark.parametrize("command", ["benchmark", "tune"])
def test_variables_that_may_load_code_are_for_the_command_line_only(deploykit, project, command):
    for line in ('env = "LD_PRELOAD=a.so"', 'env = ["OMP_NUM_THREADS=2", "PATH=."]'):
        project(f"[{command}]\n{line}\n")
        found = deploykit(command, "m.pb")
        assert found.status == 2
        name = "PATH" if "PATH" in line else "LD_PRELOAD"
        assert shows(found.stderr, "variable-from-file", name=name)
    for line in ('env = {KMP_BLOCKTIME = "1"}', 'env = ""', 'env = "KMP_BLOCKTIME"', "env = 1"):
        project(f"[{command}]\n{line}\n")
        found = deploykit(command, "m.pb")
        assert found.status == 2
        assert not shows(found.stderr, "variable-from-file")
    project(f'[{command}]\nenv = ["KMP_AFFINITY=granularity=fine,compact", "OMP_NUM_THREADS=2"]\n')
    assert deploykit(command, "m.pb").status == 4  # which is not there


def test_every_option_that_allows_something_is_for_the_command_line_only(deploykit, project):
    for table, entry in build.table().items():
        for name in (opt for spec in entry["parameters"] for opt in spec["options"]):
            if name.startswith("--allow"):
                key = name.removeprefix("--")
                project(f'["{table}"]\n{key} = true\n')
                found = deploykit(*table.split())
                assert shows(found.stderr, "project-dangerous", name=key), (table, name)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("accuracy", "metric = 'top5'"),
        ("transform", """transforms = 'rename_node(from="a:b") # mine:change'"""),
        ("transform", "transforms = 'fold_constants('"),
    ],
)
def test_a_metric_and_transforms_without_code_may_be_in_the_file(deploykit, project, table, line):
    project(f"[{table}]\n{line}\n")
    assert not shows(deploykit(table, "no.pb").stderr, "project-dangerous")


def test_a_command_names_the_options_that_it_takes_from_the_file(deploykit, project):
    project("[inspect]\ntop = 3\nstructure = true\n[verify]\ntolerance = 1\n")
    said = "deploykit: [inspect] of deploykit.toml sets"
    assert f"{said} top, structure\n" in deploykit("inspect", "no.pb").stderr
    assert f"{said} structure\n" in deploykit("inspect", "no.pb", "--top", "4").stderr
    assert "deploykit.toml" not in deploykit("check", "no.pb").stderr


def test_an_invalid_value_names_the_file_that_sets_it(deploykit, project):
    project("[inspect]\ntop = 'x'\n")
    named = says("option-value", option=Containing("--top", "deploykit.toml"))
    assert re.search(named, deploykit("inspect", "m.pb").stderr)
    given = deploykit("inspect", "m.pb", "--top", "y").stderr
    assert shows(given, "option-value", option="--top", got="y")
