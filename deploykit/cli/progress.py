"""Progress of long work: a progress bar on a terminal, else lines."""

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from deploykit.rendering.progress import Watcher, Work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

QUIET_SECONDS = 2.0  # shorter work prints no lines
EVERY_SECONDS = 60.0


def watcher() -> Watcher:
    """Return a progress bar if stderr is a terminal, else a line printer."""
    return Bar() if sys.stderr.isatty() else Lines()


class Bar(Watcher):
    """A progress bar for all steps, after the name of the running part and the time."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def began(self, work: Work) -> None:
        """Draw an empty bar."""
        from rich.console import Console

        self._bar = _progress(work, Console(stderr=True))
        self._task = self._bar.add_task(work.title, total=None)
        self._bar.start()

    def moved(self, work: Work) -> None:
        """Show the completed share."""
        if self._bar is not None:
            total = 1.0 if work.done or work.number else None
            self._bar.update(self._task, completed=work.done, total=total)

    def ended(self, work: Work) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _progress(work: Work, console: "Console") -> "Progress":
    """Return a live display, which truncates the name of the part on a narrow terminal."""
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class PartColumn(ProgressColumn):
        """The running part, as plain text without markup."""

        def render(self, task: Task) -> Text:
            task.completed = work.done
            return Text(work.said, no_wrap=True, overflow="ellipsis")

    class TimeColumn(ProgressColumn):
        """The elapsed and the expected time."""

        def render(self, task: Task) -> Text:
            return Text(work.times)

    columns = (PartColumn(), TimeColumn(Column(no_wrap=True)), BarColumn(None))
    return Progress(*columns, console=console, transient=True, expand=False)


class Lines(Watcher):
    """Prints a line on stderr for each step and each minute, after a few seconds of work."""

    def __init__(self, timer: Callable[..., threading.Timer] = threading.Timer) -> None:
        self._timer: threading.Timer | None = None
        self._new_timer = timer

    def began(self, work: Work) -> None:
        """Start the timer."""
        self._said, self._minute = "", 0
        self._tick(work, QUIET_SECONDS)

    def stepped(self, work: Work) -> None:
        """Print the name of the step that starts."""
        if work.elapsed >= QUIET_SECONDS:
            self._say(work)

    def ended(self, work: Work) -> None:
        """Stop the timer."""
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
