"""How far long work has come. Functions of the API say it; what shows it is set from outside."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from deploykit.text.durations import clock_time, rounded_up
from deploykit.text.notebook import Cell, in_kernel
from deploykit.transforms.core.display.escaped import escaped

OVERRUN = 0.1
"""A step that takes longer than expected is taken to need at least so much of its time more."""


@dataclass
class Work:
    """A piece of long work: its steps, known from the start, and the parts of the running one.

    Calling it says which part comes next, and how many the step has; with 0, it only says what
    happens now. `done` grows from 0 to 1 and never falls.
    """

    title: str
    steps: tuple[str, ...]
    watcher: "Watcher"
    expected: dict[str, float] = field(default_factory=dict)
    """Seconds by step; empty where nobody knows."""
    clock: Callable[[], float] = time.monotonic
    number: int = 0
    """Of the running step; 0: none has begun."""
    part: str = ""
    stopped: bool = False
    """Whether it ended by an error, or was interrupted."""

    def __post_init__(self) -> None:
        self.thread = threading.get_ident()
        self._lock = threading.Lock()  # what shows work asks in its own thread
        self._start = self._step_start = self.clock()
        self._parts = _Parts()
        self._done = 0.0
        self.expect(self.expected)

    def begin(self, step: str) -> "Work":
        """Begin a step that was named at the start; steps may be left out, but none comes again.

        Those before it count as done, whether they ran or not.
        """
        with self._lock:
            self.number = self.steps.index(step) + 1
            self.part, self._parts, self._step_start = "", _Parts(), self.clock()
        self.watcher.stepped(self)
        return self

    def __call__(self, part: str, count: int) -> None:
        """Say which part of the step begins now, of how many; 0: the part goes on."""
        with self._lock:
            self.part = part
            if count:
                self._parts = self._parts.next(count, self.clock() - self._step_start)
        self.watcher.moved(self)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Expect steps to take so long from now on; 0 for those whose results are there already."""
        if unknown := set(seconds) - set(self.steps):
            raise ValueError(f"{self.title} has no step {min(unknown)}")
        with self._lock:
            self.expected = {**self.expected, **{k: max(v, 0.0) for k, v in seconds.items()}}

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return self.clock() - self._start

    @property
    def total(self) -> float | None:
        """Seconds that all of it is expected to take, more than have passed; None: nobody knows."""
        if not any(self.expected.values()):
            return None
        with self._lock:
            later = sum(self.expected.get(each, 0.0) for each in self.steps[self.number :])
            return self.elapsed + self._left_of_step() + later

    @property
    def done(self) -> float:
        """The share that is done: steps count by the time they are expected to take, or alike."""
        with self._lock:
            weights = [self.expected.get(each, 0.0) for each in self.steps]
            if not any(weights):
                weights = [1.0] * max(len(self.steps), 1)
            running = max(self.number - 1, 0)
            share = sum(weights[:running]) + weights[running] * self._share_of_step()
            self._done = min(max(self._done, share / sum(weights)), 1.0)
            return self._done

    @property
    def place(self) -> str:
        """The running step among all, such as `[4/6] time`; empty where there are none."""
        if not self.steps or not self.number:
            return ""
        return f"[{self.number}/{len(self.steps)}] {self.steps[self.number - 1]}"

    @property
    def said(self) -> str:
        """What is being done, such as `[4/6] time: load model.pb`."""
        said = ": ".join(each for each in (self.place or self.title, self.part) if each)
        return escaped(said)

    @property
    def times(self) -> str:
        """How long it has taken, and will take as far as known, such as `2:10 of about 4:00`."""
        elapsed, total = self.elapsed, self.total
        if total is None:
            return clock_time(elapsed)
        return f"{clock_time(elapsed)} of about {clock_time(rounded_up(total))}"

    @property
    def line(self) -> str:
        """All of it, such as `[4/6] time: load model.pb  2:10 of about 4:00`."""
        return f"{self.said}  {self.times}"

    def shown_within(self, inner: "Work", since: "_Parts") -> None:
        """Show work inside this one as a part of the running step.

        What it has done is done of the part that was told last; of the step, if it bears its name.
        """
        with self._lock:
            is_all = self.step == inner.title
            names = ("" if is_all else inner.title, inner.step, inner.part)
            self.part = ": ".join(each for each in names if each)
            if is_all or since.count:
                self._parts = since.partly(inner.done, self.clock() - self._step_start)
        self.watcher.moved(self)

    @property
    def step(self) -> str:
        """The name of the running step; empty where none has begun."""
        return self.steps[self.number - 1] if self.number else ""

    @property
    def parts(self) -> "_Parts":
        """How far the running step is."""
        return self._parts

    def _left_of_step(self) -> float:
        """Return the seconds that the running step still needs."""
        passed = self.clock() - self._step_start
        if not self.number:
            return max(OVERRUN * passed, 1.0)
        whole = self._parts.seconds(self.expected.get(self.step, 0.0))
        return max(whole - passed, OVERRUN * passed)

    def _share_of_step(self) -> float:
        passed = self.clock() - self._step_start
        if not self.number or not self.expected.get(self.step) or not passed:
            return self._parts.share
        return max(self._parts.share, passed / (passed + self._left_of_step()))


