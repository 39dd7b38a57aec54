"""One name for one meaning: options are called as in Python, and former names still work."""

import click
import pytest

import deploykit as api
from deploykit.cli.build import build, table
from deploykit.cli.help import Headed
from tests.support import says, shows

FORMER = [
    (words, option, spelling)
    for words in table()
    for option in build(words).params
    if isinstance(option, Headed)
    for spelling in sorted(option.hidden_spellings)
]
REPEATED = {"shapes": "shape", "pins": "pin", "allow_ops": "allow-op",
            "input_aliases": "input-alias", "output_aliases": "output-alias"}  # fmt: skip


def test_options_are_called_as_in_python():
    for words, entry in table().items():
        for spec in entry["parameters"]:
            name = REPEATED.get(spec["name"], spec["name"]).replace("_", "-")
            spelled = {each.lstrip("-").replace("_", "-") for each in spec["options"]}
            has_no_name_in_python = spec["owner"] == "presenter" or not spelled
            if not has_no_name_in_python and words != "transform":  # it is as transform_graph
                assert spelled & {name, f"no-{name}"}, (words, name)


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "option", "spelling"), FORMER, ids=lambda each: str(each)[:30])
def test_a_former_option_works_and_help_does_not_show_it(words, option, spelling):
    assert spelling in option.opts
    context = click.Context(build(words))
    assert spelling not in (option.get_help_record(context) or ("",))[0].split()


def test_former_keys_of_the_project_file_are_read_with_a_warning(deploykit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploykit.toml").write_text('[ship]\neval = "v.npz"\ncalibration = "c.npz"\n')
    found = deploykit("ship", "absent.pb", "--dry-run")
    assert shows(found.stderr, "option-renamed", old="eval", table="ship", new="evaluation")
    (tmp_path / "deploykit.toml").write_text('[ship]\nevaluation = "v.npz"\n')
    assert "eval " not in deploykit("ship", "absent.pb", "--dry-run").stderr


@pytest.mark.parametrize(
    ("made", "old", "new"),
    [
        (api.LoadTestOptions, "latency_limit_ms", "latency_limit"),
        (api.InputPipelineOptions, "wait_ms", "simulated_compute_ms"),
        (api.LabelOptions, "mean", "input_mean"),
        (api.RecordOptions, "label", "label_column"),
        (api.ShipOptions, "target", "goal"),
        (api.ExportOptions, "most_pixels", "max_pixels"),
        (api.BenchmarkInputs, "allowed_ops", "allow_ops"),
    ],
)
def test_former_names_in_python_are_deprecated(made, old, new):
    with pytest.warns(
        DeprecationWarning, match=says("argument-renamed", old=old, new=new)
    ) as warned:
        found = made(**{old: 3})
    assert warned[0].filename == __file__
    assert getattr(found, new) == 3
    with pytest.raises(TypeError, match=says("argument-named-twice", old=old, new=new)):
        made(**{old: 3, new: 3})


def test_functions_take_former_names(tmp_path):
    with (
        pytest.warns(
            DeprecationWarning, match=says("argument-renamed", new="label_column")
        ) as warned,
        pytest.raises(api.FileError),
    ):
        api.convert_records(tmp_path / "absent.npz", tmp_path / "out", label="x")
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="allow_ops"), pytest.raises(api.FileError):
        api.check(tmp_path / "absent.pb", allowed_ops=["ReadFile"])
    with pytest.raises(TypeError, match="latency_limit"):
        api.load_test("127.0.0.1:1", "net", "x.npz", latency_limt=5)
