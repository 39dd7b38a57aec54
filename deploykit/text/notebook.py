"""Long work in a notebook: one line in the cell's output, changed in place."""

import importlib
import threading
from typing import Any

from deploykit.text.durations import clock_time
from deploykit.text.progress import Watcher, Work

QUIET_SECONDS = 1.0  # shorter work shows nothing
EVERY_SECONDS = 1.0  # between updates of the browser


class Cell(Watcher):
    """A line in the output of the running cell: what a terminal would show."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._turn = threading.Lock()  # no update after the last line
        self._shown: Any = None

    def began(self, work: Work) -> None:
        """Show the line once the work has taken a while, and change it every second."""
        self._ended, self._shown = threading.Event(), None
        threading.Thread(
            target=self._follow, args=(work, self._ended), name="deploykit-progress", daemon=True
        ).start()

    def ended(self, work: Work) -> None:
        """Show how long it took, and where it stopped if it did."""
        with self._turn:
            self._ended.set()
        if self._shown is not None:
            end = f"{work.said}  stopped after" if work.stopped else f"{work.title}  done in"
            self._show(f"{end} {clock_time(work.elapsed)}")

    def _follow(self, work: Work, ended: threading.Event) -> None:
        ended.wait(QUIET_SECONDS)
        while not ended.wait(EVERY_SECONDS if self._shown is not None else 0):
            with self._turn:
                if not ended.is_set():
                    self._show(work.line)

    def _show(self, line: str) -> None:
        if self._shown is not None:
            self._shown.update({"text/plain": line}, raw=True)
            return
        display = importlib.import_module("IPython.display").display
        self._shown = display({"text/plain": line}, raw=True, display_id=True)
