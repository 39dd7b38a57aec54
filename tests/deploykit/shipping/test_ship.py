"""A small model is shipped for real: optimized, measured, exported, served, asked."""

import json
import os
import re
import time
from typing import get_args

import numpy as np
import pytest

import deploykit as api
from deploykit.exporting.manifests import KINDS
from deploykit.importers.graph_files import save_graph
from deploykit.importers.model_source import ModelSource
from deploykit.rendering.formatters.shipped import lines
from deploykit.shipping.ship import _in_memory
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import FROZEN, Purpose, Shipment
from deploykit.shipping.shipped import NAMES
from deploykit.shipping.stage_cache import inputs_of
from deploykit.transforms.common.errors import FileError, GraphError
from tests.deploykit.benchmarking.nets import dense, written
from tests.deploykit.conftest import command_line
from tests.support import because, built, raises, random, says, shows, tf

OPTIONS = ("--budget=0.3", "--engine=tensorflow")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    written(dense(), folder / "net.pb")
    x = np.random.default_rng(0).normal(size=(24, 8)).astype(np.float32)
    np.savez(folder / "eval.npz", x=x, labels=np.arange(24) % 3)
    return folder


def run(home, *words):
    before = os.getcwd()
    os.chdir(home)
    try:
        return command_line("ship", *words, "--json")
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def command(home):
    found = run(home, "net.pb", "--evaluation=eval.npz", *OPTIONS)
    assert found.status == 0, found.stderr
    return found


@pytest.fixture(scope="module")
def shipped(command):
    return command.document


def begun(source, how, folder):
    """Return a shipment whose first stage has written its graph."""
    shipment = Shipment(source=source, how=how, name="net", output=folder, folder=folder)
    shipment.path(FROZEN).parent.mkdir()
    api.save_graph(api.load_graph(source.model), shipment.path(FROZEN))
    return shipment


def test_labels_of_calibration_samples_may_be_of_other_classes(home, tmp_path):
    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    np.savez(home / "named.npz", x=x, labels=np.array(["thing"] * 16))
    (home / "labels.txt").write_text("cat\ndog\nbird\n")
    how = ShipOptions(calibration=str(home / "named.npz"), labels=str(home / "labels.txt"))
    shipment = begun(ModelSource(str(home / "net.pb")), how, tmp_path)
    assert shipment.samples("calibration").count == 16
    shipment.forget_files()
    assert shipment.samples("calibration") is shipment.arrays()


@pytest.mark.parametrize("order", [("cat", "dog", "bird"), ("bird", "dog", "cat")])
@pytest.mark.parametrize("is_stored", [True, False])
def test_the_order_of_the_classes_applies_to_all_data(home, tmp_path, order, is_stored):
    x, names = np.zeros((9, 8), np.float32), np.array(["dog", "cat", "bird"] * 3)
    data: dict[str, object] = {}
    for which in get_args(Purpose):
        data[which] = {"x": x, "labels": names}
        if is_stored:
            np.savez(tmp_path / f"{which}.npz", x=x, labels=names)
            data[which] = str(tmp_path / f"{which}.npz")
    options = ShipOptions(**data, labels=order)
    source, how = _in_memory(ModelSource(str(home / "net.pb")), options)
    shipment = begun(source, how, tmp_path)
    for which in get_args(Purpose):
        samples = shipment.samples(which)
        assert samples.labels.tolist() == [order.index(name) for name in names]
        assert samples.has_class_names
    assert shipment.calibration_options == ("labels",)


def test_samples_are_read_once(command):
    assert command.stderr.count("from eval.npz") == 1


def stages(document):
    return {each["stage"]: each for each in document["stages"]}


def test_each_stage_says_what_became_of_it(shipped):
    found = stages(shipped)
    assert tuple(found) == NAMES
    left_out = {name for name, each in found.items() if each["outcome"] == "left out"}
    assert left_out == {"calibrate", "quantize"}
    assert all("--calibration" in found[name]["why"] for name in left_out)
    assert not any(each["kept"] for each in found.values())


def test_the_served_model_gave_the_answer_of_the_graph(shipped):
    served = stages(shipped)["serve"]["document"]
    assert served["agrees"] is True
    assert served["difference"] <= served["bar"]
    assert served["warm_up_requests"] > 0


def test_the_folder_holds_what_is_needed(home, shipped):
    folder = home / "net.ship"
    assert json.loads((folder / "report.json").read_text())["kind"] == "ship"
    assert (folder / "net" / "1" / "saved_model.pb").is_file()
    assert api.open_model(folder / "model.pb").graph.inputs == ("x",)
    assert shows((folder / "report.html").read_text(), "shipped-in", name="net")
    readme = (folder / "README.md").read_text()
    assert "deploykit serve net.ship" in readme
    assert len(readme.splitlines()) <= 12


