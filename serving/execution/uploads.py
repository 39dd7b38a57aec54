"""Limits the memory of requests that are being received, and returns memory to the kernel after
large or rejected ones.
"""

import threading
import time
from collections.abc import Callable

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.runtime.memory import give_back

_LARGE = 1 << 20  # bytes
_AT_LEAST = 4 << 10  # minimum memory of a rejected request
_PAUSE = 2.0  # many requests end meanwhile and share one call of `give_back`


class SpentMemory:
    """Returns memory to the kernel soon after large requests, in its own thread."""

    def __init__(self, give_back: Callable[[], None] = give_back, pause: float = _PAUSE) -> None:
        """Call `give_back` at most once per `pause` seconds, and always after the last request."""
        self._give_back, self._pause = give_back, pause
        self._due = threading.Event()
        self._lock = threading.Lock()
        self._noted = 0
        self._thread: threading.Thread | None = None

    def note(self, size: int | None, refused: bool = False) -> None:
        """Record the end of a request of `size` bytes; this is cheap.

        Large requests always count. Small ones count only if they were rejected, and only in sum.
        None: the number of received bytes is unknown.
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
"""The instance of this process. Call `spent.note(size, refused)` at the end of each request."""


SMALL = 1 << 20
"""Bytes; an upload of up to this size may also use the reserved capacity."""
PACE = 1 << 20
"""Bytes per second; a slower upload may be cancelled."""
_PATIENCE = 1.0  # seconds before an upload can count as slow
_RESERVE = 8  # this fraction of the capacity is reserved for small uploads
_ROOM_FOR = 4  # capacity in requests of the maximum size
_SMALLEST = 64 << 20
_STEP = 64 << 10  # bytes; claims grow in these steps, so the limit is checked no more often


class Upload:
    """A request that is being received, or has been received and is in use."""

    def __init__(
        self, among: "Uploads", declared: int, since: float, end: Callable[[], None]
    ) -> None:
        """Start an upload of `declared` bytes; `end` is called to cancel it."""
        self.among = among
        self.claim = declared
        """Bytes counted against the limit."""
        self.held = 0
        self.ended = False
        """Whether it was cancelled to free memory."""
        self.end = end
        self._since = since
        self._whole = False

    def take(self, size: int) -> None:
        """Add received bytes. ServingError: this upload was cancelled, or the limit is reached."""
        self.among.take(self, size)

    def complete(self) -> None:
        """Mark the request as complete: it waits only for the server and is not slow any more."""
        self._whole = True
        self.claim = self.held

    def close(self) -> None:
        """Record that its bytes were released."""
        self.among.forget(self)

    def age(self, now: float) -> float:
        """Return the seconds since it started."""
        return now - self._since

    def slow(self, now: float) -> bool:
        """Return whether it may be cancelled."""
        age = self.age(now)
        return not (self._whole or self.ended) and age > _PATIENCE and self.held < PACE * age


class Uploads:
    """All uploads of a server, over gRPC and REST, and their memory limit."""

    def __init__(self, largest: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Set the limit to four times `largest`, the maximum request size in bytes, or 64 MiB."""
        self.size = max(_ROOM_FOR * largest, _SMALLEST)
        self._clock = clock
        self._lock = threading.Lock()
        self._all: set[Upload] = set()

    def begin(self, declared: int | None, end: Callable[[], None]) -> Upload:
        """Admit an upload before its bytes are read. `declared` None: its size is unknown.

        `end` may be called in another thread, to cancel the upload if it is slow.
        ServingError: the other uploads use too much memory.
        """
        upload = Upload(self, _STEP if declared is None else declared, self._clock(), end)
        with self._lock:
            self._make_room(upload.claim)
            self._all.add(upload)
        return upload

    def take(self, upload: Upload, size: int) -> None:
        """Implement `Upload.take`."""
        held = upload.held + size
        with self._lock:
            if upload.ended:
                raise refusal()
            if held > upload.claim:
                self._all.discard(upload)  # an upload must not cancel itself
                try:
                    self._make_room(_stepped(held))
                finally:
                    self._all.add(upload)
                upload.claim = _stepped(held)
            upload.held = held

    def forget(self, upload: Upload) -> None:
        """Implement `Upload.close`."""
        with self._lock:
            result = upload in self._all
            self._all.discard(upload)
        if result:
            spent.note(upload.held, refused=upload.ended)

    @property
    def held(self) -> int:
        """The bytes in memory now."""
        with self._lock:
            return sum(item.held for item in self._all)

    def _make_room(self, claim: int) -> None:
        """Cancel slow uploads, those with the largest bytes times age first, until `claim` fits.

        ServingError: that would not free enough memory.
        """
        room = self.size if claim <= SMALL else self.size - self.size // _RESERVE
        over = self._claimed() + claim - room
        if over <= 0:
            return
        now = self._clock()
        slow = [item for item in self._all if item.slow(now)]
        for item in slow:
            if item.claim > SMALL:
                item.claim = _stepped(item.held)
        over = self._claimed() + claim - room
        if sum(item.claim for item in slow) < over:
            raise refusal()
        slow.sort(key=lambda entry: entry.claim * entry.age(now))
        while over > 0:
            upload = slow.pop()
            over -= upload.claim
            upload.claim, upload.ended = 0, True
            upload.end()

    def _claimed(self) -> int:
        return sum(item.claim for item in self._all)


def _stepped(size: int) -> int:
    return -(-size // _STEP) * _STEP


def refusal() -> ServingError:
    """Return the error for an upload that exceeds the memory limit."""
    return ServingError("RESOURCE_EXHAUSTED", "uploads-full")
