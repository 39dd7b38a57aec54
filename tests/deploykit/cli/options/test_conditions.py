"""An option without an effect beside the others is an error that says where it has one."""

import click
import pytest

from deploykit.benchmarking.engines.openvino_runner import check_bf16
from deploykit.cli.main import COMMANDS, cli
from deploykit.cli.options.conditions import CONDITIONS
from deploykit.transforms.core.errors import GraphError

CASES = [
    ("benchmark m.pb --top 3", "--profile or --trace"),
    ("benchmark m.pb --runs 3 --duration 2", "without --runs"),
    ("benchmark m.pb --data x.npz --input-range 0,1", "without --data"),
    ("optimize m.pb --data x.npz --input-range 0,1", "without --data"),
    ("freeze m.keras --data x.npz --shape x=1,2", "without --data"),
    ("verify m.pb n.pb --data x.npz --input-range 0,1", "without --data"),
    ("verify m.pb n.pb --min-sqnr 20 --tolerance 0.1", "without --min-sqnr"),
    ("tune m.pb --data x.npz --input-range 0,1", "without --data"),
    ("placement m.pb --engine openvino --cpu-devices 2", "--engine tensorflow"),
    (
        "transform --in_graph m.pb --out_graph n.pb --transforms fold_constants --tolerance 1",
        "--verify",
    ),
    ("export m.pb base --warmup-samples 3", "--warmup"),
    ("export m.pb base --max-pixels 3", "--preprocess"),
    ("load-test a:1 m --data x.npz --rate 3 --concurrency 2", "without --rate"),
    ("plan l.json --rate 3 --p99 4 --batch 2", "ADDRESS MODEL"),
    ("plan l.json --rate 3 --p99 4 --zones 2", "--survive zone"),
    ("predict a:1 m 2 --key k.pem", "--certificate"),
    ("status a:1 --version 3", "MODEL"),
    ("ship m.pb --max-drop 0.1 --dry-run", "--calibration and --eval"),
    ("quantize m.pb --data x.npz --input-range 0,1", "without --data"),
]


@pytest.mark.parametrize(("words", "where"), CASES)
def test_an_option_without_effect_is_refused(deploykit, words, where):
    found = deploykit(*words.split())
    assert found.status == 2, found.stderr
    assert "has no effect here" in found.stderr
    assert where in found.stderr


def test_a_key_of_the_project_file_without_effect_is_refused(deploykit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploykit.toml").write_text('[ship]\nmodel = "m.pb"\nmax-drop = 0.1\n')
    found = deploykit("ship", "--dry-run")
    assert found.status == 2
    assert "--max-drop has no effect here" in found.stderr


def test_conditions_name_parameters_that_the_commands_have():
    context = click.Context(cli)
    for name, conditions in CONDITIONS.items():
        assert name in COMMANDS
        command = cli.get_command(context, name)
        known = {each.name for each in command.params}
        values = dict.fromkeys(known)
        for condition in conditions:
            assert {*condition.options} <= known, name
            condition.holds(values)  # it reads no parameter that the command lacks


def test_verify_of_optimize_is_deprecated(deploykit, small):
    found = deploykit("optimize", small, "--verify", "-o", small.parent / "o.pb")
    assert found.status == 0
    assert "--verify is deprecated" in found.stderr
    assert "--verify" not in deploykit("optimize", "--help").stdout


def test_bf16_that_openvino_does_not_run_is_an_error():
    check_bf16(["f32", "bf16"])
    with pytest.raises(GraphError, match=r"no op of the model in bf16 .* run in f32, i8"):
        check_bf16(["i8", "f32", "f32"])
