"""How far long work has come. Functions of the API say it; what shows it is set from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


@dataclass
class Work:
    """A piece of long work: its steps, known from the start, and the parts of the running one.

    Calling it says which part comes next, and how many the step has; with 0, it only says what
    happens now. `done` grows from 0 to 1 and never falls.
    """

    title: str
    steps: tuple[str, ...]
    watcher: "Watcher"
    number: int = 0
    """Of the running step; 0: none has begun."""
    part: str = ""
    done: float = 0.0
    _parts_done: int = -1

    def begin(self, step: str) -> "Work":
        """Begin a step that was named at the start; steps may be left out, but none comes again."""
        self.number = self.steps.index(step) + 1
        self.part, self._parts_done = "", -1
        self._reach(0)
        self.watcher.stepped(self)
        return self

    def __call__(self, part: str, count: int) -> None:
        """Say which part of the step begins now, of how many; 0: the part goes on."""
        self.part = part
        if count:
            self._parts_done += 1
            self._reach(min(self._parts_done / count, 1))
        self.watcher.moved(self)

    @property
    def place(self) -> str:
        """The running step among all, such as `step 4 of 6: time`; empty where there are none."""
        if not self.steps or not self.number:
            return ""
        return f"step {self.number} of {len(self.steps)}: {self.steps[self.number - 1]}"

    def _reach(self, share: float) -> None:
        """Take note of the share of the running step that is done."""
        total = max(len(self.steps), 1)
        self.done = max(self.done, (max(self.number - 1, 0) + share) / total)


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


@dataclass
class _Shown:
    watcher: Watcher
    running: Work | None = None


_shown = _Shown(_Nobody())


def watch_with(watcher: Watcher) -> None:
    """Let this watcher see all work of this process from now on."""
    _shown.watcher = watcher


def unseen(title: str, *steps: str) -> Work:
    """Return work that nobody watches."""
    return Work(title, steps, _Nobody())


@contextmanager
def working(title: str, *steps: str) -> Iterator[Work]:
    """Yield work of this title, to be told what is done of it.

    Within other work it is not seen on its own: that one goes on.
    """
    if _shown.running is not None:
        yield unseen(title, *steps)
        return
    work = _shown.running = Work(title, steps, _shown.watcher)
    work.watcher.began(work)
    try:
        yield work
    finally:
        _shown.running = None
        work.watcher.ended(work)
