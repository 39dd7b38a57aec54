"""The threads that run requests: each takes one slot or several idle ones; very short requests
take none.
"""

import itertools
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from deploykit.serving.execution.engines.engine import HERE
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.ir.control_flow import CASE_OPS, CONTROL_FLOW_OPS, IF_OPS
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import Array

SECONDS = 0.001
_BRANCHING = CONTROL_FLOW_OPS | IF_OPS | CASE_OPS | {"While", "StatelessWhile", "For"}

Sizes = tuple[tuple[str, tuple[int, ...]], ...]


class QuickCalls:
    """Which requests of a model are short; thread-safe."""

    def __init__(self, meta: MetaGraphDef, unsteady: Iterable[str] = ()) -> None:
        """Start without measurements; requests of `unsteady` signatures never count as short."""
        graph = meta.graph_def
        bodies = (graph.node, *(function.node_def for function in graph.library.function))
        self._steady = not any(node.op in _BRANCHING for nodes in bodies for node in nodes)
        self._unsteady = frozenset(unsteady)
        self._largest: dict[str, Sizes] = {}  # sizes of the largest short request, by signature

    def include(self, signature: str, feeds: Mapping[str, Array]) -> bool:
        """Return whether no size of a request exceeds that of a known short one."""
        largest = self._largest.get(signature)
        return largest is not None and _within(_sizes(feeds), largest)

    def note(self, signature: str, feeds: Mapping[str, Array], seconds: float) -> None:
        """Record the seconds of a request."""
        largest = self._largest.get(signature)
        if seconds < SECONDS:
            if self._steady and signature not in self._unsteady:
                sizes = _sizes(feeds)
                if largest is None or not _within(sizes, largest):
                    self._largest[signature] = sizes
        elif largest is not None and _within(_sizes(feeds), largest):
            self._largest.pop(signature, None)


def _sizes(feeds: Mapping[str, Array]) -> Sizes:
    """Return the sizes of each input, and the bytes of strings."""
    return tuple(
        (alias, (*array.shape, sum(map(len, array.flat)) if array.dtype == np.object_ else 0))
        for alias, array in sorted(feeds.items())
    )


def _within(sizes: Sizes, largest: Sizes) -> bool:
    """Return whether no size exceeds the largest; False if the inputs differ."""
    return [(a, len(s)) for a, s in sizes] == [(a, len(s)) for a, s in largest] and all(
        size <= most
        for (_, given), (_, known) in zip(sizes, largest, strict=True)
        for size, most in zip(given, known, strict=True)
    )


ALONE_SECONDS = 1.0
"""Time without overlapping requests before one may use several slots; it would slow down bursts."""
_WINDOW, _ENOUGH = 9, 3  # recent requests for the median; their least number
T = TypeVar("T")


class SlotTimes:
    """How long recent requests of a model occupied a slot; thread-safe.

    Requests of a signature count together if their numbers of elements differ by less than a factor
    of two. The median ignores a few slow requests, such as the first ones.
    """

    def __init__(self) -> None:
        """Start without measurements."""
        self._recent: dict[tuple[str, int], deque[float]] = {}

    def expected(self, signature: str, feeds: Mapping[str, Array]) -> float:
        """Return the predicted seconds of a request; 0 until three were recorded."""
        recent = tuple(self._recent.get(_size(signature, feeds), ()))
        return statistics.median(recent) if len(recent) >= _ENOUGH else 0.0

    def note(self, signature: str, feeds: Mapping[str, Array], seconds: float) -> None:
        """Record the seconds of a request."""
        key = _size(signature, feeds)
        self._recent.setdefault(key, deque(maxlen=_WINDOW)).append(seconds)


def _size(signature: str, feeds: Mapping[str, Array]) -> tuple[str, int]:
    return signature, sum(array.size for array in feeds.values()).bit_length()


