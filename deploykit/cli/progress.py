"""Long work as people see it: a bar on a terminal, lines elsewhere."""

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from deploykit.text.progress import Work
from deploykit.text.tables import shortened

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

QUIET_SECONDS = 2.0  # what ends sooner needs no lines
EVERY_SECONDS = 60.0


def watcher() -> "Bar | Lines":
    """Return what suits stderr."""
    return Bar() if sys.stderr.isatty() else Lines()


class Bar:
    """One bar for all steps, from left to right once, behind what is done and how long it takes."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def began(self, work: Work) -> None:
        """Draw an empty bar."""
        from rich.console import Console

        self._bar = _progress(work, Console(stderr=True))
        self._task = self._bar.add_task(work.title, total=None)
        self._bar.start()

    def stepped(self, work: Work) -> None:
        """Name the step."""
        self.moved(work)

    def moved(self, work: Work) -> None:
        """Fill the bar as far as the work is done."""
        if self._bar is not None:
            total = 1.0 if work.done or work.number else None
            self._bar.update(self._task, completed=work.done, total=total)

    def ended(self, work: Work) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _progress(work: Work, console: "Console") -> "Progress":
    """Return a display whose text follows the clock, and gives way to nothing but the width."""
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class LineColumn(ProgressColumn):
        """What is done and the times, drawn anew each time; names are not read as markup."""

        def render(self, task: Task) -> Text:
            task.completed = work.done
            times = f"  {work.times}"
            width = console.width - len(times) - 10
            return Text(shortened(work.said, max(width, 20)) + times, end="")

    column = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        LineColumn(column), BarColumn(None), console=console, transient=True, expand=False
    )


class Lines:
    """A line on stderr for each step and for each minute, once the work has taken a while."""

    def __init__(self, timer: Callable[..., threading.Timer] = threading.Timer) -> None:
        self._timer: threading.Timer | None = None
        self._new_timer = timer

    def began(self, work: Work) -> None:
        """Start the clock."""
        self._said, self._minute = "", 0
        self._tick(work, QUIET_SECONDS)

    def stepped(self, work: Work) -> None:
        """Say which step begins."""
        if work.elapsed >= QUIET_SECONDS:
            self._say(work)

    def moved(self, work: Work) -> None:
        """Keep quiet until the minute is over."""

    def ended(self, work: Work) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, work: Work, seconds: float) -> None:
        self._timer = self._new_timer(seconds, self._at_tick, [work])
        self._timer.daemon = True
        self._timer.start()

    def _at_tick(self, work: Work) -> None:
        if self._timer is None:
            return
        minute = int(work.elapsed // EVERY_SECONDS)
        if minute > self._minute or (work.place and work.place != self._said):
            self._say(work)
        self._minute = minute
        self._tick(work, max((minute + 1) * EVERY_SECONDS - work.elapsed, 0.1))

    def _say(self, work: Work) -> None:
        self._said = work.place
        print(f"deploykit: {work.line}", file=sys.stderr, flush=True)
