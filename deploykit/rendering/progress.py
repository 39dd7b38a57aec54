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
    """Round estimated seconds up to a multiple of 5 (below one minute), 10, 30 or 60."""
    step = next(item for limit, item in _STEPS if seconds < limit)
    return (int(seconds) // step + 1) * step


def date(started: str) -> str:
    """Return an ISO time as text, such as `25 November 2026, 19:04 UTC`.

    Any other text is returned unchanged.
    """
    try:
        result = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{result.day} {MONTHS[result.month - 1]} {result.year}, {result:%H:%M %Z}".rstrip()


OVERRUN = 0.1
"""The estimated remaining share of the elapsed time, for a step that takes longer than expected."""


@dataclass
class Work:
    """Long work with steps that are known from the start, and parts of the running step.

    Calling it reports the next part and the number of parts; 0 only renames the running part.
    `done` increases from 0 to 1 and never decreases.
    """

    title: str
    steps: tuple[str, ...]
    watcher: "Watcher"
    expected: dict[str, float] = field(default_factory=dict)
    """The expected seconds by step; empty if unknown."""
    clock: Callable[[], float] = time.monotonic
    number: int = 0
    """The number of the running step; 0 if none has started."""
    part: str = ""
    stopped: bool = False
    """Whether the work ended with an error or an interrupt."""

    def __post_init__(self) -> None:
        self.thread = threading.get_ident()
        self._lock = threading.Lock()  # watchers have their own threads
        self._start = self._step_start = self.clock()
        self.parts = _Parts()
        self._done = 0.0
        self.expect(self.expected)

    def begin(self, step: str) -> "Work":
        """Start a step; the steps before it are done. Steps may be skipped but not repeated."""
        with self._lock:
            self.number = self.steps.index(step) + 1
            self.part, self.parts, self._step_start = "", _Parts(), self.clock()
        self.watcher.stepped(self)
        return self

    def __call__(self, part: str, count: int) -> None:
        """Report the next part of the step and the number of parts; 0 only renames the part."""
        with self._lock:
            self.part = part
            if count:
                self.parts = self.parts.next(count, self.clock() - self._step_start)
        self.watcher.moved(self)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Set the expected seconds of steps; 0 for steps whose results already exist."""
        if unknown := set(seconds) - set(self.steps):
            raise ValueError(f"{self.title} has no step {min(unknown)}")
        with self._lock:
            self.expected = {**self.expected, **{k: max(v, 0.0) for k, v in seconds.items()}}

    @property
    def elapsed(self) -> float:
        """The seconds since the work started."""
        return self.clock() - self._start

    @property
    def total(self) -> float | None:
        """The expected total seconds, more than the elapsed ones; None if unknown."""
        if not any(self.expected.values()):
            return None
        with self._lock:
            later = sum(self.expected.get(step, 0.0) for step in self.steps[self.number :])
            return self.elapsed + self._left_of_step() + later

    @property
    def done(self) -> float:
        """The completed share; steps are weighted by expected time, or equally if unknown."""
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
        """The number and name of the running step, such as `[4/6] time`; empty without steps."""
        if not self.steps or not self.number:
            return ""
        return f"[{self.number}/{len(self.steps)}] {self.steps[self.number - 1]}"

    @property
    def said(self) -> str:
        """The running step and part, such as `[4/6] time: load model.pb`."""
        said = ": ".join(item for item in (self.place or self.title, self.part) if item)
        return escaped(said)

    @property
    def times(self) -> str:
        """The elapsed time, and the expected total if known, such as `2:10 of about 4:00`."""
        elapsed, total = self.elapsed, self.total
        if total is None:
            return clock_time(elapsed)
        return f"{clock_time(elapsed)} of about {clock_time(rounded_up(total))}"

    @property
    def line(self) -> str:
        """Step, part and times, such as `[4/6] time: load model.pb  2:10 of about 4:00`."""
        return f"{self.said}  {self.times}"

    def shown_within(self, inner: "Work", since: "_Parts") -> None:
        """Show work inside this one as a part of the running step.

        It counts as the latest part, or as the whole step if it has the name of the step.
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
        """The name of the running step; empty if none has started."""
        return self.steps[self.number - 1] if self.number else ""

    def _left_of_step(self) -> float:
        """Return the estimated remaining seconds of the running step."""
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
    """The finished parts of a step, and their times."""

    finished: int = -1
    count: int = 0
    share: float = 0.0
    first: float | None = None
    """The seconds from the start of the step to the start of its first part."""
    at: float = 0.0
    """The seconds from the start of the step to the last update of its share."""

    def next(self, count: int, at: float) -> "_Parts":
        """Return the state after the next part has started."""
        finished = self.finished + 1
        reached = max(self.share, min(finished / count, 1.0))
        return _Parts(finished, count, reached, at if self.first is None else self.first, at)

    def partly(self, share: float, at: float) -> "_Parts":
        """Return the state with a share of the running part done; without parts, of the rest."""
        whole = 1 / self.count if self.count else 1.0
        reached = min(self.share + share * min(whole, 1 - self.share), 1.0)
        first = at if self.first is None else self.first
        return _Parts(self.finished, self.count, reached, first, at)

    def seconds(self, expected: float) -> float:
        """Return the estimated seconds of the step, from the expected seconds and its parts."""
        if self.first is None:
            return expected
        left = 1 - self.share
        return self.at + left * (left * max(expected - self.first, 0.0) + self.at - self.first)


class Watcher:
    """Displays the progress of work; this base class displays nothing."""

    def began(self, work: Work) -> None:
        """Handle the start of work."""
        self.moved(work)

    def stepped(self, work: Work) -> None:
        """Handle the start of the next step."""
        self.moved(work)

    def moved(self, work: Work) -> None:
        """Handle the start of the next part of a step."""

    def ended(self, work: Work) -> None:
        """Handle the end of work, finished or not."""


class _Within(Watcher):
    """Displays work inside other work as a part of it."""

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
    """Use a watcher and a clock for all later work of this process."""
    _shown.watcher, _shown.clock = watcher, clock


def in_kernel() -> bool:
    """Return whether this process is a notebook kernel, without importing anything."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel" in sys.modules and hasattr(shell, "kernel")


def _watcher() -> Watcher:
    """Return the watcher; by default, in a notebook, the output of the cell."""
    if type(_shown.watcher) is Watcher and in_kernel():
        _shown.watcher = importlib.import_module("deploykit.rendering.notebook").Cell()
    return _shown.watcher


def unseen(title: str, *steps: str) -> Work:
    """Return work that is not displayed."""
    return Work(title, steps, Watcher())


@contextmanager
def working(title: str, *steps: str, expected: Mapping[str, float] | None = None) -> Iterator[Work]:
    """Yield work with a title, to which the caller reports progress.

    Inside other work, it is displayed as a part of the running step. It is not displayed if other
    work runs in another thread. `expected` contains the seconds by step.
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
