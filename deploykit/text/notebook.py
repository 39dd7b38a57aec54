"""Long work in a notebook: one line in the cell's output, changed in place."""

import importlib
import sys
import threading
from typing import Any, Protocol

from deploykit.text.durations import clock_time

QUIET_SECONDS = 1.0  # what ends sooner shows nothing
EVERY_SECONDS = 1.0  # a browser is told so often, whatever happens meanwhile


class Told(Protocol):
    """What is known of work."""

    title: str
    stopped: bool

    @property
    def said(self) -> str:
        """What is being done."""

    @property
    def line(self) -> str:
        """What is being done, and how long it takes."""

    @property
    def elapsed(self) -> float:
        """Seconds that passed."""


def in_kernel() -> bool:
    """Return whether this process runs the cells of a notebook; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel" in sys.modules and hasattr(shell, "kernel")


class Cell:
    """A line in the output of the cell that runs: what a terminal would show."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._turn = threading.Lock()  # nothing is shown behind the last word
        self._shown: Any = None

    def began(self, work: Told) -> None:
        """Show the line once the work has taken a while, and change it every second."""
        self._ended, self._shown = threading.Event(), None
        threading.Thread(
            target=self._follow, args=(work, self._ended), name="deploykit-progress", daemon=True
        ).start()

    def stepped(self, work: Told) -> None:
        """Leave it to the next second."""

    def moved(self, work: Told) -> None:
        """Leave it to the next second."""

    def ended(self, work: Told) -> None:
        """Say how long it took, and where it stopped if it did, once and for all."""
        with self._turn:
            self._ended.set()
        if self._shown is not None:
            end = f"{work.said}  stopped after" if work.stopped else f"{work.title}  done in"
            self._shown.update({"text/plain": f"{end} {clock_time(work.elapsed)}"}, raw=True)

    def _follow(self, work: Told, ended: threading.Event) -> None:
        ended.wait(QUIET_SECONDS)
        while not ended.wait(EVERY_SECONDS if self._shown is not None else 0):
            with self._turn:
                if not ended.is_set():
                    self._show(work.line)

    def _show(self, line: str) -> None:
        shown = {"text/plain": line}
        if self._shown is None:
            display = importlib.import_module("IPython.display").display
            self._shown = display(shown, raw=True, display_id=True)
        else:
            self._shown.update(shown, raw=True)
