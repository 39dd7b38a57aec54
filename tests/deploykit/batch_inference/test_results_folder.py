"""Results are whole, of one model and one set of data, however often a run is interrupted."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from deploykit.batch_inference import results_folder as module
from deploykit.batch_inference.infer_task import PartDone
from deploykit.batch_inference.results_folder import difference, results_folder
from deploykit.batch_inference.results_index import PartsJournal, index_document, read_index
from deploykit.data.data import open_data
from deploykit.records.conversion import Options, alone, convert
from deploykit.records.examples import Feature
from deploykit.records.tables import Numbers
from deploykit.transforms.common.documents import converted, document
from deploykit.transforms.common.errors import FileError, GraphError
from tests.deploykit.batch_inference.made_up_results import (
    NAME,
    PARTS,
    ROWS,
    end_with,
    made_of,
    part,
    run,
)
from tests.deploykit.records.conftest import numbers
from tests.support import Containing, raises, says, showing, shows

JOURNAL = f".{NAME}.parts.jsonl"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of finished results, one row of which was skipped."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    run(folder, skipped=(2,))
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """What a run has left that died after three parts, one of them with a row that was skipped."""
    folder = tmp_path_factory.mktemp("half") / "out"
    run(folder, most=3, skipped=(2,))
    return folder


@pytest.fixture
def out(tmp_path, whole):
    return Path(shutil.copytree(whole, tmp_path / "out"))


@pytest.fixture
def begun(tmp_path, half):
    return Path(shutil.copytree(half, tmp_path / "begun"))


def test_a_run_leaves_parts_and_their_index_alone(whole):
    text = (whole / f"{NAME}.index.json").read_text()
    index = json.loads(text)
    assert text == json.dumps(index, indent=1) + "\n"
    names = [f"{NAME}-{number:05}-of-{PARTS:05}.npz" for number in range(PARTS)]
    assert sorted(contents(whole)) == [*names, f"{NAME}.index.json"]
    assert [each["file"] for each in index["shards"]] == names
    for shard in index["shards"]:
        content = (whole / shard["file"]).read_bytes()
        assert (shard["bytes"], shard["sha256"]) == (
            len(content), hashlib.sha256(content).hexdigest()
        )  # fmt: skip
    assert index["rows"] == PARTS * ROWS - 1 == sum(each["records"] for each in index["shards"])
    assert index["data"]["records"] == PARTS * ROWS
    assert index["skipped"] == [{"file": "1.jpg", "row": 2, "reason": "no é JPEG \udcff"}]
    assert index["columns"]["scores"] == {"dtype": "float32", "shape": [2]}


def test_a_second_run_has_nothing_to_do(out, caplog):
    before = contents(out)
    index, computed = run(out)
    assert computed == []
    assert index == json.loads(before[f"{NAME}.index.json"])
    assert contents(out) == before
    with caplog.at_level("INFO", "deploykit"):
        run(out)
    assert "all 4 parts" in caplog.text


@pytest.mark.parametrize("most", range(PARTS + 1))
def test_a_run_that_was_interrupted_goes_on(tmp_path, whole, most):
    _, first = run(tmp_path / "out", most=most, skipped=(2,))
    assert sorted(contents(tmp_path / "out"))[0] == (JOURNAL if most < PARTS else f"{NAME}-00000-of"
                                                     "-00004.npz")  # fmt: skip
    _, second = run(tmp_path / "out", skipped=(2,))
    assert first + second == list(range(PARTS))
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.sampled
def test_a_journal_that_is_cut_anywhere_tells_of_whole_parts_alone(begun):
    journal = PartsJournal(begun / JOURNAL)
    content = journal.path.read_bytes()
    _, parts = journal.read()
    assert sorted(parts) == [0, 1, 2]
    for size in range(len(content)):
        journal.path.write_bytes(content[:size])
        if size <= content.index(b"\n"):
            with raises(GraphError, "journal-invalid"):
                journal.read()
            continue
        count = content[:size].count(b"\n") - 1
        assert journal.read()[1] == {number: parts[number] for number in range(count)}


@pytest.mark.sampled
def test_after_a_cut_no_row_is_lost_and_none_is_doubled(begun, whole):
    journal = begun / JOURNAL
    content = journal.read_bytes()
    head = content.index(b"\n") + 1
    ends = [place + 1 for place, byte in enumerate(content) if byte == b"\n"[0]]
    for size in sorted({each + off for each in ends for off in (-20, -1, 0, 1, 20)}):
        if not head <= size <= len(content):
            continue
        for each in begun.iterdir():
            each.unlink()
        shutil.copytree(whole, begun, dirs_exist_ok=True)
        (begun / f"{NAME}.index.json").unlink()
        journal.write_bytes(content[:size])
        kept = content[:size].count(b"\n") - 1
        _, computed = run(begun, skipped=(2,))
        assert computed == list(range(kept, PARTS)), size
        assert contents(begun) == contents(whole)


def test_a_journal_that_tells_nothing_is_named(begun):
    (begun / JOURNAL).write_bytes(b"{}")
    with raises(
        FileError, "force-begins-anew", reason=showing("journal-invalid", source=begun / JOURNAL)
    ):
        run(begun)
    _, computed = run(begun, force=True)
    assert computed == list(range(PARTS))


def damage(path, how):
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "a bit":
        path.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
    else:
        path.write_bytes(content[: int(how)])


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["gone", "a bit", "0", "100"])
@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_a_part_that_is_missing_or_damaged_is_done_again_alone(
    out, begun, whole, is_finished, number, how
):
    folder = out if is_finished else begun
    damage(folder / f"{NAME}-{number:05}-of-{PARTS:05}.npz", how)
    _, computed = run(folder, skipped=(2,))
    assert computed == sorted({number, *(() if is_finished else (3,))})
    assert contents(folder) == contents(whole)


def test_a_part_that_is_believed_unseen_would_be_noticed(out, begun, whole, monkeypatch):
    monkeypatch.setattr(module, "is_whole", lambda path, facts: True)
    with pytest.raises(AssertionError):
        test_a_part_that_is_missing_or_damaged_is_done_again_alone(
            out, begun, whole, True, 1, "a bit"
        )


def test_a_part_that_goes_while_others_are_computed_is_missed(begun):
    def act(results):
        results.note(part(begun, made_of(), 3))
        (begun / results.file(1)).unlink()
        results.finish()

    with raises(FileError, "part-missing", number=1, name="photos"):
        end_with(begun, act)
    assert run(begun, skipped=(2,))[1] == [1]


@pytest.mark.parametrize("change", [lambda content: content + b"x", lambda content: content[:-1]])
def test_a_part_whose_size_changes_while_others_are_computed_is_missed(begun, whole, change):
    def act(results):
        results.note(part(begun, made_of(), 3))
        path = begun / results.file(1)
        path.write_bytes(change(path.read_bytes()))
        results.finish()

    with raises(FileError, "part-missing", number=1, name="photos"):
        end_with(begun, act)
    assert run(begun, skipped=(2,))[1] == [1]
    assert contents(begun) == contents(whole)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_part_under_another_name_is_done_again(out, begun, whole, is_finished):
    """However whole it is: a folder of results has the names that its index is made of."""
    folder = out if is_finished else begun
    name = f"{NAME}-00001-of-{PARTS:05}.npz"
    (folder / name).rename(folder / "kept.npz")
    named = folder / (f"{NAME}.index.json" if is_finished else JOURNAL)
    named.write_text(named.read_text().replace(name, "kept.npz"))
    _, computed = run(folder, skipped=(2,))
    assert computed == ([1] if is_finished else [1, 3])
    (folder / "kept.npz").unlink()
    assert contents(folder) == contents(whole)


def test_a_part_that_nobody_noted_is_missed(tmp_path):
    with raises(FileError, "part-missing", number=0, name="photos"):
        end_with(tmp_path, lambda results: results.finish())
    assert contents(tmp_path) == {}


OTHERS = {
    ("(a.pb, ", " b.pb)"): {"model": {"source": "b.pb", "sha256": "b" * 64}},
    ("(a.pb ",): {"model": {"source": "a.pb", "sha256": "b" * 64}},
    ("(photos, ", " more)"): {"data": {"path": "more", "kind": "images", "fingerprint": "e" * 64}},
    ("(photos ",): {"data": {"path": "photos", "kind": "images", "fingerprint": "e" * 64}},
    ("--batch 32", " 64"): {
        "options": made_of().options | {"settings": {"batch": 64, "precision": 3}}
    },
    ('--on-error "stop"', ' "skip"'): {"options": made_of().options | {"on_error": "skip"}},
    ("--labels",): {"options": made_of().options | {"labels": ["a" * 99]}},
    ("outputs x",): {"options": made_of().options | {"outputs": {"x": "x:0"}}},
    ("model tag",): {"options": made_of().options | {"model": {"tag": "serve"}}},
    ("settings precision 3", " 4"): {
        "options": made_of().options | {"settings": {"batch": 32, "precision": 4}}
    },
    ('--format "npz"', ' "csv"'): {"options": made_of().options | {"format": "csv"}},
    (" 4 ", " 5"): {"parts": 5},
}


@pytest.mark.sampled
@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("said", OTHERS, ids=" ".join)
def test_what_is_of_something_else_is_refused_and_says_what(out, begun, said, is_finished):
    folder, other = out if is_finished else begun, made_of(**OTHERS[said])
    before = contents(folder)
    with raises(FileError, "results-exist", what=[Containing(*said)]):
        run(folder, other)
    assert contents(folder) == before
    assert run(folder, other, name="others")[1] == list(range(other.parts))
    for each in folder.glob("others*"):
        each.unlink()
    index, computed = run(folder, other, force=True)
    assert computed == list(range(other.parts))
    assert sorted(contents(folder)) == sorted(
        [f"{NAME}.index.json", *(each["file"] for each in index["shards"])]
    )


def test_a_difference_that_is_overlooked_would_be_noticed(out, begun, monkeypatch):
    monkeypatch.setattr(module, "difference", lambda before, now: [])
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        test_what_is_of_something_else_is_refused_and_says_what(
            out, begun, ("--batch 32", " 64"), True
        )


def test_all_that_differs_is_said():
    other = made_of(
        model={"source": "b.pb", "sha256": ""}, options={"format": "csv"},
        data={"path": "more", "kind": "images", "fingerprint": ""}, parts=9,
    )  # fmt: skip
    assert difference(document(made_of()), document(other)) == [
        showing("made-of-another", before="a.pb", now="b.pb"),
        showing("made-of-another", before="photos", now="more"),
        Containing('--format "npz"', '"csv"'), Containing('--on-error "stop"'),
        Containing("outputs x"), Containing("--batch 32"), Containing("precision 3"),
    ]  # fmt: skip


def test_only_results_that_state_no_split_are_of_an_old_version():
    plain = document(made_of())
    split, other = (
        {**plain, "options": {**plain["options"], "csv_split": each}}
        for each in (256, "256 records")
    )
    assert difference(plain, split) == [Containing("0.1")]
    assert difference(split, other) == [Containing("another version")]


def test_other_paths_to_the_same_make_no_difference(out):
    same = made_of(
        model={"source": "/b/a.pb", "sha256": "a" * 64},
        data={"path": "/b/photos", "kind": "images", "fingerprint": "f" * 64},
    )
    assert run(out, same)[1] == []


def test_what_no_part_was_made_of_refuses_nothing(tmp_path):
    (tmp_path / JOURNAL).write_bytes(b"")
    PartsJournal(tmp_path / JOURNAL).begin(document(made_of(parts=9)))
    assert run(tmp_path)[1] == list(range(PARTS))


def test_parts_of_which_nothing_is_known_are_not_replaced(out):
    (out / f"{NAME}.index.json").unlink()
    before = contents(out)
    with raises(FileError, "results-exist"):
        run(out)
    assert contents(out) == before
    assert run(out, force=True)[1] == list(range(PARTS))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"kind": "infer"}', '{"kind": "infer", "format": 2}',
     '{"kind": "infer", "format": 1, "shards": 3}'],
)  # fmt: skip
def test_an_index_that_is_damaged_is_named(out, text):
    index = out / f"{NAME}.index.json"
    index.write_text(text)
    with pytest.raises(FileError, match=says("force-begins-anew")):
        run(out)
    assert index.read_text() == text
    assert run(out, force=True)[1] == list(range(PARTS))


def test_a_damaged_index_beside_a_journal_does_not_stop_the_run(begun, whole):
    (begun / f"{NAME}.index.json").write_text("{")
    assert run(begun, skipped=(2,))[1] == [3]
    assert contents(begun) == contents(whole)


@pytest.mark.parametrize(
    "name",
    ["format", "kind", "name", "model", "data", "options", "columns", "rows", "bytes", "skipped",
     "shards", "parts"],
)  # fmt: skip
def test_an_index_of_which_a_value_is_changed_is_named(out, name):
    path = out / f"{NAME}.index.json"
    index = json.loads(path.read_text())
    assert name in index
    for wrong in (None, 3, "x", [], {}, [None], [{}]):
        path.write_text(json.dumps(index | {name: wrong}))
        with pytest.raises(FileError, match=r"photos.index.json: "):
            run(out)


def test_records_that_are_no_results_are_never_replaced(tmp_path):
    numbers(tmp_path / "a.csv")
    convert(Numbers([str(tmp_path / "a.csv")]), tmp_path / "out", Options(name=NAME))
    before = contents(tmp_path / "out")
    made = made_of(options={"format": "tfrecord"})
    for force in (False, True):
        with raises(FileError, "records-not-results"):
            run(tmp_path / "out", made, force=force)
    assert contents(tmp_path / "out") == before


def test_data_are_not_replaced_by_their_results(out):
    file = str(out / f"{NAME}-00001-of-{PARTS:05}.npz")
    before = contents(out)
    with pytest.raises(FileError, match=says("data-named-as-result")):
        run(out, made_of(files=(file,)), force=True)
    with raises(FileError, "output-inside-source"):
        run(out / "more", made_of(data={"path": str(out), "fingerprint": ""}))
    assert contents(out) == before


@pytest.mark.parametrize("name", ["", ".a", "a/b", "../a", "a b", "a\n"])
def test_a_name_that_is_none_is_refused(tmp_path, name):
    with raises(GraphError, "name-invalid", what="results"):
        run(tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


def test_two_runs_do_not_write_at_once(tmp_path):
    with alone(tmp_path, NAME, "results"):
        with raises(FileError, "other-process-writes", what="results", name="photos"):
            run(tmp_path)
        run(tmp_path, name="others")


def test_a_run_that_ends_without_a_part_leaves_nothing(tmp_path):
    def act(results):
        raise GraphError("no")

    with pytest.raises(GraphError, match="no"):
        end_with(tmp_path / "out", act)
    assert not (tmp_path / "out").exists()


def test_a_run_that_ends_says_what_is_kept(tmp_path, caplog):
    def act(results):
        results.note(part(tmp_path, made_of(), 2))
        raise KeyboardInterrupt

    caplog.set_level("INFO", "deploykit")
    with pytest.raises(KeyboardInterrupt):
        end_with(tmp_path, act)
    assert shows(caplog.text, "parts-finished", count="1 of 4")
    assert run(tmp_path)[1] == [0, 1, 3]


def test_where_every_row_is_skipped_there_are_no_results(tmp_path):
    made = made_of(parts=2)

    def act(results):
        for number in range(2):
            results.note(part(tmp_path, made, number, skipped=range(ROWS)))
        results.finish()

    with raises(GraphError, "no-row-computed", place="0.jpg", reason=Containing("no é")):
        end_with(tmp_path, act, made)
    assert contents(tmp_path) == {}


def test_a_part_without_rows_says_nothing_of_columns(tmp_path):
    made = made_of(parts=2)
    with results_folder(tmp_path, NAME, made) as results:
        results.note(part(tmp_path, made, 1))
        results.note(part(tmp_path, made, 0, skipped=range(ROWS)))
        index = results.finish()
    assert index["columns"]["scores"] == {"dtype": "float32", "shape": [2]}
    assert [each["records"] for each in index["shards"]] == [0, ROWS]


def test_a_full_disk_leaves_a_journal_of_whole_lines(begun, whole, monkeypatch):
    content = (begun / JOURNAL).read_bytes()

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def act(results):
        done = part(begun, made_of(), 3)
        monkeypatch.setattr("os.fsync", full)
        results.note(done)

    with raises(FileError, "file-action-failed", action="written"):
        end_with(begun, act)
    assert (begun / JOURNAL).read_bytes() == content
    monkeypatch.undo()
    assert run(begun, skipped=(2,))[1] == [3]
    assert contents(begun) == contents(whole)


def died(folder, *how):
    return subprocess.run(
        [sys.executable, "-m", "tests.deploykit.batch_inference.dying", str(folder), *how],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip


@pytest.mark.sampled
def test_after_a_death_before_any_act_the_same_command_goes_on(tmp_path):
    done = died(tmp_path)
    assert done.returncode == 0, done.stderr
    counts = dict(line.split(": ") for line in done.stdout.splitlines())
    assert list(counts) == ["begun anew", "taken up", "replaced"]
    assert min(map(int, counts.values())) > 20


@pytest.mark.sampled
def test_a_death_that_leaves_an_index_without_its_parts_would_be_seen(tmp_path):
    done = died(tmp_path, "wrong")
    assert done.returncode == 1
    assert "in check_index" in done.stderr


def test_parts_are_noted_by_many_threads(tmp_path):
    made = made_of(parts=40)
    with results_folder(tmp_path, NAME, made) as results:
        parts = [part(tmp_path, made, number) for number in range(40)]
        threads = [threading.Thread(target=results.note, args=(each,)) for each in parts]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        _, noted = PartsJournal(tmp_path / f".{NAME}.parts.jsonl").read()
        assert [noted[number] for number in range(40)] == parts


def test_leftovers_of_dead_workers_go_and_those_of_others_stay(tmp_path):
    dead = tmp_path / f".{NAME}-00001-of-00004.npz.0a1b2c3d.tmp"
    others = tmp_path / ".other-00001-of-00004.npz.0a1b2c3d.tmp"
    for each in (dead, others):
        each.write_bytes(b"half")
    run(tmp_path)
    assert (dead.exists(), others.exists()) == (False, True)


def test_a_part_is_read_back_as_it_was_noted(tmp_path):
    done = part(tmp_path, made_of(), 1, skipped=(0, 2))
    journal = PartsJournal(tmp_path / "journal")
    journal.begin(document(made_of()), [done])
    assert journal.read() == (document(made_of()), {1: done})


def test_columns_that_differ_from_part_to_part_are_told(out):
    """And read back, so that an index is made again as it was."""
    text, row, shape = Feature("string"), Feature("int64"), Feature("int64", (2,))
    parts = [
        replace(
            converted(PART, PartDone),
            number=number,
            columns={"file": text, "row": row, **columns},
        )
        for number, columns in enumerate([
            {"x": Feature("float32", (4, 5)), "y": Feature("float16", (3,))},
            {"x": Feature("float32", (4, 6)), "y": Feature("float16", (3,)), "x_shape": shape},
        ])
    ]  # fmt: skip
    index = index_document(NAME, document(made_of(options={"format": "tfrecord"})), parts)
    assert index["columns"]["x"] == {"dtype": "float32", "shape": [4, None]}
    assert index["columns"]["x_shape"] == {"dtype": "int64", "shape": [2]}
    assert index["features"] == {
        "file": {"dtype": "string", "shape": []},
        "row": {"dtype": "int64", "shape": []},
        "x": {"dtype": "float32", "shape": [None]},
        "y": {"dtype": "float16", "shape": [3], "content": "raw"},
    }
    path = out / f"{NAME}.index.json"
    path.write_text(json.dumps(index))
    assert list(read_index(path)[1].values()) == parts


def test_results_that_are_no_records_are_named_as_such(whole, tmp_path):
    with raises(GraphError, "results-not-records"):
        open_data(str(whole))
    run(tmp_path, made_of(options={"format": "tfrecord"}))
    data = open_data(str(tmp_path))
    assert (data.records, sorted(data.features)) == (PARTS * ROWS, ["file", "row", "scores"])


PART = {
    "number": 0, "file": "a", "rows": 1, "bytes": 1, "sha256": "", "data_sha256": "", "bad": [],
    "columns": {},
}  # fmt: skip