class Slots:
    """Threads that each run one task at a time. Tasks wait while none is idle."""

    def __init__(self, count: int, longest_wait: float = float("inf")) -> None:
        """Set the limits; threads start later. `longest_wait`: seconds that a task may be queued.

        One task may always wait, regardless of its predicted duration, so that slots stay in use.
        """
        self.count = count
        self._longest_wait = longest_wait
        self._queued = 0.0  # sum of the predicted seconds of the waiting tasks
        self._own, numbers = threading.local(), itertools.count(1)

        def begin() -> None:
            self._own.slot = next(numbers)

        self._pool = ThreadPoolExecutor(count, "compute", begin)
        self._taken = 0  # includes waiting tasks
        self._met = float("-inf")  # when two requests last overlapped
        self._lock = threading.Lock()

    def here(self) -> int:
        """Return the slot number of the current thread, from 1, or HERE."""
        slot: int = getattr(self._own, "slot", HERE)
        return slot

    @property
    def is_full(self) -> bool:
        """Whether a further task is expected to wait too long."""
        waiting = self._taken - self.count
        return waiting > 0 and self._queued > self._longest_wait * self.count

    def full(self) -> ServingError:
        """Return the error for a task that is expected to wait too long."""
        return ServingError(
            "RESOURCE_EXHAUSTED", "queue-wait-too-long", limit_ms=1000 * self._longest_wait
        )

    def run(
        self,
        work: Callable[[], T],
        left: float | None,
        expected: float = 0.0,
        accepted: bool = False,
    ) -> T:
        """Return the result of `work` in a slot, which it occupies for `expected` seconds.

        ServingError: it did not start within `left` seconds, or it is not `accepted` and is
        expected to wait too long.
        """
        self._enter(expected, accepted)

        def begin() -> T:
            self._free(0, expected)
            return work()

        (future,) = self._begun([begin], 1, expected)
        try:
            return future.result(left)
        except TimeoutError:
            if future.cancel():
                self._free(1, expected)
                raise ServingError("DEADLINE_EXCEEDED", "deadline-before-run") from None
            return future.result()  # it has started, and uses the model of its lease
        finally:
            del future  # breaks the cycle of the error's traceback, this frame and the arrays

    def run_at_once(
        self, most: int, split: Callable[[int], Sequence[Callable[[], T]]]
    ) -> list[T] | None:
        """Return the results of parallel tasks, one per idle slot but at most `most`.

        `split` returns the given number of tasks. None: fewer than two slots are idle, or requests
        overlapped recently. It returns, or raises the first task's error, once all have ended.
        """
        with self._lock:
            count = min(most, self.count - self._taken)
            if count < 2 or time.monotonic() - self._met < ALONE_SECONDS:
                return None
            self._taken += count
        results, future = [], None
        try:
            works = split(count)
        except BaseException:
            self._free(count)
            raise
        futures = self._begun(works, count)
        wait(futures)
        try:
            for future in futures:
                results.append(future.result())
            return results
        finally:
            del future, futures

    def run_alone(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work` while it uses all slots; None: some are in use.

        It also returns None if requests overlapped recently. New requests do not wait for this one.
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

    def _enter(self, expected: float, accepted: bool) -> None:
        """Count a task. ServingError: it would wait too long."""
        with self._lock:
            if self.is_full and not accepted:
                raise self.full()
            if self._taken:
                self._met = time.monotonic()
            self._taken += 1
            self._queued += expected

    def _begun(
        self, works: Sequence[Callable[[], T]], count: int, queued: float = 0.0
    ) -> list["Future[T]"]:
        """Submit tasks whose slots and time are counted. RuntimeError: no thread can start."""
        futures: list[Future[T]] = []
        for work in works:
            claim: Future[None] = Future()
            try:
                futures.append(self._pool.submit(self._counted, claim, work))
            except RuntimeError:  # the task is queued, and a thread that becomes idle would run it
                if claim.cancel():
                    self._free(1, queued)
                else:
                    wait([claim])
                self._free(count - len(futures) - 1)
                wait(futures)
                raise
        return futures

    def _counted(self, claim: "Future[None]", work: Callable[[], T]) -> T:
        """Run a task, and count the slot as idle before the result becomes visible."""
        if not claim.set_running_or_notify_cancel():
            raise CancelledError
        try:
            return work()
        finally:
            self._free(1)
            claim.set_result(None)

    def _free(self, count: int, queued: float = 0.0) -> None:
        with self._lock:
            self._taken -= count
            self._queued -= queued
