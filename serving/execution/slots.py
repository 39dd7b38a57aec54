"""The few threads that compute: a call takes one, or, of those that are idle, one for each part.

They stay, and are not the call's own: oneDNN keeps for each thread what it prepared.
"""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from deploykit.serving.execution.engines.engine import HERE
from deploykit.serving.protocol.errors import ServingError

OVERDUE = "the deadline passed before the model ran"
ALONE_SECONDS = 1.0
"""How long no two calls met before one may take several slots: those that come in bursts lose."""
T = TypeVar("T")


class Slots:
    """Threads that compute one thing each at a time; what comes when none is idle waits."""

    def __init__(self, count: int) -> None:
        """Start none yet."""
        self.count = count
        self._own, numbers = threading.local(), itertools.count(1)

        def begin() -> None:
            self._own.slot = next(numbers)

        self._pool = ThreadPoolExecutor(count, "compute", begin)
        self._taken = 0  # also by what waits
        self._met = float("-inf")  # when a call last found another one
        self._lock = threading.Lock()

    def here(self) -> int:
        """Return the number of the slot that this thread is, from 1, or HERE."""
        slot: int = getattr(self._own, "slot", HERE)
        return slot

    def run(self, work: Callable[[], T], left: float | None) -> T:
        """Return what `work` does in a slot.

        ServingError: it could not begin within `left` seconds.
        """
        with self._lock:
            if self._taken:
                self._met = time.monotonic()
            self._taken += 1
        (future,) = self._begun([work], 1)
        try:
            return future.result(left)
        except TimeoutError:
            if future.cancel():
                self._free(1)
                raise ServingError("DEADLINE_EXCEEDED", OVERDUE) from None
            return future.result()  # it has begun, and uses the model of its lease
        finally:
            del future  # it knows its error, whose traceback knows this frame and the arrays

    def run_at_once(
        self, most: int, split: Callable[[int], Sequence[Callable[[], T]]]
    ) -> list[T] | None:
        """Return what works do side by side, as many as slots are idle, `most` at most, or None.

        `split` makes so many works. None: fewer than two slots are idle, or calls met just now.
        All works have ended when this returns, or raises what the first of them raised that failed.
        """
        with self._lock:
            count = min(most, self.count - self._taken)
            if count < 2 or time.monotonic() - self._met < ALONE_SECONDS:
                return None
            self._taken += count
        found, future = [], None
        try:
            works = split(count)
        except BaseException:
            self._free(count)
            raise
        futures = self._begun(works, count)
        wait(futures)
        try:
            for future in futures:
                found.append(future.result())
            return found
        finally:
            del future, futures

    def run_alone(self, work: Callable[[], T]) -> T | None:
        """Return what `work` does while it has all slots, or None: not all of them are idle.

        Nor does it where calls met just now. A call that comes meanwhile does not wait for it.
        """
        with self._lock:
            if self._taken or time.monotonic() - self._met < ALONE_SECONDS:
                return None
            self._taken = 1
        (future,) = self._begun([work], 1)
        try:
            return future.result()
        finally:
            del future

    def _begun(self, works: Sequence[Callable[[], T]], count: int) -> list["Future[T]"]:
        """Hand works to so many threads, which are counted already; where one fails, no other."""
        futures: list[Future[T]] = []
        try:
            for work in works:
                futures.append(self._pool.submit(self._counted, work))
            return futures
        except BaseException:
            self._free(count - len(futures))
            wait(futures)
            raise

    def _counted(self, work: Callable[[], T]) -> T:
        """Do a work, and be idle before anybody learns that it is done."""
        try:
            return work()
        finally:
            self._free(1)

    def _free(self, count: int) -> None:
        with self._lock:
            self._taken -= count