@dataclass(frozen=True)
class _Parts:
    """How many parts of a step are done, and since when."""

    finished: int = -1
    count: int = 0
    share: float = 0.0
    first: float | None = None
    """Seconds of the step after which the first part began."""
    at: float = 0.0
    """Seconds of the step after which its share was done."""

    def next(self, count: int, at: float) -> "_Parts":
        """Return this with one part more begun."""
        finished = self.finished + 1
        reached = max(self.share, min(finished / count, 1.0))
        return _Parts(finished, count, reached, at if self.first is None else self.first, at)

    def partly(self, share: float, at: float) -> "_Parts":
        """Return this with so much of the running part done; of all that is left, if none is."""
        whole = 1 / self.count if self.count else 1.0
        reached = min(self.share + share * min(whole, 1 - self.share), 1.0)
        first = at if self.first is None else self.first
        return _Parts(self.finished, self.count, reached, first, at)

    def seconds(self, expected: float) -> float:
        """Return what the step will have taken: as expected, and the more as its parts took."""
        if self.first is None:
            return expected
        left = 1 - self.share
        return self.at + left * (left * max(expected - self.first, 0.0) + self.at - self.first)


class Watcher(Protocol):
    """What shows work to people."""

    def began(self, work: Work) -> None:
        """Take note that work began."""

    def stepped(self, work: Work) -> None:
        """Take note that its next step began."""

    def moved(self, work: Work) -> None:
        """Take note that the next part of a step began."""

    def ended(self, work: Work) -> None:
        """Take note that work ended, done or not."""


class _Nobody:
    def began(self, work: Work) -> None: ...
    def stepped(self, work: Work) -> None: ...
    def moved(self, work: Work) -> None: ...
    def ended(self, work: Work) -> None: ...


class _Within:
    """Work inside other work shows as a part of it."""

    def __init__(self, outer: Work) -> None:
        self._outer, self._since, self._part = outer, outer.parts, outer.part

    def began(self, work: Work) -> None:
        self._outer.shown_within(work, self._since)

    def stepped(self, work: Work) -> None:
        self._outer.shown_within(work, self._since)

    def moved(self, work: Work) -> None:
        self._outer.shown_within(work, self._since)

    def ended(self, work: Work) -> None:
        self._outer(self._part, 0)


@dataclass
class _Shown:
    watcher: Watcher
    clock: Callable[[], float] = time.monotonic
    running: Work | None = None


_shown = _Shown(_Nobody())


def watch_with(watcher: Watcher, clock: Callable[[], float] = time.monotonic) -> None:
    """Let this watcher see all work of this process from now on, timed by this clock."""
    _shown.watcher, _shown.clock = watcher, clock


def _watcher() -> Watcher:
    """Return who watches; in a notebook that is the cell, unless told otherwise."""
    if isinstance(_shown.watcher, _Nobody) and in_kernel():
        _shown.watcher = Cell()
    return _shown.watcher


def unseen(title: str, *steps: str) -> Work:
    """Return work that nobody watches."""
    return Work(title, steps, _Nobody())


@contextmanager
def working(title: str, *steps: str, expected: Mapping[str, float] | None = None) -> Iterator[Work]:
    """Yield work of this title, to be told what is done of it.

    Within other work it shows as a part of that one's running step, and is not seen on its own;
    beside other work, in another thread, it is not seen at all. `expected` are seconds by step.
    """
    outer = _shown.running
    watcher = _watcher() if outer is None else _Within(outer)
    if outer is not None and outer.thread != threading.get_ident():
        yield unseen(title, *steps)
        return
    work = Work(title, steps, watcher, dict(expected or {}), _shown.clock)
    _shown.running = work
    try:
        work.watcher.began(work)
        yield work
    except BaseException:
        work.stopped = True
        raise
    finally:
        _shown.running = outer
        work.watcher.ended(work)