def test_figures_are_compared(shipped):
    figures = shipped["figures"]
    assert [*figures] == ["accuracy", "agreement", "size", "p50", "rate", "cpu", "memory"]
    assert figures["agreement"]["after"]["value"] == 1
    assert figures["memory"]["after"]["value"] > 1e7
    for name in ("accuracy", "size", "p50", "rate"):
        assert figures[name]["before"]["value"] > 0 or name == "accuracy"
        assert figures[name]["after"] is not None
    assert shows(shipped["verdict"], "shipped-in", name="net", precision="float32")


def test_float32_and_its_reason_come_first(home, shipped):
    assert (shipped["precision"], shipped["reason"]) == ("float32", "int8 needs --calibration DATA")
    first = because("shipped-in-float32", name="net", reason=shipped["reason"])
    assert next(iter(lines(shipped))) == first
    report = json.loads((home / "net.ship" / "report.json").read_text())
    assert (report["precision"], report["reason"]) == ("float32", shipped["reason"])
    assert first in (home / "net.ship" / "README.md").read_text()
    assert "float32: int8 needs --calibration DATA" in (home / "net.ship/report.html").read_text()


@pytest.mark.sampled
def test_a_second_run_keeps_all(home, shipped):
    found = run(home, "net.pb", "--evaluation=eval.npz", *OPTIONS)
    assert all(each["kept"] or each["outcome"] == "left out" for each in found.document["stages"])
    again = {**found.document, "stages": None, "started": None, "machine": None, "seconds": None}
    first = {**shipped, "stages": None, "started": None, "machine": None, "seconds": None}
    assert again == first


def planned(home, *words):
    found = run(home, "net.pb", *words, *OPTIONS, "--dry-run")
    assert found.status == 0, found.stderr
    return {each["stage"]: each["act"] for each in found.document["plan"]}


def runs(plan):
    return [name for name, act in plan.items() if act == "run"]


def test_only_what_an_option_changes_runs_again(home, shipped):
    assert runs(planned(home, "--evaluation=eval.npz")) == []
    assert runs(planned(home, "--evaluation=eval.npz", "--from-stage=tune")) == [
        "tune", "benchmark", "export", "serve",
    ]  # fmt: skip
    assert runs(planned(home, "--evaluation=eval.npz", "--name=other", "-o", "net.ship")) == [
        "export", "serve",
    ]  # fmt: skip
    assert runs(planned(home)) == ["placement", "tune", "benchmark", "export", "serve"]
    assert runs(planned(home, "--evaluation=eval.npz", "-o", "new.ship")) == [
        name for name in NAMES if name not in ("calibrate", "quantize")
    ]
    assert not (home / "new.ship").exists()


def test_a_plan_tells_times(home, shipped):
    found = run(home, "net.pb", *OPTIONS, "--dry-run", "-o", "new.ship").document
    times = {each["stage"]: each["seconds"] for each in found["plan"]}
    assert times["quantize"] == 0
    assert times["check"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from-stage=tun"], says("unknown-name", kind="stage", name="tun")),
        (["--name=1"], says("model-name-number")),
        (["--manifests=compose"], says("option-value", got="compose", option="--manifests")),
        (["--device=gpu", "--engine=openvino"], says("openvino-cpu-only")),
    ],
)
def test_what_contradicts_itself_is_said_first(home, words, said):
    found = run(home, "net.pb", *words, "-o", "refused.ship")
    assert found.status == 2
    assert re.search(said, found.stderr)
    assert not (home / "refused.ship").exists()


def test_all_manifests_are_asked_for_at_once(home, monkeypatch):
    found = {}
    monkeypatch.setattr(ShipOptions, "check", lambda how: found.update(kinds=how.manifests))
    assert run(home, "net.pb", "--manifests=all", "--dry-run", "-o", "all.ship").status == 0
    assert found["kinds"] == KINDS


def test_a_gpu_that_is_not_there_is_said_first(home, monkeypatch):
    monkeypatch.setattr("deploykit.shipping.ship.gpu_refusal", lambda: "there is none")
    found = run(home, "net.pb", "--device=gpu", "-o", "refused.ship")
    assert (found.status, shows(found.stderr, "device-gpu-refused", reason="there is none")) == (
        2,
        True,
    )
    assert not (home / "refused.ship").exists()


def test_a_folder_of_others_is_left_alone(home):
    (home / "mine").mkdir()
    (home / "mine" / "thesis.txt").write_text("mine")
    with raises(FileError, "ship-folder-foreign"):
        api.ship(home / "net.pb", home / "mine")
    assert [each.name for each in (home / "mine").iterdir()] == ["thesis.txt"]


def test_what_is_read_is_not_written_over(home, shipped):
    model = home / "net.ship" / "model.pb"
    content = model.read_bytes()
    with raises(FileError, "model-inside-output"):
        api.ship(model, home / "net.ship")
    assert model.read_bytes() == content


