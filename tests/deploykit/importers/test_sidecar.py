"""`X.pb.json` beside a graph: written with it, found with it, and never taken for another's."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deploykit
from deploykit.importers import graph_files
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.importers.metadata_file import (
    About,
    SignatureNames,
    about,
    sidecar_path,
    with_engine,
)
from deploykit.records.conversion import check_name
from deploykit.shipping import ship_folder
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import because, raises, shows

FLOAT = DType("float32")


def graph(*names: str) -> Graph:
    """A graph with two inputs, and a sum and a product as outputs."""
    a, b, add, multiply = names or ("a", "b", "add", "multiply")
    nodes = [
        Node(a, "Placeholder").with_attrs(dtype=FLOAT, shape=(-1, 2)),
        Node(b, "Placeholder").with_attrs(dtype=FLOAT, shape=(-1, 2)),
        Node(add, "AddV2", (a, b)).with_attrs(T=FLOAT),
        Node(multiply, "Mul", (a, b)).with_attrs(T=FLOAT),
    ]
    return Graph(nodes, (a, b), (add, multiply))


def told() -> Graph:
    made = graph()
    signature = SignatureNames({"left": "a", "right": "b"}, {"sum": "add", "product": "multiply"})
    made.about = About({"serve": signature}, told_steps(), ("cat", "dog"))
    return made


def told_steps() -> dict:
    return {"format": 1, "inputs": {"a": {"scale": 2.0}}}


def document(path) -> dict:
    return json.loads(sidecar_path(path).read_text())


def test_what_is_known_is_found_again(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    found = load_graph(tmp_path / "m.pb")
    assert about(found) == about(told())
    assert (found.inputs, found.outputs) == (("a", "b"), ("add", "multiply"))
    assert document(tmp_path / "m.pb")["format"] == 1


@pytest.mark.parametrize("as_text", [False, True])
def test_inputs_and_outputs_are_not_guessed_where_they_are_known(tmp_path, as_text):
    made = graph()
    made.outputs = ("add",)
    save_graph(made, tmp_path / "m.pb", as_text=as_text)
    assert load_graph(tmp_path / "m.pb").outputs == ("add",)
    assert load_graph(tmp_path / "m.pb", outputs=["multiply"]).outputs == ("multiply",)
    sidecar_path(tmp_path / "m.pb").unlink()
    assert load_graph(tmp_path / "m.pb").outputs == ("add", "multiply")


def test_what_was_written_for_another_graph_is_left_aside(tmp_path, caplog):
    save_graph(told(), tmp_path / "m.pb")
    other = graph("x", "y", "plus", "times")
    (tmp_path / "m.pb").write_bytes(b"".join(other.serialized()))
    found = load_graph(tmp_path / "m.pb")
    assert (found.inputs, found.about) == (("x", "y"), None)
    path = tmp_path / "m.pb"
    assert because("metadata-of-another", file=f"{path}.json", model=path) in caplog.text


def test_a_file_without_a_hash_is_used_with_a_warning(tmp_path, caplog):
    path = tmp_path / "m.pb"
    save_graph(told(), path)
    written = document(path)
    del written["sha256"]
    sidecar_path(path).write_text(json.dumps(written))
    assert load_graph(path).about is not None
    assert because("metadata-unsure", file=f"{path}.json", model=path) in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"mine": 1}', b'{"kind": "benchmark"}'])
def test_a_file_of_somebody_elses_does_not_count_and_is_not_replaced(tmp_path, content):
    path = tmp_path / "m.pb"
    path.write_bytes(b"".join(graph().serialized()))
    sidecar_path(path).write_bytes(content)
    assert load_graph(path).inputs == ("a", "b")
    path.unlink()
    with raises(FileError, "sidecar-exists"):
        save_graph(graph(), path)
    assert not path.exists()
    assert sidecar_path(path).read_bytes() == content
    save_graph(graph(), path, force=True)
    assert document(path)["inputs"] == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        {"signatures": {"s": {"inputs": []}}}, {"signatures": {"s": {"inputs": [], "outputs": 3}}},
        {"signatures": {"s": {"inputs": {"x": 3}, "outputs": {}}}}, {"signatures": None},
        {"inputs": 3}, {"inputs": [3]}, {"outputs": None}, {"labels": 7}, {"labels": [1]},
        {"engine": 3}, {"engine": {"engine": "abacus", "version": "1"}}, {"engine": {}},
        {"engine": {"engine": "openvino", "version": "1", "settings": {"threads": 0}}},
        {"engine": {"engine": "openvino", "version": "1", "precision": "f8"}},
        {"engine_graph": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_one_is_named(tmp_path, change):
    save_graph(with_use(), tmp_path / "m.pb")
    broken = document(tmp_path / "m.pb") | change
    sidecar_path(tmp_path / "m.pb").write_text(json.dumps(broken))
    with raises(GraphError, "sidecar-invalid", name="m.pb"):
        load_graph(tmp_path / "m.pb")


def test_a_format_of_the_future_is_refused(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    later = document(tmp_path / "m.pb") | {"format": 2}
    sidecar_path(tmp_path / "m.pb").write_text(json.dumps(later))
    with raises(GraphError, "format-unsupported", got=2, known=1):
        load_graph(tmp_path / "m.pb")


@given(st.lists(st.sampled_from(["a", "b"]), unique=True, min_size=1),
       st.lists(st.sampled_from(["add", "multiply"]), unique=True, min_size=1))  # fmt: skip
def test_a_signature_offers_what_the_graph_has(inputs, outputs):
    made = told()
    made.inputs, made.outputs = inputs, outputs
    (signature,) = about(made).signatures.values()
    assert set(signature.inputs.values()) == set(inputs)
    assert set(signature.outputs.values()) == set(outputs)


def test_names_follow_a_rename_through_a_transform(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    graph = deploykit.transform(
        tmp_path / "m.pb", "rename_node(old_node_name=a, new_node_name=first)",
        output=tmp_path / "n.pb",
    )  # fmt: skip
    assert "first" in graph
    known = document(tmp_path / "n.pb")
    assert known["inputs"] == list(graph.inputs)
    assert known["signatures"]["serve"]["inputs"] == {"left": graph.inputs[0], "right": "b"}
    assert known["labels"] == ["cat", "dog"]
    assert known["preprocessing"]["inputs"] == {graph.inputs[0]: {"scale": 2.0}}


def test_every_rewriting_hands_on_what_is_known(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    makers = {
        deploykit.freeze: {},
        deploykit.optimize: {},
        deploykit.quantize: {"allow_float": True},
    }
    for number, (make, options) in enumerate(makers.items()):
        path = tmp_path / f"{number}.pb"
        made = make(tmp_path / "m.pb", output=path, **options)
        assert about(made) == about(told())
        assert about(load_graph(path)) == about(told())


def test_data_may_bear_the_names_of_the_signature(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    ones = np.ones((3, 2), np.float32)
    found = deploykit.verify(
        tmp_path / "m.pb", tmp_path / "m.pb", data={"left": ones, "right": 2 * ones.cumsum(0)}
    )
    assert (found.passed, found.samples) == (True, 3)


def test_export_keeps_the_names_of_the_signature(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    found = deploykit.export(tmp_path / "m.pb", tmp_path / "models")
    signatures = found.document()["signatures"]
    assert set(signatures) == {"serve", "serving_default"}
    assert set(signatures["serve"]["inputs"]) == {"left", "right"}
    assert set(signatures["serve"]["outputs"]) == {"sum", "product"}


def test_the_user_says_what_is_known(deploykit, tmp_path):
    save_graph(graph(), tmp_path / "m.pb")
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    steps = {"format": 1, "inputs": {"a": {"scale": 2.0}}}
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    more = ("--labels", tmp_path / "labels.txt", "--preprocess", tmp_path / "steps.json")
    found = deploykit("freeze", tmp_path / "m.pb", *more)
    assert found.status == 0, found.stderr
    known = document(tmp_path / "m.frozen.pb")
    assert (known["labels"], known["preprocessing"]) == (["cat", "dog"], steps)
    (tmp_path / "steps.json").write_text(json.dumps({"format": 1, "inputs": {"z": {}}}))
    found = deploykit("freeze", tmp_path / "m.pb", "--force", *more)
    assert found.status == 2
    assert shows(found.stderr, "unknown-name", name="z", known=["a", "b"])


USE = EngineUse("openvino", "2026.4.1", "f32", {"threads": 2})


def with_use() -> Graph:
    made = told()
    made.about = with_engine(made, USE)
    return made


@pytest.mark.parametrize("as_text", [False, True])
def test_the_engine_of_a_graph_is_found_again(tmp_path, as_text):
    save_graph(with_use(), tmp_path / "m.pb", as_text=as_text)
    found = about(load_graph(tmp_path / "m.pb"))
    assert found.engine == USE
    assert found == about(with_use())


def test_a_command_that_leaves_the_graph_as_it_is_keeps_its_engine(tmp_path):
    save_graph(with_use(), tmp_path / "m.pb")
    kept = {
        "freeze": deploykit.freeze(tmp_path / "m.pb", labels=("ant", "bee")),
        "transform": deploykit.transform(tmp_path / "m.pb", "fold_batch_norms"),
        "open": deploykit.open_model(str(tmp_path / "m.pb")).graph,
    }
    assert {name: about(graph).engine for name, graph in kept.items()} == dict.fromkeys(kept, USE)


def test_another_graph_has_not_its_engine(tmp_path):
    save_graph(with_use(), tmp_path / "m.pb")
    renamed = deploykit.transform(
        tmp_path / "m.pb",
        "rename_node(old_node_name=a, new_node_name=first)",
        output=tmp_path / "n.pb",
    )
    changed = with_use()
    changed.replace(changed["add"], changed["add"].with_data_inputs("b", "a"))
    fewer = with_use()
    fewer.outputs = ("add",)
    others = [
        renamed,
        changed,
        fewer,
        load_graph(tmp_path / "n.pb"),
        load_graph(tmp_path / "m.pb", outputs=["multiply"]),
        deploykit.open_model(str(tmp_path / "m.pb"), inputs=["b", "a"]).graph,
    ]
    assert [about(graph).engine for graph in others] == [None] * len(others)
    assert document(tmp_path / "n.pb")["engine"] is None


def test_an_older_file_says_no_engine(tmp_path):
    save_graph(told(), tmp_path / "m.pb")
    older = document(tmp_path / "m.pb")
    del older["engine"], older["engine_graph"]
    sidecar_path(tmp_path / "m.pb").write_text(json.dumps(older))
    assert about(load_graph(tmp_path / "m.pb")) == about(told())


@pytest.mark.parametrize("length", [240, 100])
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_name_too_long_for_its_metadata_is_refused_with_the_greatest_length(
    tmp_path, length, is_folder, monkeypatch
):
    letter = "a" if length > 200 else "\u00e9"  # of two bytes
    if is_folder:
        folder = tmp_path / ("n" * 250)
        with raises(FileError, "file-name-too-long", size=250, most=249):
            ship_folder.check(folder)
        ship_folder.check(tmp_path / ("n" * 249))
        monkeypatch.setattr("os.pathconf", lambda *_: length)  # as on encrypted folders
    for size in (237, 238, 251, 300):
        path = tmp_path / (letter * ((size - 3) // len(letter.encode())) + ".pb")
        most = 236 - 255 + (length if is_folder else 255)
        with raises(FileError, "file-name-too-long", most=most) as caught:
            save_graph(told(), path)
        assert [*tmp_path.iterdir()] == []
    path = tmp_path / ("b" * (caught.value.fields["most"] - 3) + ".pb")  # as advised
    save_graph(told(), path)
    assert about(load_graph(path)) == about(told())


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("moment", ["made", "written", "renamed"])
def test_a_graph_and_its_metadata_are_both_written_or_none(tmp_path, monkeypatch, moment, before):
    path = tmp_path / "m.pb"
    if before:
        save_graph(graph(), path)
    known = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def replaced(self: Path, target: Path) -> None:
        full() if str(target).endswith(".json") else os.replace(self, target)

    if moment == "made":
        monkeypatch.setattr(graph_files, "hidden", full)
    elif moment == "written":
        monkeypatch.setattr(graph_files, "sidecar", full)
    else:
        monkeypatch.setattr(Path, "replace", replaced)
    with raises(FileError, "file-action-failed"):
        save_graph(told(), path, force=before)
    if moment == "renamed" and before:  # then the metadata is that of another graph, as it states
        known[path.name] = path.read_bytes()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == known


def test_a_folder_in_the_place_of_the_metadata_is_refused(tmp_path):
    (tmp_path / "m.pb.json").mkdir()
    with raises(FileError, "folder-given"):
        save_graph(told(), tmp_path / "m.pb", force=True)
    assert not (tmp_path / "m.pb").exists()


@pytest.mark.parametrize("what", ["records", "results"])
def test_a_name_of_records_leaves_room_for_their_shards(what):
    check_name("n" * 200, what)
    with raises(GraphError, "set-name-too-long", what=what, size=201, most=200):
        check_name("n" * 201, what)
