"""A file of lines: nobody waits for it, whole lines alone, and what is missing is counted."""

import contextlib
import json
import os
import subprocess
import sys
import threading

import pytest

from deploykit.serving.server import access_log
from deploykit.serving.server.access_log import AccessLog
from deploykit.transforms.common.errors import FileError
from tests.support import because, says, showing, shows
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Counted(AccessLog):
    """One that knows what was dropped, and takes lines as they are."""

    def __init__(self, path):
        self.dropped = 0

        def count(number):
            self.dropped += number

        super().__init__(str(path), count)

    def add(self, line: bytes) -> None:
        self._lines.add(line)


def missing(line: str | bytes) -> int:
    """Return the number of missing lines that a line says."""
    return json.loads(line)["dropped"]


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
    kept = Counted(tmp_path / "log")
    lines = [b"line %d\n" % number for number in range(20_000)]
    for line in lines:
        kept.add(line)
    kept.close()
    kept.close()  # which changes nothing
    assert (tmp_path / "log").read_bytes() == b"".join(lines)
    assert kept.dropped == 0


@pytest.mark.sampled
@pytest.mark.parametrize("room", range(0, 40, 3))
def test_a_full_disk_costs_lines_but_leaves_whole_ones_and_says_how_many(
    tmp_path, monkeypatch, caplog, room
):
    full, log = Full(monkeypatch, room), tmp_path / "log"
    kept = Counted(log)
    for number in range(100):
        kept.add(b"line %04d\n" % number)
    until(lambda: kept.dropped + (log.stat().st_size + 9) // 10 == 100)
    full.room = 1 << 20
    before = kept.dropped
    kept.add(b"at last\n")
    kept.close()
    *first, gap, last = log.read_text().splitlines()
    assert (missing(gap), last) == (before, "at last")
    assert len(first) + before == 100
    assert first == [f"line {number:04}" for number in range(len(first))]
    assert caplog.messages == [
        showing("log-failing", file=f"{tmp_path}/log"),
        because("log-recovered", file=f"{tmp_path}/log"),
    ]


def test_trouble_that_comes_and_goes_is_said_seldom(tmp_path, monkeypatch, caplog):
    full = Full(monkeypatch, 0)
    kept = Counted(tmp_path / "log")
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
    kept = Counted("/dev/full")
    for _ in range(100):
        kept.add(b"line\n")
    until(lambda: kept.dropped == 100)
    kept.close()


def test_a_reader_that_stalls_holds_up_nobody(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(access_log, "_MAX_WAITING", 5000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = Counted(pipe)
    count = 0
    while not kept.dropped:  # of 64 KiB in the pipe, and what waits
        kept.add(b"line %07d\n" % count)
        count += 1
    until(lambda: caplog.messages)  # said while it stalls
    assert shows(caplog.messages[0], "log-failing", reason=because("reader-slow"))
    os.set_blocking(reader, True)
    found = b""
    while b"dropped" not in found:
        found += os.read(reader, 1 << 16)
        kept.add(b"line %07d\n" % count)
        count += 1
    kept.close()
    os.set_blocking(reader, False)
    while more := os.read(reader, 1 << 20):
        found += more
    os.close(reader)
    lines = found.decode().splitlines()
    gaps = [missing(line) for line in lines if line.startswith("{")]
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line")]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + kept.dropped == count
    assert 0 < sum(gaps) <= kept.dropped  # at the end, the pipe was full again


def test_a_reader_that_stalls_does_not_hold_up_the_end(tmp_path, monkeypatch):
    monkeypatch.undo()  # real times
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = Counted(pipe)
    thread = kept._writer._thread
    for _ in range(20_000):
        kept.add(b"line of a usual length %150d\n" % 0)
    kept.close()
    assert not thread.is_alive()
    written = os.read(reader, 1 << 20).count(b"\nline") + 1
    assert written + kept.dropped == 20_000
    os.close(reader)


def test_another_process_that_fills_the_pipe_does_not_hold_up_the_end(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    other = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    write = os.write

    def fill_and_write(file, data):  # between the check for room and the write
        with contextlib.suppress(BlockingIOError):
            while True:
                write(other, b"x" * 4096)
        return write(file, data)

    monkeypatch.setattr(access_log.os, "write", fill_and_write)
    kept = Counted(pipe)
    thread = kept._writer._thread
    kept.add(b"line\n")
    kept.close()
    assert not thread.is_alive()
    assert kept.dropped == 1
    os.close(other)
    os.close(reader)


def test_the_end_of_an_idle_log_does_not_wait_for_further_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(access_log, "_PAUSE", 60.0)
    kept = Counted(tmp_path / "log")
    thread = kept._writer._thread
    kept.close()
    assert not thread.is_alive()


def test_lines_behind_a_write_that_hangs_are_counted(tmp_path, monkeypatch):
    hanging, over, write = threading.Event(), threading.Event(), os.write

    def hang(file, data):
        hanging.set()
        over.wait()
        return write(file, data)

    monkeypatch.setattr(access_log.os, "write", hang)
    kept = Counted(tmp_path / "log")
    thread = kept._writer._thread
    kept.add(b"hangs\n")
    assert hanging.wait(30)
    for _ in range(1000):
        kept.add(b"line\n")
    kept.close()
    assert kept.dropped == 1000
    over.set()
    thread.join(30)
    assert not thread.is_alive()
    assert (tmp_path / "log").read_bytes() == b"hangs\n"


def test_memory_for_lines_that_wait_is_limited():
    dropped = []
    lines = access_log._Lines(dropped.append)
    writer = access_log._Writer(lines, None)  # whose thread does not run
    line = b"%6000d\n" % 0
    for _ in range(1000):
        lines.add(line)
    assert len(line) * lines.queue.qsize() == lines.queued
    assert (4 << 20) - len(line) < lines.queued <= 4 << 20
    assert sum(dropped) + lines.queue.qsize() == 1000
    writer.enqueue_sentinel()
    batches = [record.msg for record in iter(lambda: writer.dequeue(True), None)]
    assert max(map(len, batches)) < (64 << 10) + len(line)
    assert b"".join(batches) == line * (1000 - sum(dropped))
    lines.add(line)  # there is room again
    assert lines.queue.qsize() == 1


def test_a_reader_that_is_gone_may_come_back(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = Counted(pipe)
    os.close(reader)
    kept.add(b"lost\n")
    until(lambda: kept.dropped == 1)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept.add(b"found\n")
    kept.close()
    gap, found = os.read(reader, 1000).splitlines()
    assert (missing(gap), found) == (1, b"found")
    os.close(reader)


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path):
    log, old = tmp_path / "log", tmp_path / "log.1"
    kept = Counted(log)
    kept.add(b"old\n")
    until(lambda: log.read_bytes() == b"old\n")
    log.rename(old)
    kept.add(b"new\n")
    kept.close()
    assert (old.read_bytes(), log.read_bytes()) == (b"old\n", b"new\n")


def test_no_line_is_lost_while_files_are_moved_away(tmp_path):
    log, over, count = tmp_path / "log", threading.Event(), 0
    kept = Counted(log)

    def move() -> None:
        try:
            for number in range(20):
                until(lambda: log.exists() and log.stat().st_size)
                log.rename(tmp_path / f"old.{number:02}")
        finally:
            over.set()

    mover = threading.Thread(target=move)
    mover.start()
    while not over.is_set():
        kept.add(b"line %d\n" % count)
        count += 1
        over.wait(0.0001)
    mover.join()
    kept.add(b"line %d\n" % count)
    kept.close()
    files = [*sorted(tmp_path.glob("old.*")), log]
    assert len(files) == 21
    written = b"".join(path.read_bytes() for path in files)
    assert written == b"".join(b"line %d\n" % number for number in range(count + 1))


def test_a_truncated_line_is_not_continued_in_another_file(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(access_log, "_WARNING_SECONDS", 0.0)
    full, log, old = Full(monkeypatch, 3), tmp_path / "log", tmp_path / "log.1"
    kept = Counted(log)
    kept.add(b"truncated\n")
    until(lambda: log.read_bytes() == b"tru")
    log.rename(old)
    full.room = 1000
    kept.add(b"new\n")
    until(lambda: log.exists() and log.read_bytes() == b"new\n")
    kept.add(b"last\n")
    kept.close()
    new, gap, last = log.read_text().splitlines()
    assert (new, missing(gap), last) == ("new", 1, "last")
    assert (old.read_bytes(), kept.dropped) == (b"tru", 1)
    assert caplog.messages == [
        showing("log-failing", reason="No space left on device"),
        showing("log-recovered"),
        showing("log-failing", reason=because("line-moved")),
        showing("log-recovered"),
    ]


def test_a_file_that_cannot_be_opened_again_costs_lines_until_it_can(tmp_path, caplog):
    log = tmp_path / "folder" / "log"
    log.parent.mkdir()
    kept = Counted(log)
    kept.add(b"old\n")
    until(lambda: log.read_bytes() == b"old\n")
    log.unlink()
    log.parent.rmdir()
    for number in (1, 2):
        kept.add(b"lost\n")
        until(lambda: kept.dropped == number)  # noqa: B023
    log.parent.mkdir()
    kept.add(b"new\n")
    kept.close()
    gap, new = log.read_text().splitlines()
    assert (missing(gap), new) == (2, "new")
    assert caplog.messages == [
        showing("log-failing", file=log, reason="No such file or directory"),
        because("log-recovered", file=log),
    ]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_lines_of_several_processes_do_not_mix(tmp_path, monkeypatch, kind):
    """Each has opened the file by itself, as workers do."""
    monkeypatch.setattr(access_log, "_LAST_WAIT", 30.0)
    log = tmp_path / "log"
    found = b""
    if kind == "pipe":
        os.mkfifo(log)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
    opened = [Counted(log), Counted(log)]
    for number in range(5000):
        for kept, letter in zip(opened, (b"a", b"b"), strict=True):
            kept.add(letter * 50 + b" %d\n" % number)
    closing = [threading.Thread(target=kept.close) for kept in opened]
    for thread in closing:
        thread.start()
    if kind == "pipe":
        while some := os.read(reader, 1 << 16):
            found += some
        os.close(reader)
    for thread in closing:
        thread.join()
    found = found or log.read_bytes()
    for letter in (b"a", b"b"):
        mine = [line for line in found.splitlines() if line.startswith(letter)]
        assert mine == [letter * 50 + b" %d" % number for number in range(5000)]
    assert found.count(b"\n") == 10_000


FORKING = """
import os, sys
from deploykit.serving.server.access_log import AccessLog

log = AccessLog(sys.argv[1])
for number in range(1000):
    log.write("rest", "GET", str(number), "OK", 0.0)
if not os.fork():
    sys.exit()
status = os.waitstatus_to_exitcode(os.wait()[1])
log.write("rest", "GET", "1000", "OK", 0.0)
log.close()
sys.exit(status)
"""


@pytest.mark.sampled
def test_a_fork_writes_no_line_again(tmp_path):
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", FORKING, str(log)], check=True, timeout=60)
    found = [json.loads(line)["peer"] for line in log.read_text().splitlines()]
    assert found == [str(number) for number in range(1001)]


def test_standard_output(capfd):
    kept = Counted("-")
    kept.add(b"line\n")
    kept.close()
    assert capfd.readouterr().out == "line\n"


def test_what_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(FileError, match="Is a directory"):
        Counted(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        FileError, match=says("file-error", reason=because("pipe-unread"), source="pipe")
    ):
        Counted(tmp_path / "pipe")
