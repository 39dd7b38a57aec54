"""Ends computations whose time is over: one thread for all, which sleeps until the next is due."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AGAIN = 0.01
"""Seconds: what had not begun when it was ended is ended again."""


class Deadlines:
    """The computations that have a deadline."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._all: set[Deadline] = set()
        self._changed = threading.Condition()
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def add(self, deadline: "Deadline") -> None:
        """Watch over a computation."""
        with self._changed:
            self._all.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="deadlines")
                self._thread.start()
            elif deadline.due < self._wakes:
                self._changed.notify()

    def remove(self, deadline: "Deadline") -> None:
        """Forget a computation: nobody ends it from now on."""
        with self._changed:
            self._all.discard(deadline)

    def _run(self) -> None:
        with self._changed:
            while True:
                now, self._wakes = time.monotonic(), math.inf
                for each in self._all:
                    if each.due <= now:
                        each.over = True
                        each.end()
                    self._wakes = min(self._wakes, max(each.due, now + _AGAIN))
                rest = self._wakes - now
                self._changed.wait(None if rest == math.inf else min(rest, threading.TIMEOUT_MAX))


deadlines = Deadlines()
"""Of this process."""


class Deadline:
    """When a computation is to end, in the seconds of `time.monotonic`."""

    def __init__(self, seconds: float | None, among: Deadlines = deadlines) -> None:
        """Begin to count; None: it may take any time."""
        self.due = math.inf if seconds is None else time.monotonic() + seconds
        self.over = False
        """Whether it was ended."""
        self.end: Callable[[], object] = bool
        self._among = among

    @contextmanager
    def watch(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` in another thread when time is over and the block lasts; maybe repeatedly."""
        if self.due == math.inf:
            yield
            return
        self.end = end
        self._among.add(self)
        try:
            yield
        finally:
            self._among.remove(self)
