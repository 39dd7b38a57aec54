"""Shards are the same bytes whoever writes them and however often that is interrupted."""

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploykit.records import workers
from deploykit.records.conversion import Options, alone, convert
from deploykit.records.index import load_index
from deploykit.records.tables import Numbers
from deploykit.transforms.common.errors import Error, FileError, GraphError, LimitError
from tests.deploykit.records.conftest import numbers, parsed
from tests.support import Containing, raises, says, shows

SMALL = Options(shard_bytes=20_000, processes=2)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def table(folder, rows=300, columns=64, files=3):
    for number in range(files):
        numbers(folder / f"{number}.csv", rows, columns, seed=number)
    return [str(folder / f"{number}.csv") for number in range(files)]


@pytest.fixture
def small_parts(monkeypatch):
    """Many parts of little data."""
    monkeypatch.setattr("deploykit.records.lines.PART", 5000)


@pytest.fixture
def source(tmp_path, small_parts):
    return Numbers(table(tmp_path))


@pytest.mark.sampled
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_processes_do_not_change_the_bytes(tmp_path, source, compression):
    made = []
    for count in (1, 2, 5):
        options = Options(shard_bytes=20_000, processes=count, compression=compression)
        outcome = convert(source, tmp_path / str(count), options)
        assert outcome.index.records == 900
        made.append(contents(tmp_path / str(count)))
    assert made[0] == made[1] == made[2]
    assert len(made[0]) > 5
    assert len(parsed(tmp_path / "1")["x"]) == 900


@pytest.mark.sampled
def test_shards_are_about_as_large_as_asked(tmp_path, source):
    index = convert(source, tmp_path / "out", SMALL).index
    assert [each.file for each in index.shards][:1] == [
        f"data-00000-of-{len(index.shards):05}.tfrecord"
    ]
    assert all(10_000 < shard.bytes < 22_000 for shard in index.shards[:-1])


def failing_after(source, parts):
    """Return the source, which ends with an error after so many parts, in one process."""
    read, left = source.read, iter(range(parts))

    def until_then(part):
        if next(left, None) is None:
            raise FileError("the disk is gone")
        return read(part)

    source.read = until_then
    return source


def test_what_was_finished_is_not_written_again(tmp_path, source, caplog):
    whole, out = tmp_path / "whole", tmp_path / "out"
    convert(source, whole, SMALL)
    options = Options(shard_bytes=20_000, processes=1)
    with raises(FileError, "file-error"):
        convert(failing_after(Numbers(list(source.files)), 20), out, options)
    done = {path: path.stat().st_ino for path in out.glob("*.tfrecord")}
    assert 1 < len(done) < len(contents(whole)) - 1
    assert not list(out.glob("*.index.json"))
    assert not list(out.glob(".*.tmp"))
    damaged = sorted(done)[0]
    damaged.write_bytes(b"else")  # one that was finished and is no more
    outcome = convert(source, out, SMALL)
    assert outcome.kept == len(done) - 1
    assert all(path.stat().st_ino == inode for path, inode in done.items() if path != damaged)
    assert contents(out) == contents(whole)


@pytest.mark.sampled
@pytest.mark.parametrize("change", ["content", "options", "features"])
def test_another_source_or_other_options_begin_anew(tmp_path, source, caplog, change):
    out = tmp_path / "out"
    with pytest.raises(FileError):
        convert(
            failing_after(Numbers(list(source.files)), 20),
            out,
            Options("data", 20_000, processes=1),
        )
    options = SMALL
    if change == "content":
        numbers(Path(next(iter(source.files))), 300, 64, seed=9)
        os.utime(next(iter(source.files)), (1, 1))
    elif change == "options":
        options = Options(shard_bytes=15_000, processes=2)
    again = Numbers(list(source.files), "0" if change == "features" else None)
    with caplog.at_level("INFO", "deploykit"):
        outcome = convert(again, out, options)
    assert outcome.kept == 0
    assert shows(caplog.text, "work-restarts")
    convert(again, tmp_path / "fresh", options)
    assert contents(out) == contents(tmp_path / "fresh")


