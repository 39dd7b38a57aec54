"""A file of lines: nobody waits for it, whole lines alone, and what is missing is counted."""

import os

import pytest

from deploykit.serving.server import access_log
from deploykit.serving.server.access_log import LineFile
from deploykit.transforms.common.errors import FileError
from tests.support import Containing, says
from tests.waiting import until


class StageCache(LineFile):
    """One that knows what was dropped."""

    def __init__(self, path, **options):
        self.dropped = 0

        def count(number):
            self.dropped += number

        super().__init__(str(path), count, lambda number: b"%d missing\n" % number, **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(access_log, "_PAUSE", 0.0)
    monkeypatch.setattr(access_log, "_STALLED", 0.01)
    monkeypatch.setattr(access_log, "_LAST_WAIT", 0.5)


class Full:
    """Writes, for as long as there is room, in place of the kernel."""

    def __init__(self, monkeypatch, room):
        self.room, self.tries, self._write = room, 0, os.write
        monkeypatch.setattr(access_log.os, "write", self.write)

    def write(self, file, data):
        self.tries += 1
        if not self.room:
            raise OSError(28, "No space left on device")
        some = bytes(data[: self.room])
        self.room -= len(some)  # before it is seen in the file, and there is other room
        return self._write(file, some)


def test_lines_come_in_their_order_and_none_is_lost_at_the_end(tmp_path):
    kept = StageCache(tmp_path / "log")
    lines = [b"line %d\n" % number for number in range(20_000)]
    for line in lines:
        kept.add(line)
    kept.close()
    assert (tmp_path / "log").read_bytes() == b"".join(lines)
    assert kept.dropped == 0


@pytest.mark.parametrize("room", range(0, 40, 3))
def test_a_full_disk_costs_lines_but_leaves_whole_ones_and_says_how_many(
    tmp_path, monkeypatch, caplog, room
):
    full = Full(monkeypatch, room)
    kept = StageCache(tmp_path / "log")
    for number in range(100):
        kept.add(b"line %04d\n" % number)
    until(lambda: kept.dropped >= 96 and not kept._waiting)
    full.room = 1 << 20
    before = kept.dropped
    kept.add(b"at last\n")
    kept.close()
    found = (tmp_path / "log").read_text().splitlines()
    *first, gap, last = found
    assert (gap, last) == (f"{before} missing", "at last")
    assert len(first) + before == 100
    assert first == [f"line {number:04}" for number in range(len(first))]
    assert caplog.messages == [
        Containing(f"{tmp_path}/log cannot"),
        Containing(f"{tmp_path}/log is written"),
    ]


def test_trouble_that_comes_and_goes_is_said_seldom(tmp_path, monkeypatch, caplog):
    full = Full(monkeypatch, 0)
    kept = StageCache(tmp_path / "log")
    for number in range(1, 20):
        full.room = 0
        kept.add(b"no\n")
        until(lambda: kept.dropped == number)  # noqa: B023
        full.room = 1000
        kept.add(b"yes\n")
        until(lambda: (tmp_path / "log").read_text().count("yes") == number)  # noqa: B023
    kept.close()
    assert len(caplog.messages) == 2


def test_a_device_that_is_full_for_ever():
    kept = StageCache("/dev/full")
    for _ in range(100):
        kept.add(b"line\n")
    until(lambda: kept.dropped == 100)
    kept.close()


def test_a_reader_that_stalls_holds_up_nobody(tmp_path, caplog):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = StageCache(pipe, most_waiting=100_000)
    count = 0
    while not kept.dropped:  # of 64 KiB in the pipe, and what waits
        kept.add(b"line %07d\n" % count)
        count += 1
    os.set_blocking(reader, True)
    found = b""
    while b"missing" not in found:
        found += os.read(reader, 1 << 16)
        kept.add(b"line %07d\n" % count)
        count += 1
    kept.close()
    os.set_blocking(reader, False)
    while more := os.read(reader, 1 << 20):
        found += more
    os.close(reader)
    lines = found.decode().splitlines()
    missing = sum(int(line.split()[0]) for line in lines if line.endswith("missing"))
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line")]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + kept.dropped == count
    assert 0 < missing <= kept.dropped  # at the end, the pipe was full again
    assert "reader is too slow" in caplog.messages[0]


def test_a_reader_that_stalls_does_not_hold_up_the_end(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = StageCache(pipe)
    for _ in range(100_000):
        kept.add(b"line of some length\n")
    kept.close()
    assert not kept._thread.is_alive()
    os.close(reader)


def test_a_reader_that_is_gone_may_come_back(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = StageCache(pipe)
    os.close(reader)
    kept.add(b"lost\n")
    until(lambda: kept.dropped == 1)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept.add(b"found\n")
    kept.close()
    assert os.read(reader, 1000) == b"1 missing\nfound\n"
    os.close(reader)


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path):
    log, old = tmp_path / "log", tmp_path / "log.1"
    kept = StageCache(log)
    kept.add(b"old\n")
    until(lambda: log.read_bytes() == b"old\n")
    log.rename(old)
    kept.reopen()
    until(log.exists)
    kept.add(b"new\n")
    kept.close()
    assert (old.read_bytes(), log.read_bytes()) == (b"old\n", b"new\n")


def test_what_cannot_be_opened_again_stays(tmp_path, caplog):
    (tmp_path / "folder").mkdir()
    log = tmp_path / "folder" / "log"
    kept = StageCache(log)
    kept.add(b"old\n")
    until(lambda: log.read_bytes() == b"old\n")
    held = log.open()
    log.unlink()
    log.parent.rmdir()
    kept.reopen()
    until(lambda: caplog.messages)
    kept.add(b"new\n")
    kept.close()
    assert held.read() == "old\nnew\n"
    assert caplog.messages == [Containing(f"{log}", "file or directory")]
    held.close()


def test_standard_output(capfd):
    kept = StageCache("-")
    kept.add(b"line\n")
    kept.reopen()
    kept.close()
    assert capfd.readouterr().out == "line\n"


def test_what_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(FileError, match="Is a directory"):
        StageCache(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        FileError, match=says("file-error", reason=Containing("process reads this"), source="pipe")
    ):
        StageCache(tmp_path / "pipe")
