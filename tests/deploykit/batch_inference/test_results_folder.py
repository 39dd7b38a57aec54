"""Results are whole, of one model and one set of data, however often a run is interrupted."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from deploykit.batch_inference.parts_journal import PartsJournal
from deploykit.transforms.core.errors import FileError, GraphError
from tests.deploykit.batch_inference.made_up_results import NAME, PARTS, ROWS, run

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
    index = json.loads((whole / f"{NAME}.index.json").read_text())
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
    assert "all 4 parts are there already" in caplog.text


@pytest.mark.parametrize("most", range(PARTS + 1))
def test_a_run_that_was_interrupted_goes_on(tmp_path, whole, most):
    _, first = run(tmp_path / "out", most=most, skipped=(2,))
    assert sorted(contents(tmp_path / "out"))[0] == (JOURNAL if most < PARTS else f"{NAME}-00000-of"
                                                     "-00004.npz")  # fmt: skip
    _, second = run(tmp_path / "out", skipped=(2,))
    assert first + second == list(range(PARTS))
    assert contents(tmp_path / "out") == contents(whole)


def test_a_journal_that_is_cut_anywhere_tells_of_whole_parts_alone(begun):
    journal = PartsJournal(begun / JOURNAL)
    content = journal.path.read_bytes()
    _, parts = journal.read()
    assert sorted(parts) == [0, 1, 2]
    for size in range(len(content)):
        journal.path.write_bytes(content[:size])
        if size <= content.index(b"\n"):
            with pytest.raises(GraphError, match=r"parts.jsonl: this does not tell"):
                journal.read()
            continue
        count = content[:size].count(b"\n") - 1
        assert journal.read()[1] == {number: parts[number] for number in range(count)}


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
    with pytest.raises(FileError, match=r"parts.jsonl: this does not tell .*--force begins anew"):
        run(begun)
    _, computed = run(begun, force=True)
    assert computed == list(range(PARTS))
