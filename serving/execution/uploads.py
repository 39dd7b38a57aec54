"""Memory of requests that are being received, limited, and returned to the kernel after large or
refused ones.
"""

import threading
import time
from collections.abc import Callable

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.runtime.memory import give_back

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


SMALL = 1 << 20
"""Bytes of an upload that may use the whole of the bound."""
PACE = 1 << 20
"""Bytes a second: an upload that brings less is slow."""
_PATIENCE = 1.0  # seconds that an upload has before it can be slow
_RESERVE = 8  # one part in so many is for small uploads alone
_ROOM_FOR = 4  # of the largest requests
_SMALLEST = 64 << 20
_STEP = 64 << 10  # bytes: claims grow by so many, and are looked at no more often


class Upload:
    """A request that is on its way, or read and in use."""

    def __init__(
        self, among: "Uploads", declared: int, since: float, end: Callable[[], None]
    ) -> None:
        """Begin one that says to have so many bytes; `end` is called to let it make room."""
        self.among = among
        self.claim = declared
        """Bytes to reckon with."""
        self.held = 0
        self.ended = False
        """Whether it had to make room."""
        self.end = end
        self._since = since
        self._whole = False

    def take(self, size: int) -> None:
        """Let so many bytes more in. ServingError: it has to make room itself."""
        self.among.take(self, size)

    def complete(self) -> None:
        """Take note that all of it is there: it waits for nobody but the server."""
        self._whole = True
        self.claim = self.held

    def close(self) -> None:
        """Take note that its bytes are gone."""
        self.among.forget(self)

    def age(self, now: float) -> float:
        """Return the seconds since it began."""
        return now - self._since

    def slow(self, now: float) -> bool:
        """Say whether it may have to make room."""
        age = self.age(now)
        return not (self._whole or self.ended) and age > _PATIENCE and self.held < PACE * age


class Uploads:
    """The uploads of a server, over gRPC and REST together, and the bytes that they may hold."""

    def __init__(self, largest: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Let them hold four times the largest request that is taken, in bytes, or 64 MiB."""
        self.size = max(_ROOM_FOR * largest, _SMALLEST)
        self._clock = clock
        self._lock = threading.Lock()
        self._all: set[Upload] = set()

    def begin(self, declared: int | None, end: Callable[[], None]) -> Upload:
        """Let an upload in before its bytes are read; None: it does not say how many.

        `end` is called, maybe in another thread, where it has to make room: it is slow then.
        ServingError: the others hold too much.
        """
        upload = Upload(self, _STEP if declared is None else declared, self._clock(), end)
        with self._lock:
            self._make_room(upload.claim)
            self._all.add(upload)
        return upload

    def take(self, upload: Upload, size: int) -> None:
        """As its `take`."""
        held = upload.held + size
        with self._lock:
            if upload.ended:
                raise refusal()
            if held > upload.claim:
                self._all.discard(upload)  # it makes no room for itself
                try:
                    self._make_room(_stepped(held))
                finally:
                    self._all.add(upload)
                upload.claim = _stepped(held)
            upload.held = held

    def forget(self, upload: Upload) -> None:
        """As its `close`."""
        with self._lock:
            result = upload in self._all
            self._all.discard(upload)
        if result:
            spent.note(upload.held, refused=upload.ended)

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        with self._lock:
            return sum(item.held for item in self._all)

    def _make_room(self, claim: int) -> None:
        """End slow uploads, those that hold most for longest first, until there is room.

        ServingError: there is not enough that way.
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
            over -= self._end(slow.pop())

    def _claimed(self) -> int:
        return sum(item.claim for item in self._all)

    def _end(self, upload: Upload) -> int:
        """End one; return what it claimed."""
        claim, upload.claim = upload.claim, 0
        upload.ended = True
        upload.end()
        return claim


def _stepped(size: int) -> int:
    return -(-size // _STEP) * _STEP


def refusal() -> ServingError:
    """Return what an upload is told for which there is no room."""
    return ServingError("RESOURCE_EXHAUSTED", "uploads-full")
