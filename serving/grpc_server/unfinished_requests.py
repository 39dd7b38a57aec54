"""What requests hold that gRPC has not read to their end; only the size of the process shows it.

gRPC's core keeps what has come of the request of every call that waits for one, up to the largest
that is taken, and says nothing of it before all of it is there.
"""

import threading
import time
from collections.abc import Callable, Collection
from math import ceil
from operator import itemgetter
from pathlib import Path
from resource import getpagesize

from deploykit.serving.grpc_server.threads import LONG, CallThreads
from deploykit.transforms.core.running.free_memory import give_back

_FEW = 2  # calls that may wait for long, whatever they hold
_ROOM_FOR = 2  # of the largest requests: what others may hold beside those few
_SMALLEST = 256 << 20  # bytes: a server grows by less for many reasons
_PAUSE = 0.1  # seconds between two looks
_CALM = 3.0  # seconds after a crowd, until freed memory is back with the system


class UnfinishedRequests:
    """Ends calls that wait long for their request while the process is too large for that.

    A look costs some 20 microseconds; there is none while no call waits.
    """

    def __init__(
        self,
        pools: Collection[CallThreads],
        largest: int,
        resident: Callable[[], int] | None = None,
    ) -> None:
        """Look after the calls of some threads, whose requests have so many bytes at most."""
        self._pools = pools
        self._room = max(_ROOM_FOR * largest, _SMALLEST)
        self._resident = resident or _resident
        self._usual = self._resident()
        self._crowded = -_CALM  # when there was a crowd
        self._waits = threading.Event()
        self._closed = False
        for each in pools:
            each.waits = self._waits

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        threading.Thread(target=self._run, daemon=True, name="unfinished requests").start()

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._waits.set()

    def look(self, now: float) -> None:
        """End the calls that have waited longest, some of them, if the process has grown too much.

        Its usual size is the one that it had while no more than a few waited for long.
        """
        waiting = sorted(
            ((since, each, pool) for pool in self._pools for each, since in pool.waiting(LONG)),
            key=itemgetter(0),
        )
        if len(waiting) <= _FEW:
            if now - self._crowded >= _CALM:
                self._usual = self._resident()
            return
        self._crowded = now
        if self._grown() > self._room:
            give_back()
            grown = self._grown()
            if grown > self._room:
                part = ceil((1 - self._room / grown) * len(waiting))  # as if all held the same
                for _, call, pool in waiting[:-_FEW][:part]:
                    pool.end(call)

    def _grown(self) -> int:
        return self._resident() - self._usual

    def _run(self) -> None:
        while self._waits.wait() and not self._closed:
            self._waits.clear()
            self.look(time.monotonic())
            if any(each.waiting() for each in self._pools):
                self._waits.set()
            time.sleep(_PAUSE)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
