"""The threads that run requests: each takes one slot or several idle ones; very short requests
take none.
"""

import functools
import itertools
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    """What is known of the calls of a model; may be asked and told from many threads at once."""

    def __init__(self, meta: MetaGraphDef, unsteady: Iterable[str] = ()) -> None:
        """Know nothing yet; calls of `unsteady` signatures are never quick."""
        graph = meta.graph_def
        bodies = (graph.node, *(function.node_def for function in graph.library.function))
        self._steady = not any(node.op in _BRANCHING for nodes in bodies for node in nodes)
        self._unsteady = frozenset(unsteady)
        self._largest: dict[str, Sizes] = {}  # of those that were quick, by signature

    def include(self, signature: str, feeds: Mapping[str, Array]) -> bool:
        """Say whether a call is in no size larger than one that was quick."""
        largest = self._largest.get(signature)
        return largest is not None and _within(_sizes(feeds), largest)

    def note(self, signature: str, feeds: Mapping[str, Array], seconds: float) -> None:
        """Take down how long a call took."""
        largest = self._largest.get(signature)
        if seconds < SECONDS:
            if self._steady and signature not in self._unsteady:
                sizes = _sizes(feeds)
                if largest is None or not _within(sizes, largest):
                    self._largest[signature] = sizes
        elif largest is not None and _within(_sizes(feeds), largest):
            self._largest.pop(signature, None)


def _sizes(feeds: Mapping[str, Array]) -> Sizes:
    """Return the sizes of each input; strings count their bytes as well."""
    return tuple((alias, (*array.shape, _bytes(array))) for alias, array in sorted(feeds.items()))


def _bytes(array: Array) -> int:
    return sum(map(len, array.flat)) if array.dtype == np.object_ else 0


def _within(sizes: Sizes, largest: Sizes) -> bool:
    """Say whether no size is larger; inputs that are not the same cannot be compared."""
    return [(a, len(s)) for a, s in sizes] == [(a, len(s)) for a, s in largest] and all(
        size <= most
        for (_, given), (_, known) in zip(sizes, largest, strict=True)
        for size, most in zip(given, known, strict=True)
    )


ALONE_SECONDS = 1.0
"""How long no two calls met before one may take several slots: those that come in bursts lose."""
_WINDOW, _ENOUGH = 9, 3  # recent calls whose median counts, and calls before one is known
T = TypeVar("T")


class SlotTimes:
    """How long recent calls of a model occupied a slot; may be used from many threads at once.

    Calls of a signature with about the same number of values (within a factor of two) count
    together. A median, so that a few slow calls, such as the first ones, do not count.
    """

    def __init__(self) -> None:
        """Know none yet."""
        self._recent: dict[tuple[str, int], deque[float]] = {}

    def expected(self, signature: str, feeds: Mapping[str, Array]) -> float:
        """Return the seconds that a call is estimated to take; 0 until three calls were noted."""
        recent = tuple(self._recent.get(_size(signature, feeds), ()))
        return statistics.median(recent) if len(recent) >= _ENOUGH else 0.0

    def note(self, signature: str, feeds: Mapping[str, Array], seconds: float) -> None:
        """Record how many seconds a call took."""
        key = _size(signature, feeds)
        self._recent.setdefault(key, deque(maxlen=_WINDOW)).append(seconds)


def _size(signature: str, feeds: Mapping[str, Array]) -> tuple[str, int]:
    return signature, sum(array.size for array in feeds.values()).bit_length()


class Slots:
    """Threads that compute one thing each at a time; what comes when none is idle waits."""

    def __init__(self, count: int, longest_wait: float = float("inf")) -> None:
        """Start none yet; no work is queued that is expected to wait longer, in seconds.

        One may always wait, whatever it is expected to take, so that slots find work when idle.
        """
        self.count = count
        self._longest_wait = longest_wait
        self._queued = 0.0  # seconds that the waiting works are expected to take
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

    @property
    def is_full(self) -> bool:
        """Whether one more work is expected to wait too long."""
        waiting = self._taken - self.count
        return waiting > 0 and self._queued > self._longest_wait * self.count

    def full(self) -> ServingError:
        """Return the refusal of a work that is expected to wait too long."""
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
        """Return what `work` does in a slot, which it is expected to occupy for some seconds.

        ServingError: it could not begin within `left` seconds, or is not yet `accepted` and
        expected to wait too long.
        """
        self._enter(expected, accepted)
        (future,) = self._begun([functools.partial(self._begin, work, expected)], 1)
        try:
            return future.result(left)
        except TimeoutError:
            if future.cancel():
                self._free(1, expected)
                raise ServingError("DEADLINE_EXCEEDED", "deadline-before-run") from None
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

    def _enter(self, expected: float, accepted: bool) -> None:
        """Count a work. ServingError: it would wait too long."""
        with self._lock:
            if self.is_full and not accepted:
                raise self.full()
            if self._taken:
                self._met = time.monotonic()
            self._taken += 1
            self._queued += expected

    def _begin(self, work: Callable[[], T], expected: float) -> T:
        """Do a work that does not wait any more."""
        self._free(0, expected)
        return work()

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

    def _free(self, count: int, queued: float = 0.0) -> None:
        with self._lock:
            self._taken -= count
            self._queued -= queued
