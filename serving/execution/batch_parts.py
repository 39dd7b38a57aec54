"""Decides when a request runs in several slots, and cuts its batch into chunks.

Either the engine spreads the request over all slots, or the batch is cut into chunks that run
in parallel. Only signatures with provably independent examples are cut. For each batch size both
ways are measured a few times, and the faster one is used. The measurement is repeated regularly.
Chunks may bring no speedup, for example because each reads the weights again.
"""

import functools
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deploykit.serving.execution.request_inputs import rows_of
from deploykit.serving.execution.slots import Slots
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import Signature
from deploykit.transforms.ir.tensors import Array

SECONDS = 0.004
"""Minimum duration of a chunk; shorter ones are not worth another thread."""
TRIES = 3
"""Measurements of each way per batch size before one is chosen; the first requests are slowest."""
GAIN = 0.9
CALLS = 100
"""After this number of requests the measurements of a batch size are discarded."""
MAX_SIZES = 256
SPREAD = 2
"""The number of chunks recorded for a request that its engine spreads."""

_Key = tuple[object, ...]


class Computing(Protocol):
    """Runs a request or a chunk of it, optionally spread over all slots."""

    def __call__(self, given: Mapping[str, Array], spread: bool = False) -> dict[str, Array]:
        """Return the outputs."""
        ...


@dataclass
class _Times:
    """Minimum seconds of requests of one size, whole and cut, and the number of measurements."""

    whole: float = float("inf")
    wholes: int = 0
    parts: float = float("inf")
    tries: int = 0

    @property
    def gains(self) -> bool:
        """Return whether cutting is faster, or still to be measured."""
        if self.wholes < TRIES:
            return False
        return self.tries < TRIES or self.parts <= GAIN * self.whole


class BatchParts:
    """Measurements of a model's batch sizes; thread-safe."""

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        unmixed: Iterable[str],
        spread: Iterable[str] = (),
    ) -> None:
        """Start without measurements; signatures neither `unmixed` nor `spread` run in one slot."""
        self._spread = frozenset(spread)
        self._signatures = {name: signatures[name] for name in {*unmixed, *self._spread}}
        self._times: OrderedDict[_Key, _Times] = OrderedDict()
        self._lock = threading.Lock()

    def run(
        self, name: str, feeds: Mapping[str, Array], run: Computing, slots: Slots
    ) -> dict[str, Array] | None:
        """Return outputs computed in several slots, or None if the request must run whole in one.

        If the model rejects a chunk, it also returns None: the error must refer to the whole batch.
        """
        if name in self._spread:
            return self._run_spread(name, feeds, run, slots)
        most, pieces = self.wanted(name, feeds), list[dict[str, Array]]()
        if most < 2:
            return None

        def split(count: int) -> list[Callable[[], dict[str, Array]]]:
            pieces.extend(cut(feeds, count))
            return [functools.partial(run, piece) for piece in pieces]

        start = time.monotonic()
        try:
            result = slots.run_at_once(most, split)
        except ServingError as error:
            if error.status in ("CANCELLED", "DEADLINE_EXCEEDED"):
                raise
            return None
        if result is None:
            return None
        self.note(name, feeds, time.monotonic() - start, len(pieces))
        return joined(pieces, result)

    def _run_spread(
        self, name: str, feeds: Mapping[str, Array], run: Computing, slots: Slots
    ) -> dict[str, Array] | None:
        with self._lock:
            times = self._times.get(_key(name, feeds))
            if times is None or not times.gains:
                return None

        def work() -> dict[str, Array]:
            start = time.monotonic()
            result = run(feeds, True)
            self.note(name, feeds, time.monotonic() - start, SPREAD)
            return result

        return slots.run_alone(work)

    def wanted(self, name: str, feeds: Mapping[str, Array]) -> int:
        """Return the largest number of chunks for a request; 1: it runs whole."""
        signature = self._signatures.get(name)
        if signature is None or feeds.keys() != signature.inputs.keys():
            return 1
        rows = rows_of(signature, feeds) or 1
        if rows < 2:
            return 1
        with self._lock:
            times = self._times.get(_key(name, feeds))
            if times is None or not times.gains:
                return 1
            return max(1, min(rows, int(times.whole / SECONDS)))

    def note(self, name: str, feeds: Mapping[str, Array], seconds: float, parts: int = 1) -> None:
        """Record the seconds of a request that ran whole or in the given number of chunks."""
        if name not in self._signatures:
            return
        key = _key(name, feeds)
        with self._lock:
            times = self._times.pop(key, _Times())
            if times.wholes + times.tries >= CALLS:
                times = _Times()
            self._times[key] = times
            if len(self._times) > MAX_SIZES:
                self._times.popitem(last=False)
            if parts > 1:
                times.parts, times.tries = min(times.parts, seconds), times.tries + 1
            else:
                times.whole, times.wholes = min(times.whole, seconds), times.wholes + 1


def cut(feeds: Mapping[str, Array], parts: int) -> list[dict[str, Array]]:
    """Return the feeds in the given number of chunks, whose sizes differ by at most one row."""
    rows = len(next(iter(feeds.values())))
    ends = [rows * part // parts for part in range(parts + 1)]
    return [
        {alias: array[start:end] for alias, array in feeds.items()}
        for start, end in itertools.pairwise(ends)
    ]


def joined(
    pieces: Sequence[Mapping[str, Array]], result: Sequence[Mapping[str, Array]]
) -> dict[str, Array] | None:
    """Return the concatenated outputs; None: an output does not have one row per input row."""
    counts = [len(next(iter(piece.values()))) for piece in pieces]
    outputs: dict[str, Array] = {}
    for alias in result[0]:
        arrays = [item[alias] for item in result]
        if [len(array) if array.ndim else -1 for array in arrays] != counts:
            return None
        if len({array.shape[1:] for array in arrays}) > 1:
            return None
        outputs[alias] = np.concatenate(arrays)
    return outputs


def _key(name: str, feeds: Mapping[str, Array]) -> _Key:
    return name, *((alias, array.shape) for alias, array in sorted(feeds.items()))
