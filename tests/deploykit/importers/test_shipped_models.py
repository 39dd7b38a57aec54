"""A folder of `deploykit ship` is a model wherever one is opened, and what is wrong is said."""

import json
import logging
import re
import shutil

import pytest

import deploykit as api
from deploykit.api.shipped import tuned_settings
from deploykit.exporting.export import default_name
from deploykit.importers.freeze import freeze_graph
from deploykit.importers.metadata_file import About, SignatureNames
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.deploykit.api.test_shipped import tuned, written
from tests.support import Containing, raises, says, showing, shows

FLOAT = DType("float32")
SETTINGS = api.RunConfig(
    batch=8, threads=(2, 1), concurrency=3, keep_memory=True, env={"OMP_NUM_THREADS": "2"}
)
STEPS = {"format": 1, "inputs": {"x": {"range": "0..1"}}}


@pytest.fixture
def ship(tmp_path):
    """A folder as `ship` leaves it, without what no command opens."""
    folder = tmp_path / "shoes.ship"
    (folder / "shoes" / "1").mkdir(parents=True)
    (folder / "shoes" / "1" / "saved_model.pb").write_bytes(b"not read")
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=(-1, 3)),
        Node("scores", "Relu", ("x",)).with_attrs(T=FLOAT),
    ]
    graph = Graph(nodes, ("x",), ("scores",))
    signature = SignatureNames({"x": "x"}, {"probabilities": "scores"})
    graph.about = About({"serving_default": signature}, STEPS, ("cat", "dog", "cow"))
    api.save_graph(graph, folder / "model.pb")
    tuned(folder, SETTINGS)
    written(folder, {"format": 1, "kind": "ship", "name": "shoes", "stages": [{}]})
    return folder


def test_it_opens_with_all_that_is_known_of_it(ship, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(ship, moved)
    found = api.open_model(moved)
    assert (found.source, found.graph.outputs) == (str(moved), ("scores",))
    assert (found.about.labels, found.about.preprocessing) == (("cat", "dog", "cow"), STEPS)
    assert found.sha256 == api.open_model(moved / "model.pb").sha256
    assert default_name(moved) == "shoes"
    part = api.open_model(api.ModelSource(moved, outputs=["scores:0"]))
    assert part.frozen.outputs == ("scores",)


@pytest.mark.parametrize("command", [("inspect",), ("check",), ("freeze", "--force")])
def test_commands_take_it(deploykit, ship, command):
    found = deploykit(command[0], ship, *command[1:], "--json")
    assert found.status == 0, found.stderr
    assert found.document["input_file"] == str(ship)
    made = ship.parent / "shoes.ship.frozen.pb"
    assert made.exists() == (command[0] == "freeze")


def test_files_of_a_graph_are_looked_for_beside_it(ship, monkeypatch):
    folders = []

    def remembered(graph, files):
        folders.append(files.folder)
        raise GraphError("enough")

    monkeypatch.setattr("deploykit.importers.freeze.Initialisers", remembered)
    for path in (ship, ship / "model.pb"):
        with pytest.raises(GraphError, match="enough"):
            freeze_graph(api.open_model(path).graph, api.ModelSource(path))
    assert folders == [ship, ship]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"format": 1, "kind": "ship", "name": "shoes", "stages": []}, says("shipment-unfinished")),
        ({"format": 1, "kind": "ship", "name": "shoes"}, says("shipment-unfinished")),
        ({"format": 9, "kind": "ship", "name": "shoes"}, says("format-unsupported", got=9)),
        ({"format": 1, "kind": "ship", "name": "../shoes"}, says("ship-report-without-model")),
        ('{"format": 1, "kind": "ship", "na', re.escape("report.json")),
        ("\x00\xff", re.escape("report.json")),
        ({"kind": "benchmark"}, says("folder-of-saved-models", names=["1"])),
        ([], says("folder-without-model")),
    ],
)
def test_what_is_not_finished_or_damaged_is_said(deploykit, ship, report, said):
    if report != {"kind": "benchmark"}:
        shutil.rmtree(ship / "shoes")
    else:
        (ship / "shoes" / "1").rename(ship / "1")
    written(ship, report)
    found = deploykit("inspect", ship)
    assert found.status == 4
    assert found.stderr.startswith(f"deploykit: error: {ship}")
    assert re.search(said, found.stderr)


@pytest.mark.parametrize("name", ["model.pb", "model.pb.json"])
def test_a_file_that_is_missing_is_named(ship, name):
    (ship / name).unlink()
    with raises(FileError, "shipped-graph-missing", file=ship / name):
        api.open_model(ship)


def test_settings_come_from_the_file_or_else_from_the_folder(ship, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    expected = api.RunConfig(batch=8, keep_memory=True)
    for model in (ship, str(ship), api.ModelSource(ship), api.open_model(ship)):
        caplog.clear()
        assert tuned_settings(model, None, "") == expected
        assert shows(caplog.messages[0], "tuned-unsure", file=ship / "tuned.json")
        used = showing("tuned-used", file=ship / "tuned.json", settings=Containing("8"))
        assert caplog.messages[1] == used
    other = tmp_path / "tuned.json"
    tuned(tmp_path, api.RunConfig(batch=2))
    assert tuned_settings(ship, other, "") == api.RunConfig(batch=2)
    assert tuned_settings(ship / "model.pb", other, "") == api.RunConfig(batch=2)
    for model in (ship / "model.pb", api.open_model(ship).graph):
        assert tuned_settings(model, None, "") == api.RunConfig()
    (ship / "tuned.json").unlink()
    assert tuned_settings(ship, None, "") == api.RunConfig()


def test_settings_of_another_machine_are_warned_of(ship, caplog):
    tuned(ship, SETTINGS, cpu="Another CPU")
    tuned_settings(ship, None, "")
    assert "CPU Another CPU" in caplog.text


@pytest.mark.parametrize("content", ["{", "{}", json.dumps({"kind": "tuned", "format": 1})])
def test_settings_that_cannot_be_read_are_an_error_where_they_are_named(ship, content, caplog):
    (ship / "tuned.json").write_text(content)
    assert tuned_settings(ship, None, "") == api.RunConfig()
    assert str(ship / "tuned.json") in caplog.text
    with pytest.raises(GraphError):
        tuned_settings(ship, ship / "tuned.json", "")
