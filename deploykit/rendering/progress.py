"""Progress of long work: functions report it, and a watcher shows it."""

import importlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from deploykit.transforms.common.messages import escaped

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December")  # fmt: skip
_STEPS = ((60, 5), (600, 10), (3600, 30), (math.inf, 60))


def clock_time(seconds: float) -> str:
    """Return whole seconds that passed, such as 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def rounded_up(seconds: float) -> int:
    """Return the next more seconds that an estimate can claim to know: 5 of a minute, 10 of ten."""
    step = next(item for limit, item in _STEPS if seconds < limit)
    return (int(seconds) // step + 1) * step


def date(started: str) -> str:
    """Return a time in ISO format as people write it, `25 November 2026, 19:04 UTC`.

    A text that is not such a time is returned as it is.
    """
    try:
        result = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{result.day} {MONTHS[result.month - 1]} {result.year}, {result:%H:%M %Z}".rstrip()


OVERRUN = 0.1
"""Share of its time so far that a step which takes longer than expected still needs."""


@dataclass
class Work:
    """Long work: its steps, known from the start, and the parts of the running step.

    Calling it reports which part comes next, and how many the step has; with 0, the part goes on
    under another name. `done` grows from 0 to 1 and never falls.
    """

    title: str
    steps: tuple[str, ...]
    watcher: "Watcher"
    expected: dict[str, float] = field(default_factory=dict)
    """Seconds by step; empty if unknown."""
    clock: Callable[[], float] = time.monotonic
    number: int = 0
    """Number of the running step; 0: none has begun."""
    part: str = ""
    stopped: bool = False
    """Whether it ended with an error or an interrupt."""

    def __post_init__(self) -> None:
        self.thread = threading.get_ident()
        self._lock = threading.Lock()  # watchers have their own threads
        self._start = self._step_start = self.clock()
        self.parts = _Parts()
        self._done = 0.0
        self.expect(self.expected)

    def begin(self, step: str) -> "Work":
        """Begin one of the steps. Steps may be skipped, not repeated; those before it are done."""
        with self._lock:
            self.number = self.steps.index(step) + 1
            self.part, self.parts, self._step_start = "", _Parts(), self.clock()
        self.watcher.stepped(self)
        return self

    def __call__(self, part: str, count: int) -> None:
        """Report which part of the step begins now, of how many; 0: the part goes on."""
        with self._lock:
            self.part = part
            if count:
                self.parts = self.parts.next(count, self.clock() - self._step_start)
        self.watcher.moved(self)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Set the expected seconds of steps; 0 for those whose results already exist."""
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
        """Seconds that all of it is expected to take, more than have passed; None: unknown."""
        if not any(self.expected.values()):
            return None
        with self._lock:
            later = sum(self.expected.get(step, 0.0) for step in self.steps[self.number :])
            return self.elapsed + self._left_of_step() + later

    @property
    def done(self) -> float:
        """The share that is done: steps count by expected time, or equally if it is unknown."""
        with self._lock:
            weights = [self.expected.get(step, 0.0) for step in self.steps]
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
        said = ": ".join(item for item in (self.place or self.title, self.part) if item)
        return escaped(said)

    @property
    def times(self) -> str:
        """The time taken, and the expected total if known, such as `2:10 of about 4:00`."""
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

        Its share is that of the latest part; of the whole step if it has the name of the step.
        """
        with self._lock:
            is_all = self.step == inner.title
            names = ("" if is_all else inner.title, inner.step, inner.part)
            self.part = ": ".join(name for name in names if name)
            if is_all or since.count:
                self.parts = since.partly(inner.done, self.clock() - self._step_start)
        self.watcher.moved(self)

    @property
    def step(self) -> str:
        """The name of the running step; empty where none has begun."""
        return self.steps[self.number - 1] if self.number else ""

    def _left_of_step(self) -> float:
        """Return the seconds that the running step still needs."""
        passed = self.clock() - self._step_start
        if not self.number:
            return max(OVERRUN * passed, 1.0)
        whole = self.parts.seconds(self.expected.get(self.step, 0.0))
        return max(whole - passed, OVERRUN * passed)

    def _share_of_step(self) -> float:
        passed = self.clock() - self._step_start
        if not self.number or not self.expected.get(self.step) or not passed:
            return self.parts.share
        return max(self.parts.share, passed / (passed + self._left_of_step()))


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
        """Return this with a share of the running part done; without parts, of what is left."""
        whole = 1 / self.count if self.count else 1.0
        reached = min(self.share + share * min(whole, 1 - self.share), 1.0)
        first = at if self.first is None else self.first
        return _Parts(self.finished, self.count, reached, first, at)

    def seconds(self, expected: float) -> float:
        """Return the estimated seconds of the step, from the expected ones and its parts."""
        if self.first is None:
            return expected
        left = 1 - self.share
        return self.at + left * (left * max(expected - self.first, 0.0) + self.at - self.first)


class Watcher:
    """Shows work to people; this one shows nothing."""

    def began(self, work: Work) -> None:
        """Note that work began."""
        self.moved(work)

    def stepped(self, work: Work) -> None:
        """Note that its next step began."""
        self.moved(work)

    def moved(self, work: Work) -> None:
        """Note that the next part of a step began."""

    def ended(self, work: Work) -> None:
        """Note that work ended, done or not."""


class _Within(Watcher):
    """Shows work inside other work as a part of it."""

    def __init__(self, outer: Work) -> None:
        self._outer, self._since, self._part = outer, outer.parts, outer.part

    def moved(self, work: Work) -> None:
        self._outer.shown_within(work, self._since)

    def ended(self, work: Work) -> None:
        self._outer(self._part, 0)


@dataclass
class _Shown:
    watcher: Watcher
    clock: Callable[[], float] = time.monotonic
    running: Work | None = None


_shown = _Shown(Watcher())


def watch_with(watcher: Watcher, clock: Callable[[], float] = time.monotonic) -> None:
    """Show all work of this process with a watcher from now on, timed by a clock."""
    _shown.watcher, _shown.clock = watcher, clock


def in_kernel() -> bool:
    """Return whether this process runs the cells of a notebook, without an import."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel" in sys.modules and hasattr(shell, "kernel")


def _watcher() -> Watcher:
    """Return the watcher; in a notebook that is the cell, unless another one is set."""
    if type(_shown.watcher) is Watcher and in_kernel():
        _shown.watcher = importlib.import_module("deploykit.rendering.notebook").Cell()
    return _shown.watcher


def unseen(title: str, *steps: str) -> Work:
    """Return work that is not shown."""
    return Work(title, steps, Watcher())


@contextmanager
def working(title: str, *steps: str, expected: Mapping[str, float] | None = None) -> Iterator[Work]:
    """Yield work of this title, which takes reports of what is done.

    Inside other work it shows as a part of the running step; in another thread than other work it
    is not shown. `expected` has seconds by step.
    """
    outer = _shown.running
    if outer is not None and outer.thread != threading.get_ident():
        yield unseen(title, *steps)
        return
    watcher = _watcher() if outer is None else _Within(outer)
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
