"""Where the models of a net run: how many samples, threads and calls in flight."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """So many samples a call, threads that all calls have together, and calls in flight."""

    batch: int
    threads: int
    in_flight: int = 1

    def __str__(self) -> str:
        """Return its name, such as `b1 t2` or `b1 t2, 2 in flight`."""
        flying = f", {self.in_flight} in flight" if self.in_flight > 1 else ""
        return f"b{self.batch} t{self.threads}{flying}"

    def ms(self, calls: Sequence[int], all_of_them: int) -> float:
        """Return what a call takes in ms, given the time of each and of all of them in ns.

        With several in flight that is how often one ends.
        """
        if self.in_flight == 1:
            return statistics.median(calls) / 1e6
        return all_of_them / len(calls) / 1e6


ONE = Place(1, 1)
TWO = Place(1, 2)
EIGHT = Place(8, 2)
FLYING = Place(1, 2, 2)
PLACES = (ONE, TWO, EIGHT, FLYING)
