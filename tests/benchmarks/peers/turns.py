"""Models that run in turn, each in its own process, in the rounds in which others are quiet."""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploykit.transforms.runtime.child_process import Worker
from tests.benchmarks.others import Others
from tests.benchmarks.peers.contestants import Contestant
from tests.benchmarks.peers.places import Place
from tests.benchmarks.runtimes.environment import Process

ROUNDS, SECONDS, RESUME, WARM_UP = 15, 0.5, 0.05, 1.0
TRIAL_ROUNDS = 7


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


def at_best(entry: Entry, quiet: float) -> Entry:
    """Return an entry with those of its settings that are fastest in its place.

    A short trial runs all of them, interleaved; the least median counts, and of equal ones the
    first. An entry without candidates is returned as it is.
    """
    own = entry.contestant
    if not own.candidates:
        return entry
    tried = [
        replace(entry, contestant=replace(own, settings=each, candidates=()))
        for each in own.candidates
    ]
    taken, _ = in_turn(tried, quiet, TRIAL_ROUNDS)
    return min(tried, key=lambda each: taken[each].median)


def in_turn(
    entries: Sequence[Entry], quiet: float, count: int = ROUNDS
) -> tuple[dict[Entry, Taken], list[float]]:
    """Return what each one took, and how many cores others kept busy, in `count` rounds.

    Others' load changes the order, so only the quietest rounds count, and there are up to twice as
    many where too few had less than `quiet`. Caches are cold after the others' turns: the first
    calls do not count.
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
        while len(rounds) < 2 * count and sum(load <= quiet for load, _ in rounds) < count:
            taken = {}
            others.cores()
            for each, process in processes[:: -1 if len(rounds) % 2 else 1]:
                process.ask("run", RESUME)
                taken[each] = each.place.ms(*process.ask("run", SECONDS))
            rounds.append((others.cores(), taken))
    rounds = sorted(rounds, key=lambda each: each[0])[:count]
    found = {each: Taken([taken[each] for _, taken in rounds], settings[each]) for each in entries}
    return found, [load for load, _ in rounds]
