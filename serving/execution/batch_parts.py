"""When one call is worth computing in several slots, and the parts of its batch.

Either its engine can spread it over them; or it is cut into parts, side by side, which only a
signature has whose rows are proved not to mix. Nothing is assumed of how fast that is: a size is
computed in one slot a few times, then in several as often, and goes on so only if that is quicker;
from time to time this begins anew. Weights that each part reads, say, may eat up what the idle
cores bring.
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
"""The least time that a part takes: less is not worth another thread."""
TRIES = 3
"""How often a size is computed either way before one is chosen: the first calls are the slowest."""
GAIN = 0.9
CALLS = 100
"""After so many calls of a size what is known of it is forgotten."""
MOST_SIZES = 256
SPREAD = 2
"""Stands for the parts of a call that is spread."""

_Key = tuple[object, ...]


class Computing(Protocol):
    """Computes what a call is given, or a part of it, spread over all slots or not."""

    def __call__(self, given: Mapping[str, Array], spread: bool = False) -> dict[str, Array]:
        """Return the outputs."""
        ...


@dataclass
class _Times:
    """The least seconds that calls of one size took, whole and in parts, and how many did."""

    whole: float = float("inf")
    wholes: int = 0
    parts: float = float("inf")
    tries: int = 0

    @property
    def gains(self) -> bool:
        """Say whether parts are quicker, or are to be tried."""
        if self.wholes < TRIES:
            return False
        return self.tries < TRIES or self.parts <= GAIN * self.whole


class BatchParts:
    """What is known of the batches of a model; may be asked and told from many threads at once."""

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        unmixed: Iterable[str],
        spread: Iterable[str] = (),
    ) -> None:
        """Know no times yet; signatures that are neither `unmixed` nor `spread` stay in a slot."""
        self._spread = frozenset(spread)
        self._signatures = {name: signatures[name] for name in {*unmixed, *self._spread}}
        self._times: OrderedDict[_Key, _Times] = OrderedDict()
        self._lock = threading.Lock()

    def run(
        self, name: str, feeds: Mapping[str, Array], run: Computing, slots: Slots
    ) -> dict[str, Array] | None:
        """Return what several slots make of a call, or None: it is to be computed whole, in one.

        So is a call of which a part is refused: what is said then is about all of its rows.
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
        """Return how many parts a call may be computed in at once; 1: it stays whole."""
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
        """Take down how long a call took that was computed whole, or in so many parts."""
        if name not in self._signatures:
            return
        key = _key(name, feeds)
        with self._lock:
            times = self._times.pop(key, _Times())
            if times.wholes + times.tries >= CALLS:
                times = _Times()
            self._times[key] = times
            if len(self._times) > MOST_SIZES:
                self._times.popitem(last=False)
            if parts > 1:
                times.parts, times.tries = min(times.parts, seconds), times.tries + 1
            else:
                times.whole, times.wholes = min(times.whole, seconds), times.wholes + 1


def cut(feeds: Mapping[str, Array], parts: int) -> list[dict[str, Array]]:
    """Return the rows of feeds in so many parts, of which none is larger by more than a row."""
    rows = len(next(iter(feeds.values())))
    ends = [rows * part // parts for part in range(parts + 1)]
    return [
        {alias: array[start:end] for alias, array in feeds.items()}
        for start, end in itertools.pairwise(ends)
    ]


def joined(
    pieces: Sequence[Mapping[str, Array]], result: Sequence[Mapping[str, Array]]
) -> dict[str, Array] | None:
    """Return what the parts came to, one after the other; None: an output has other rows."""
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
