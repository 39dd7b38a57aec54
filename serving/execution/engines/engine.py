"""The interface of an engine: it maps input arrays to output arrays within a deadline."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.engines.engines import AUTO, TENSORFLOW
from deploykit.transforms.engines.packages import how_to_install
from deploykit.transforms.ir.tensors import Array

HERE, ALL = 0, -1
"""Special slots. HERE: run in the calling thread, without a deadline. ALL: use the threads of all
slots, which are idle; for engines that spread a request."""


@dataclass(frozen=True)
class Loading:
    """The options of loading a version."""

    intra_op: int = 1
    """Threads per op. 1, with one concurrent request per core, has the highest throughput."""
    inter_op: int = 0
    """Concurrent ops; 0: one per core, but the ops of a short request run sequentially in one
    thread; -1: those of every request do."""
    slots: int = 0
    """Concurrent requests, each in a thread that all models share."""
    allow_ops: tuple[str, ...] = ()
    """Ops with effects outside the model that are allowed."""
    engine: str = AUTO
    """AUTO, or one of `ENGINES`."""
    tells: bool = True
    """Whether to log warnings about missing engines; with several workers only one logs them."""


class Engine(Protocol):
    """Runs signatures of a version. Several threads may call `compute` concurrently."""

    name: str
    """One of `ENGINES`."""
    version: str
    spreads: bool
    """Whether it can spread one request over all slots."""
    hands_over: bool
    """Whether other threads than the calling one run the request."""
    any_shape: frozenset[str]
    """The input tensors that accept any shape, regardless of their signature."""
    needs_rows: bool
    """Whether it cannot run an empty batch."""

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """Return the outputs by alias, or more. In a slot, it ends after `seconds`, if given.

        ServingError: the engine rejects the arrays, or the deadline passes.
        """
        ...

    def close(self) -> None:
        """Release all memory. No thread may use it any more."""
        ...


def reason() -> str:
    """Return why a signature is not available, and which extra installs TensorFlow."""
    return f"needs TensorFlow. {how_to_install(TENSORFLOW)}"


class MissingEngine:
    """Replaces a missing TensorFlow, next to an engine for the version's other signatures."""

    name = TENSORFLOW
    version = ""
    spreads = hands_over = needs_rows = False
    any_shape: frozenset[str] = frozenset()

    def compute(self, signature: str, *_: Any, **__: Any) -> NoReturn:
        """Raise ServingError FAILED_PRECONDITION, with the extra that installs TensorFlow."""
        raise ServingError(
            "FAILED_PRECONDITION", "signature-needs-engine", signature=signature, reason=reason()
        )

    def close(self) -> None:
        """Do nothing: it uses no memory."""


_AGAIN = 0.01
"""Seconds between attempts to end a computation that had not started yet."""


class Deadlines:
    """Ends computations at their deadlines, in one thread."""

    def __init__(self) -> None:
        """Start without a thread."""
        self._all: set[Deadline] = set()
        self._changed = threading.Condition()
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def add(self, deadline: "Deadline") -> None:
        """Watch a computation."""
        with self._changed:
            self._all.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="deadlines")
                self._thread.start()
            elif deadline.due < self._wakes:
                self._changed.notify()

    def remove(self, deadline: "Deadline") -> None:
        """Stop watching a computation: it is not ended from now on."""
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
"""The instance of this process."""


class Deadline:
    """The end of a computation, as a time of `time.monotonic` in seconds."""

    def __init__(self, seconds: float | None, among: Deadlines = deadlines) -> None:
        """Start the countdown; None: no limit."""
        self.due = math.inf if seconds is None else time.monotonic() + seconds
        self.over = False
        """Whether the deadline has passed."""
        self.end: Callable[[], object] = bool
        self._among = among

    @contextmanager
    def watch(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` in another thread, maybe repeatedly, if the deadline passes in the block."""
        if self.due == math.inf:
            yield
            return
        self.end = end
        self._among.add(self)
        try:
            yield
        finally:
            self._among.remove(self)
