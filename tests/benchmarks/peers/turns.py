"""Models that run in turn, each in its own process, in the rounds in which others are quiet."""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.transforms.core.running.child import Worker
from tests.benchmarks.others import Others
from tests.benchmarks.peers.contestants import Contestant
from tests.benchmarks.peers.places import Place
from tests.benchmarks.runtimes.environment import Process

ROUNDS, MOST_ROUNDS, SECONDS, RESUME, WARM_UP = 15, 30, 0.5, 0.05, 1.0


@dataclass(frozen=True)
class Entry:
    """A model in a place."""

    contestant: Contestant
    place: Place

    def started(self) -> Worker | Process:
        """Return a process that runs it there."""
        return self.contestant.started(self.place)


@dataclass(frozen=True)
class Taken:
    """What a call took in each round, in ms, and how the runtime says that it was set."""

    ms: list[float]
    settings: str

    @property
    def median(self) -> float:
        """The median of the rounds, in ms."""
        return statistics.median(self.ms)


def in_turn(entries: Sequence[Entry], quiet: float) -> tuple[dict[Entry, Taken], list[float]]:
    """Return what each one took, and how many cores others kept busy, round by round.

    Others' load changes the order, so only the quietest rounds count, and there are more rounds
    where too few had less than `quiet`. Caches are cold after the others' turns: the first calls do
    not count.
    """
    with contextlib.ExitStack() as stack:
        processes = [
            (each, stack.enter_context(contextlib.closing(each.started()))) for each in entries
        ]
        for _, process in processes:
            process.ask("run", WARM_UP)
        settings = {each: each.contestant.how(each.place, process) for each, process in processes}
        others = Others(process.pid for _, process in processes)
        rounds: list[tuple[float, dict[Entry, float]]] = []
        while len(rounds) < MOST_ROUNDS and sum(load <= quiet for load, _ in rounds) < ROUNDS:
            taken = {}
            others.cores()
            for each, process in processes[:: -1 if len(rounds) % 2 else 1]:
                process.ask("run", RESUME)
                taken[each] = each.place.ms(*process.ask("run", SECONDS))
            rounds.append((others.cores(), taken))
    rounds = sorted(rounds, key=lambda each: each[0])[:ROUNDS]
    found = {each: Taken([taken[each] for _, taken in rounds], settings[each]) for each in entries}
    return found, [load for load, _ in rounds]
