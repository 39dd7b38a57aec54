"""The interface of what computes: it is given arrays that fit the signature, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from deploykit.transforms.core.engines.engines import AUTO
from deploykit.transforms.core.tensors import Array

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
