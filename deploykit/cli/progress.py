"""Long work as people see it: a bar on a terminal, lines elsewhere."""

import sys
import threading
import time
from typing import TYPE_CHECKING

from deploykit.text.progress import Work

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0  # what ends sooner needs no lines
EVERY_SECONDS = 60.0


def watcher() -> "Bar | Lines":
    """Return what suits stderr."""
    return Bar() if sys.stderr.isatty() else Lines()


class Bar:
    """One bar for all steps, from left to right once."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def began(self, work: Work) -> None:
        """Draw an empty bar."""
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(work.title, total=None)
        self._bar.start()

    def stepped(self, work: Work) -> None:
        """Name the step."""
        self.moved(work)

    def moved(self, work: Work) -> None:
        """Fill the bar as far as the work is done, and name what is being done."""
        if self._bar is not None:
            said = ": ".join(each for each in (work.title, work.place, work.part) if each)
            total = 1.0 if work.done or work.number else None
            self._bar.update(self._task, completed=work.done, total=total, description=said)

    def ended(self, work: Work) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Lines:
    """A line on stderr for each step and for each minute, once the work has taken a while."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def began(self, work: Work) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self._said = ""
        self._tick(work, QUIET_SECONDS)

    def stepped(self, work: Work) -> None:
        """Say which step begins."""
        if time.monotonic() - self._start >= QUIET_SECONDS:
            self._say(work, work.place)

    def moved(self, work: Work) -> None:
        """Keep quiet until the minute is over."""

    def ended(self, work: Work) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, work: Work, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._at_tick, [work])
        self._timer.daemon = True
        self._timer.start()

    def _at_tick(self, work: Work) -> None:
        if self._timer is None:
            return
        minutes = (time.monotonic() - self._start) / 60
        if minutes * 60 < EVERY_SECONDS:  # the step that began while nothing was said yet
            if work.place and work.place != self._said:
                self._say(work, work.place)
            self._tick(work, max(EVERY_SECONDS - minutes * 60, 0.1))
            return
        said = ": ".join(each for each in (work.place, work.part) if each) or "running"
        self._say(work, f"{said} ({minutes:.0f} min so far, {100 * work.done:.0f} % of the steps)")
        self._tick(work, EVERY_SECONDS)

    def _say(self, work: Work, text: str) -> None:
        self._said = work.place
        print(f"deploykit: {work.title}: {text}", file=sys.stderr, flush=True)
