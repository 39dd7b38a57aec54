"""Long work on a terminal and without one."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

from deploykit.cli.progress import Lines
from deploykit.rendering import progress
from deploykit.rendering.progress import watch_with, working
from tests.support import Containing, because

ON_A_TERMINAL = """
from deploykit.cli.progress import watcher
from deploykit.rendering.progress import watch_with, working

passed = [0.0]
bar = watcher()
watch_with(bar, lambda: passed[0])
with working("ship", "check", "calibrate", "serve",
             expected={"check": 10, "calibrate": 200, "serve": 20}) as work:
    work.begin("check")
    passed[0] = 10
    work.begin("calibrate")
    passed[0] = 130
    bar._bar.refresh()
    with working("calibrate") as inner:
        inner("of [/red] " + "x" * 200, 2)
        bar._bar.refresh()
"""


class MadeUpTimer:
    """Timers that go off as the clock is moved."""

    def __init__(self):
        self.now, self.waiting = 0.0, []

    def __call__(self):
        return self.now

    def new(self, seconds, function, arguments):
        timer = type("Timer", (), {"daemon": False})()
        entry = (self.now + seconds, function, arguments)
        timer.start = lambda: self.waiting.append(entry)
        timer.cancel = self.waiting.clear
        return timer

    def move(self, seconds):
        until = self.now + seconds
        while self.waiting and min(self.waiting)[0] <= until:
            entry = min(self.waiting, key=lambda each: each[0])
            self.waiting.remove(entry)
            self.now = entry[0]
            entry[1](*entry[2])
        self.now = until


@pytest.fixture
def timer(monkeypatch):
    monkeypatch.setattr(progress, "_shown", progress._Shown(progress._shown.watcher))
    timer = MadeUpTimer()
    watch_with(Lines(timer.new), timer)
    return timer


def said(capsys):
    return [each.removeprefix("deploykit: ") for each in capsys.readouterr().err.splitlines()]


def test_without_a_terminal_there_is_a_line_for_each_step_and_each_minute(timer, capsys):
    steps = {"check": 5, "calibrate": 200, "serve": 20}
    with working("ship", *steps, expected=steps) as work:
        work.begin("check")
        timer.move(5)
        work.begin("calibrate")
        work("values", 2)
        timer.move(130)
        work.begin("serve")
        timer.move(1)
    timer.move(1000)
    assert said(capsys) == [
        Containing("[1/3] check  ", because("time-of-about", time="0:02", total="3:50")),
        Containing("[2/3] calibrate  ", because("time-of-about", time="0:05", total="3:50")),
        Containing("[2/3] calibrate", "1:00 ", "3:50"),
        Containing("[2/3] calibrate", "2:00 ", "3:50"),
        Containing("[3/3] serve  ", because("time-of-about", time="2:15", total="2:40")),
    ]


def test_work_that_ends_soon_says_nothing(timer, capsys):
    with working("inspect", "a", "b") as work:
        work.begin("a")
        timer.move(1)
        work.begin("b")
    assert said(capsys) == []


def test_work_without_steps_has_a_line_each_minute(timer, capsys):
    with working("benchmark") as work:
        work("turns", 20)
        timer.move(119.9)
        work("turns", 20)
        timer.move(0.1)
    assert said(capsys) == ["benchmark: turns  1:00", "benchmark: turns  2:00"]


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_on_a_terminal_there_is_one_line_that_is_taken_away(columns):
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    child = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL], stderr=theirs, stdout=theirs, env=environment
    )
    os.close(theirs)
    text = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert child.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [each for each in re.split(r"[\r\n]+", plain) if each.strip()]
    shown = [each for each in lines if each.startswith("[2/3] calibrate")]
    times = because("time-of-about", time="2:10", total="4:00")
    assert any(re.match(rf"\[2/3\] calibrate +{times} +━", each) for each in shown)
    named = rf".*… +{times}" if columns == 60 else r": of \[/red\] x+… +2:10 "
    assert any(re.match(rf"\[2/3\] calibrate{named}", each) for each in shown)
    assert max(map(len, lines)) <= columns
    assert text.count("\n") <= 1  # drawn in place
    assert text.endswith("\x1b[2K")  # and taken away


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other side is closed
        return b""
