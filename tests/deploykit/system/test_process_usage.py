"""What one's own processes took, and which files lie in memory."""

import os
import subprocess
import sys
import time

import pytest

from deploykit.system.cpu_usage import OwnLook, OwnUse, forget, not_in_memory, wait_for_idle

SIZE = 4 << 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    with path.open("wb") as opened:
        opened.write(os.urandom(SIZE))
        os.fsync(opened.fileno())  # what is not written yet is not forgotten
    return str(path)


def taken(act) -> OwnUse:
    before = OwnLook.now()
    act()
    return OwnLook.now().since(before)


def compute(seconds=0.2):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_work_and_reading_are_told_apart(file):
    work = taken(compute)
    assert work.cpu_seconds >= 0.2
    assert work.asked_bytes < SIZE

    def read():
        with open(file, "rb", buffering=0) as opened:
            while opened.read(1 << 16):
                pass

    before = time.process_time()
    reading = taken(read)
    tick = 0.02  # of the kernel's clock, at most
    assert reading.cpu_seconds <= time.process_time() - before + tick
    assert SIZE <= reading.asked_bytes < 2 * SIZE
    assert reading.waited_seconds >= 0


def test_a_file_is_in_memory_until_it_is_forgotten(file, tmp_path):
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", file], text=True).strip()
    if kind in ("tmpfs", "ramfs"):
        pytest.skip("files of this folder lie nowhere else than in memory")
    with open(file, "rb") as opened:
        opened.read()
    assert not_in_memory([file]) == ()
    forget([file, str(tmp_path / "none")])
    assert not_in_memory([file, str(tmp_path / "none"), str(tmp_path)]) == (file,)


@pytest.mark.sampled
def test_a_process_that_reads_on_is_waited_for_no_longer_than_asked(file):
    reads = f"while True: open({file!r}, 'rb').read()"
    child = subprocess.Popen([sys.executable, "-c", reads])
    try:
        time.sleep(0.3)
        start = time.monotonic()
        wait_for_idle([child.pid], 0.6)
        assert time.monotonic() - start >= 0.6
        os.kill(child.pid, 19)  # SIGSTOP
        wait_for_idle([child.pid], 600.0)
    finally:
        child.kill()
        child.wait()
