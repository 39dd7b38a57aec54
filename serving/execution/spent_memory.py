"""What large and refused requests took goes back to the kernel; allocators keep it otherwise."""

import threading
import time
from collections.abc import Callable

from deploykit.transforms.core.running.free_memory import give_back

_LARGE = 1 << 20  # bytes
_AT_LEAST = 4 << 10  # bytes that a refused call takes for itself, however small its request
_PAUSE = 2.0  # seconds: many calls end meanwhile, and all of them cost one look at the memory


class SpentMemory:
    """Gives memory back soon after calls that took much, in a thread of its own."""

    def __init__(self, give_back: Callable[[], None] = give_back, pause: float = _PAUSE) -> None:
        """Call `give_back` at most once a `pause`, in seconds, and always after the last call."""
        self._give_back, self._pause = give_back, pause
        self._due = threading.Event()
        self._lock = threading.Lock()
        self._noted = 0
        self._thread: threading.Thread | None = None

    def note(self, size: int | None, refused: bool = False) -> None:
        """Take note that a call is over whose request had so many bytes; it costs next to nothing.

        Large ones count always, small ones only where they were refused, and many of them. None:
        nobody knows how much of it came.
        """
        size = _LARGE if size is None else size
        if size < _LARGE and not refused:
            return
        with self._lock:
            self._noted += max(size, _AT_LEAST)
            if self._noted < _LARGE:
                return
            self._noted = 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="spent memory")
                self._thread.start()
        self._due.set()

    def _run(self) -> None:
        while self._due.wait():
            time.sleep(self._pause)
            self._due.clear()
            self._give_back()


spent = SpentMemory()
"""Of this process: `spent.note(size, refused)` at the end of a call, whatever came of it."""
