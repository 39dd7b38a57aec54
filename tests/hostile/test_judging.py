"""Whether the judge of hostile files sees what it is there to see."""

import dataclasses
import random

import pytest

from tests.hostile import mutations
from tests.hostile.case import Case, statuses
from tests.hostile.commands import rows
from tests.hostile.judging import judge
from tests.hostile.runner import Runner
from tests.hostile.seeds import GRAPHS, RECORDS, TARGETS
from tests.hostile.watching import MIB, Ended, Place

CASE = Case("kind", "name", lambda folder: folder, right=statuses(2), culprit=("'odd'",))
ERROR = "deploykit: error: model.pb: node 'odd': it is odd\n"
WRONG = {
    "right": (Ended(2, "", ERROR, 0.1), set()),
    "status": (Ended(0, "", "", 0.1), {"status"}),
    "died": (Ended(-11, "", "", 0.1), {"died"}),
    "hang": (Ended(-9, "", "", 60.0, hung=True), {"hang"}),
    "bug": (Ended(1, "", "deploykit: bug: KeyError: 'x'\n", 0.1), {"bug"}),
    "traceback": (Ended(2, "", f"{ERROR}Traceback (most recent call last):", 0.1), {"traceback"}),
    "memory": (Ended(2, "", ERROR, 0.1, memory=400 * MIB), {"memory"}),
    "orphans": (Ended(2, "", ERROR, 0.1, left=[7]), {"orphans"}),
    "silent": (Ended(2, "", "", 0.1), {"silent"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name, tmp_path):
    ended, kinds = WRONG[name]
    place = Place(tmp_path)
    (place.case / "model.pb").write_bytes(b"x")
    found = judge(CASE, "inspect", ended, place, place.listing(), "model.pb")
    assert found.kinds == kinds
    assert found.named is (None if ended.status < 2 else "'odd'" in ended.err)


@pytest.mark.parametrize(
    ("heavy", "option"), [(True, "--timeout"), (True, "--memory-limit"), (False, "--timeout")]
)
def test_only_heavy_work_may_take_too_long(heavy, option, tmp_path):
    case = dataclasses.replace(CASE, heavy=heavy)
    place = Place(tmp_path)
    (place.case / "model.pb").write_bytes(b"x")
    found = judge(case, "inspect", Ended(6, "", f"{ERROR} {option}", 20.0), place, {}, "model.pb")
    is_right = heavy and option == "--timeout"
    assert ("status" in found.kinds) != is_right


@pytest.mark.parametrize(
    ("command", "most"), [("inspect", 200), ("serve", 650)], ids=["reads", "runs TensorFlow"]
)
def test_a_server_may_take_what_tensorflow_takes(command, most, tmp_path):
    place = Place(tmp_path)
    (place.case / "model.pb").write_bytes(b"x")
    kinds = []
    for memory in (most * MIB + 10, most * MIB + 11):
        ended = Ended(2, "", ERROR, 0.1, memory=memory)
        kinds.append(judge(CASE, command, ended, place, place.listing(), "model.pb").kinds)
    assert kinds == [set(), {"memory"}]


@pytest.mark.parametrize(
    ("path", "status", "kinds"),
    [
        ("out/o.pb", 0, set()),
        ("out/.o.pb.7.tmp", 0, {"stray"}),
        ("out/o.pb", 2, {"stray"}),
        ("tmp/deploykit-x", 0, {"stray"}),
        ("home/x", 0, {"stray"}),
        ("case/model.pb", 0, {"stray"}),
        ("canary/written", 0, {"run", "stray"}),
    ],
)
def test_stray_files_are_seen(path, status, kinds, tmp_path):
    case = Case("kind", "name", lambda folder: folder, right=statuses(0, 2))
    place = Place(tmp_path)
    (place.case / "model.pb").write_bytes(b"x")
    before = place.listing()
    (tmp_path / path).write_bytes(b"changed")
    error = "deploykit: error: model.pb: no\n" if status else ""
    ended = Ended(status, "", error, 0.1)
    assert judge(case, "optimize", ended, place, before, "model.pb").kinds == kinds


@pytest.mark.sampled
def test_the_runner_outlives_a_death_and_a_hang(tmp_path):
    place, runner = Place(tmp_path), Runner()
    try:
        first = runner.run(["transforms"], place, 60)
        assert (first.status, first.hung) == (0, False)
        runner._process.kill()
        assert runner.run(["transforms"], place, 60).status == -9
        assert runner.run(["transforms"], place, 0.0).hung
        assert runner.run(["nothing"], place, 60).status == 2
    finally:
        runner.close()


@pytest.mark.sampled
def test_the_importer_is_asked(tmp_path):
    runner = Runner()
    try:
        good, bad = tmp_path / "good.pb", tmp_path / "bad.pb"
        made = rows()
        good.write_bytes(made.SerializeToString())
        made.node[3].input[0] = "gone"
        bad.write_bytes(made.SerializeToString())
        assert runner.refusal(good, 60) is None
        assert "gone" in runner.refusal(bad, 60)
    finally:
        runner.close()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_change_can_be_made_again(target, tmp_path):
    made = []
    for number in ("a", "b"):
        folder = tmp_path / number / "case"
        (folder / "1").mkdir(parents=True)
        target.make(folder, random.Random("1/7"))
        made.append({p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert made[0] == made[1]


def test_changes_are_many_and_often_still_messages():
    from deploykit.transforms.ir.protos import GraphDef

    chance, parsed, kinds = random.Random(3), 0, set()
    for _ in range(500):
        content = mutations.message(GRAPHS[0], chance, GRAPHS)
        kinds.add(content)
        try:
            GraphDef.FromString(content)
        except Exception:
            continue
        parsed += 1
    assert len(kinds) > 300
    assert 250 < parsed < 500
    assert len({mutations.records(RECORDS, chance) for _ in range(100)}) > 80
