"""A finished shipment stays whole until the next one is finished, whenever a run dies."""

import json

import pytest

from deploykit.shipping import ship_folder as own
from deploykit.shipping.shipped import FOLDER
from deploykit.storage.files import write
from deploykit.storage.swap_folders import next_to
from tests.deploykit.storage.test_swap_folders import killed_at

NAMES = ("model.pb", "net/1/saved_model.pb", "tuned.json")


def shipped(folder, text, stages=("serve",)):
    """Write what a run writes: the report first, unfinished, and last."""
    own.write_begun(folder, "net")
    (folder / "net" / "1").mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        write(folder / name, [text.encode()], force=True)
    document = {"format": 1, "kind": "ship", "name": text, "stages": list(stages)}
    write(folder / "report.json", [json.dumps(document).encode()], force=True)


def ship(folder, text, kept=lambda place: 0):
    with own.own_folder(folder, kept) as build:
        shipped(build, text)


def interrupted(folder, act):
    """Return where a run built that was interrupted after an act."""
    run = own.own_folder(folder, lambda place: 0)
    build = run.__enter__()
    act(build)
    assert not run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # it goes on
    return build


def texts(folder):
    found = {(folder / name).read_text() for name in NAMES}
    return found | {json.loads((folder / "report.json").read_text())["name"]}


def test_a_finished_shipment_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "a.ship"
    ship(folder, "old")
    (folder / "notes.txt").write_text("mine")
    with own.own_folder(folder, lambda place: 0) as build:
        assert build == next_to(folder, "next")
        shipped(build, "new")
        (build / "tuned.json").unlink()
        (folder / "net" / "2").mkdir()  # of somebody else, meanwhile
        (folder / "net" / "2" / "saved_model.pb").write_text("2")
        assert texts(folder) == {"old"}
    assert {each.name for each in folder.iterdir()} == {
        FOLDER, "model.pb", "net", "report.json", "notes.txt"
    }  # fmt: skip
    assert (folder / "model.pb").read_text() == "new"
    assert (folder / "net" / "2" / "saved_model.pb").read_text() == "2"
    assert [each.name for each in tmp_path.iterdir()] == ["a.ship"]


@pytest.mark.slow
def test_a_run_that_dies_at_any_moment_leaves_the_old_or_the_new(tmp_path):
    found, event, was_killed = set(), 0, True
    while was_killed:
        event += 1
        folder = tmp_path / str(event) / "a.ship"
        folder.parent.mkdir()
        ship(folder, "old")
        was_killed = killed_at(event, lambda folder=folder: ship(folder, "new"))
        whole = texts(folder)
        assert own.is_finished(folder)
        assert len(whole) == 1
        found |= whole
        ship(folder, "next")  # which nothing that was left stands in the way of
        assert texts(folder) == {"next"}
        assert [each.name for each in folder.parent.iterdir()] == ["a.ship"]
    assert event > 20
    assert found == {"old", "new"}


def test_a_run_resumes_where_more_is_kept(tmp_path):
    folder = tmp_path / "a.ship"
    ship(folder, "old")
    build = interrupted(folder, lambda build: (build / FOLDER / "check.json").write_text("{}"))
    assert texts(folder) == {"old"}

    def kept(place):
        return len(list((place / FOLDER).iterdir()))

    assert own.resumed_in(folder, kept) == build
    with own.own_folder(folder, kept) as again:
        assert (again / FOLDER / "check.json").exists()
        shipped(again, "new")
    assert (texts(folder), build.exists()) == ({"new"}, False)


def test_an_unfinished_shipment_is_built_in_place(tmp_path):
    folder = tmp_path / "a.ship"
    assert interrupted(folder, lambda build: own.write_begun(build, "net")) == folder
    assert not own.is_finished(folder)
    with own.own_folder(folder, lambda place: 0) as build:
        assert build == folder


def test_a_folder_that_cannot_be_swapped_is_unfinished_meanwhile(tmp_path, monkeypatch):
    folder = tmp_path / "a.ship"
    ship(folder, "old")
    monkeypatch.setattr(own, "can_swap", lambda each: False)
    with own.own_folder(folder, lambda place: 0) as build:
        own.write_begun(build, "net")
        assert build == folder
        assert not own.is_finished(folder)