def killed_after(command, seconds):
    """Run a command line and kill it at that time; say whether it had ended before."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()  # ends when the last of its children did
        return False
    assert process.returncode == 0, said
    return True


@pytest.mark.slow
def test_killed_at_any_time_and_run_again(tmp_path):
    """The moments fall between the start of the work and its end, which the first run shows."""
    files = table(tmp_path, rows=3000, columns=64, files=2)
    command = [sys.executable, "-m", "deploykit", "records", *files]
    options = ["--shard-size", "0.1", "--processes", "2"]
    for _ in range(2):  # the first one warms up
        start = time.monotonic()
        assert killed_after([*command, str(tmp_path / "whole"), *options, "--force"], 600)
        longest = time.monotonic() - start
    out, kills, moments = tmp_path / "out", 0, random.Random(7)
    for _ in range(8):
        if killed_after([*command, str(out), *options], moments.uniform(0.3, 0.9) * longest):
            break
        kills += 1
        state = out / ".data.state.json"
        if (out / "data.index.json").exists() and not state.exists():
            break  # it had come to its end
        for path in out.glob("*.tfrecord"):  # whole, or not there
            assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
        if state.exists():
            assert json.loads(state.read_text())["kind"] == "records"
    else:
        assert killed_after([*command, str(out), *options], 600)
    assert kills
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.sampled
def test_a_full_disk_leaves_whole_shards_and_the_rest_follows(tmp_path):
    """A limit on the size of a file stands for the disk: the writer gets an error as well."""
    files = table(tmp_path, rows=2000, columns=64, files=2)
    command = [sys.executable, "-m", "deploykit", "records", *files,
               str(tmp_path / "out"), "--shard-size", "2"]  # fmt: skip
    limited = ("import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000,) * 2)"
               "; os.execv(sys.argv[1], sys.argv[1:])")  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", limited, *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 4
    assert ended.stderr.count("\n") == 2  # the first line is about the header
    assert ended.stderr == Containing("data-00000-of-00001.tfrecord", os.strerror(errno.EFBIG))
    assert not (tmp_path / "out").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert len(parsed(tmp_path / "out")["x"]) == 4000


@pytest.mark.sampled
def test_existing_records_are_replaced_by_force_alone(tmp_path, source):
    out = tmp_path / "out"
    convert(source, out, SMALL)
    before = contents(out)
    with raises(FileError, "exists"):
        convert(source, out, SMALL)
    (out / "data.index.json").unlink()
    with raises(FileError, "exists"):
        convert(source, out, SMALL)
    assert set(contents(out)) == set(before) - {"data.index.json"}
    (out / "data-2-00000-of-00001.tfrecord").write_bytes(b"of another name")
    few = Options(shard_bytes=40_000, processes=2)
    index = convert(source, out, few, force=True).index
    shards = {shard.file for shard in index.shards}
    assert set(contents(out)) == {*shards, "data.index.json", "data-2-00000-of-00001.tfrecord"}


@pytest.mark.sampled
def test_a_finished_run_that_was_killed_before_it_cleaned_up(tmp_path, source, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr("deploykit.storage.resume_file.State.forget", lambda self: None)
    convert(source, out, SMALL)
    monkeypatch.undo()
    monkeypatch.setattr("deploykit.records.lines.PART", 5000)
    before = {path: path.stat().st_ino for path in out.glob("*.tfrecord")}
    assert convert(source, out, SMALL).kept == len(before)
    assert {path: path.stat().st_ino for path in out.glob("*.tfrecord")} == before
    assert not (out / ".data.state.json").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "../x", "a b"])
def test_names_that_are_none(tmp_path, source, name):
    with raises(GraphError, "name-invalid", what="records"):
        convert(source, tmp_path / "out", Options(name))


def test_the_output_lies_apart(deploykit, pictures):
    outcome = deploykit("records", pictures, pictures / "out")
    assert outcome.status == 4
    assert shows(outcome.stderr, "output-inside-source")


def act(item):
    if item == "error":
        raise GraphError("a.csv: line 3: no")
    if item == "bug":
        raise KeyError("x")
    if item == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "ended":
        os._exit(3)
    return item


@pytest.mark.parametrize(
    ("item", "error", "said"),
    [
        ("error", GraphError, "a.csv: line 3: no"),
        ("bug", RuntimeError, "KeyError: 'x'"),
        ("killed", LimitError, says("reader-killed")),
        ("ended", Error, "status 3"),
    ],
)
def test_what_happens_in_a_process_is_said_in_this_one(item, error, said):
    items, found = workers.in_order(act, ["a", "b", item, "c", "d"], 2), []
    with pytest.raises(error, match=said):
        found.extend(items)
    dies = item in ("killed", "ended")  # which is said at once, the rest when it has its turn
    assert found == ["a", "b"][: len(found) if dies else 2]


@pytest.mark.sampled
def test_results_come_in_order_and_nothing_stays(tmp_path):
    found = list(workers.in_order(act, [b"x" * size for size in range(0, 300_000, 9000)], 3))
    assert [len(each) for each in found] == list(range(0, 300_000, 9000))
    left = workers.in_order(act, list(range(100)), 3)
    next(left)
    left.close()  # the processes are ended and waited for
    assert not multiprocessing.active_children()


def wait_for(path):
    for _ in range(2000):
        if path.exists():
            return
        time.sleep(0.01)
    raise GraphError(f"{path.name} did not come")


@pytest.mark.sampled
def test_a_slow_process_leaves_its_share_to_the_other(tmp_path):
    """Taken in turns, item 2 would be that of the process which waits for it."""

    def take(number):
        if number == 0:
            wait_for(tmp_path / "2")
        (tmp_path / str(number)).touch()
        return number

    assert list(workers.in_order(take, range(5), 2)) == list(range(5))


@pytest.mark.sampled
def test_few_results_are_held(tmp_path):
    def take(number):
        (tmp_path / str(number)).touch()
        return number

    items = workers.in_order(take, range(100), 2)
    assert next(items) == 0
    last = 2 * workers._AHEAD  # may be begun, as item 0 had its turn
    wait_for(tmp_path / str(last))
    time.sleep(0.1)  # in which the processes would begin more, if they might
    assert max(int(path.name) for path in tmp_path.iterdir()) == last
    items.close()


def test_skipped_items_are_counted_and_named(deploykit, tmp_path):
    path = tmp_path / "a.csv"
    lines = ["1,2,0"] * 2000
    lines[3], lines[1900] = "1,2", "1,x,0"
    path.write_text("\n".join(lines))
    outcome = deploykit(
        "records", path, tmp_path / "out", "--on-error", "skip", "--json", "--processes", 2
    )
    assert outcome.status == 0, outcome.stderr
    assert outcome.document["skipped"] == 2
    assert outcome.document["records"] == 1998 == load_index(tmp_path / "out").records
    assert outcome.document["problems"] == [
        Containing(f"{path}: line 4: it has 2 cells", "expected 3"),
        Containing(f"{path}: line 1901: column 1", "'x'"),
    ]
    assert len(parsed(tmp_path / "out")["x"]) == 1998


def test_two_at_once_under_one_name(tmp_path, deploykit):
    numbers(tmp_path / "a.csv", rows=12, columns=2)
    arguments = ("records", tmp_path / "a.csv", tmp_path / "out", "--processes", 1)
    with alone(tmp_path / "out", "data"):
        outcome = deploykit(*arguments)
        assert outcome.status == 4
        assert shows(outcome.stderr, "other-process-writes", what="records", name="data")
        assert deploykit(*arguments, "--name", "other").status == 0
    assert deploykit(*arguments).status == 0
    outcome = deploykit(*arguments)
    assert outcome.status == 4
    assert shows(outcome.stderr, "exists")
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.sampled
def test_only_a_run_of_the_same_rule_of_csv_resumes(tmp_path, source, monkeypatch):
    out, first = tmp_path / "out", next(iter(source.files))
    source = Numbers([first])

    def resumed(source, **options):
        return convert(source, out, SMALL, keep_state=True, **options).kept > 0

    assert not resumed(source)
    assert resumed(Numbers([first]))
    other = Numbers([first], header="yes")
    assert other.features == source.features
    assert not resumed(other, force=True)
    monkeypatch.setattr("deploykit.records.tables._RULE", 1)
    assert not resumed(other, force=True)