def test_two_runs_in_one_folder_do_not_meet(home, shipped):
    from deploykit.transforms.untrusted.file_locks import locked

    with locked(home / "net.ship" / ".stages"), raises(FileError, "other-ship-at-work"):
        api.ship(home / "net.pb", home / "net.ship")


def test_a_project_file_holds_options(home, tmp_path):
    text = '[ship]\nmodel = "net.pb"\nbudget = 0.3\nengine = "tensorflow"\noutput = "x.ship"\n'
    (tmp_path / "net.pb").write_bytes((home / "net.pb").read_bytes())
    (tmp_path / "deploykit.toml").write_text(text + 'manifests = ["docker"]\n')
    found = run(tmp_path, "--dry-run")
    assert found.status == 0, found.stderr
    assert found.document["output_file"] == "x.ship"
    assert run(tmp_path, "--dry-run", "-o", "y.ship").document["output_file"] == "y.ship"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("[ship]\nbudgets = 3\n", 2, says("project-unknown-option", name="budgets")),
        ("[ship]\ndry-run = 3\n", 2, says("project-value", name="dry-run", got="3")),
        ("[ship]\nbudget = true\n", 2, says("project-value", name="budget", got="true")),
        ("[ship]\nbudget = -1\n", 2, re.escape("--budget")),
        ("[shop]\nport = 3\n", 2, says("project-table-expected", got="shop")),
        ("[ship\n", 4, says("not-a", what="TOML")),
    ],
)
def test_a_project_file_is_checked(home, tmp_path, text, status, said):
    (tmp_path / "deploykit.toml").write_text(text)
    found = run(tmp_path, home / "net.pb", "--dry-run", "-o", tmp_path / "x")
    assert found.status == status
    assert re.search(said, found.stderr)


def test_each_command_reads_its_own_table(home, tmp_path, monkeypatch):
    text = '[ship]\nbudget = 0.3\n[inspect]\nstructure = true\n["records convert"]\nname = "n"\n'
    (tmp_path / "deploykit.toml").write_text(text)
    (tmp_path / "net.pb").write_bytes((home / "net.pb").read_bytes())
    monkeypatch.chdir(tmp_path)
    found = command_line("inspect", "net.pb")
    assert found.status == 0, found.stderr
    text = "[ship]\nbudget = 0.3\n[inspect]\nstructures = true\n"
    (tmp_path / "deploykit.toml").write_text(text)
    assert command_line("check", "net.pb").status == 0
    assert shows(
        command_line("inspect", "net.pb").stderr, "project-unknown-option", table="inspect"
    )


def test_help_reads_no_project_file(tmp_path, monkeypatch):
    (tmp_path / "deploykit.toml").write_text("[ship")
    monkeypatch.chdir(tmp_path)
    assert command_line("ship", "--help").status == 0


def test_what_is_in_memory_is_told_by_its_contents(home, shipped):
    data = dict(np.load(home / "eval.npz"))
    graph = api.load_graph(home / "net.pb")
    plans = []
    for x in (data["x"], data["x"], data["x"] + 1):
        how = api.ShipOptions(evaluation={**data, "x": x})
        plans.append(inputs_of(*_in_memory(ModelSource(graph), how)))
    assert plans[0] == plans[1] != plans[2]
    with raises(GraphError, "out-of-range"):
        api.ship(graph, home / "none.ship", budget=0)


def test_reading_the_inputs_is_part_of_the_budget(home, tmp_path, monkeypatch):
    hashed = []

    def timed(*given):
        hashed.append(time.monotonic())
        return inputs_of(*given)

    monkeypatch.setattr("deploykit.shipping.ship.inputs_of", timed)
    monkeypatch.setattr("deploykit.shipping.ship._shipped", lambda shipment: shipment)
    shipment = api.ship(home / "net.pb", tmp_path / "net.ship")
    assert shipment.began < hashed[0]


@built(["x"], ["out"])
def long_signals():
    """Build a model that takes signals of 300 values or more, which its shapes do not state."""
    x = tf.compat.v1.placeholder(tf.float32, [None, None, 4], name="x")
    tf.reduce_mean(tf.nn.conv1d(x, random(300, 4, 3), 1, "VALID"), 1, name="out")


@pytest.mark.sampled
def test_sizes_that_do_not_fit_are_given_by_the_option_that_ship_names(tmp_path):
    save_graph(long_signals(), tmp_path / "net.pb")
    np.savez(tmp_path / "long.npz", x=random(16, 310, 4))
    outcome = run(tmp_path, "net.pb", "-o", "out.ship", *OPTIONS)
    assert outcome.status == 5
    assert "--shape" not in outcome.stderr  # an option that ship does not have
    fields = {"shapes": "'x' [4,96,4]", "option": "--calibration"}
    assert because("sizes-do-not-fit", **fields) in outcome.stderr
    given = "--calibration=long.npz"
    assert run(tmp_path, "net.pb", "-o", "out.ship", *OPTIONS, given).status == 0
