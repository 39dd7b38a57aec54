"""The interface of an engine: arrays that fit the signature in, arrays out, within a deadline."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.engines.engines import AUTO, TENSORFLOW
from deploykit.transforms.engines.packages import how_to_install
from deploykit.transforms.ir.tensors import Array

HERE, ALL = 0, -1
"""Instead of the number of a slot. HERE: the thread that calls, without handing anything over, and
nothing ends it early. ALL: the slots of all, as nobody else computes; for engines that spread."""


@dataclass(frozen=True)
class Loading:
    """How a version is loaded."""

    intra_op: int = 1
    """Threads inside an op. One, with as many calls at once as there are cores, answers most."""
    inter_op: int = 0
    """Ops at once; 0: as many as there are cores, but those of a short call one by one, in one
    thread; -1: so those of every call."""
    slots: int = 0
    """Calls that compute at once, each in a thread that all models share."""
    allow_ops: tuple[str, ...] = ()
    """Ops that may reach beyond the model."""
    engine: str = AUTO
    """AUTO, or one of `ENGINES`."""
    tells: bool = True
    """Whether to say what the machine lacks; of several workers one does."""


class Engine(Protocol):
    """What computes signatures of a version; `compute` may be called from many threads at once."""

    name: str
    """One of `ENGINES`."""
    version: str
    spreads: bool
    """Whether it can share out the work of one call over all slots."""
    hands_over: bool
    """Whether other threads compute than the one that calls."""
    any_shape: frozenset[str]
    """The input tensors that may come in any shape, whatever their signature says."""
    needs_rows: bool
    """Whether it cannot compute an empty batch."""

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """Return the outputs by alias, or more; a slot ends the call after `seconds`, if given.

        ServingError: it refuses the arrays, or time is over.
        """
        ...

    def close(self) -> None:
        """Give all memory back. Nobody may be calling it any more."""
        ...


def reason() -> str:
    """Return why a signature is refused, and which extra brings TensorFlow."""
    return f"needs TensorFlow. {how_to_install(TENSORFLOW)}"


class MissingEngine:
    """Stands for TensorFlow, beside an engine that runs the other signatures of a version."""

    name = TENSORFLOW
    version = ""
    spreads = False
    hands_over = False
    any_shape: frozenset[str] = frozenset()
    needs_rows = False

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> NoReturn:
        """Raise ServingError: FAILED_PRECONDITION, with the extra that brings TensorFlow."""
        raise ServingError(
            "FAILED_PRECONDITION", "signature-needs-engine", signature=signature, reason=reason()
        )

    def close(self) -> None:
        """Do nothing: there is no memory to give back."""


_AGAIN = 0.01
"""Seconds: what had not begun when it was ended is ended again."""


class Deadlines:
    """The computations that have a deadline."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._all: set[Deadline] = set()
        self._changed = threading.Condition()
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def add(self, deadline: "Deadline") -> None:
        """Watch over a computation."""
        with self._changed:
            self._all.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="deadlines")
                self._thread.start()
            elif deadline.due < self._wakes:
                self._changed.notify()

    def remove(self, deadline: "Deadline") -> None:
        """Forget a computation: nobody ends it from now on."""
        with self._changed:
            self._all.discard(deadline)

    def _run(self) -> None:
        with self._changed:
            while True:
                now, self._wakes = time.monotonic(), math.inf
                for item in self._all:
                    if item.due <= now:
                        item.over = True
                        item.end()
                    self._wakes = min(self._wakes, max(item.due, now + _AGAIN))
                rest = self._wakes - now
                self._changed.wait(None if rest == math.inf else min(rest, threading.TIMEOUT_MAX))


deadlines = Deadlines()
"""Of this process."""


class Deadline:
    """When a computation is to end, in the seconds of `time.monotonic`."""

    def __init__(self, seconds: float | None, among: Deadlines = deadlines) -> None:
        """Begin to count; None: it may take any time."""
        self.due = math.inf if seconds is None else time.monotonic() + seconds
        self.over = False
        """Whether it was ended."""
        self.end: Callable[[], object] = bool
        self._among = among

    @contextmanager
    def watch(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` in another thread when time is over and the block lasts; maybe repeatedly."""
        if self.due == math.inf:
            yield
            return
        self.end = end
        self._among.add(self)
        try:
            yield
        finally:
            self._among.remove(self)
