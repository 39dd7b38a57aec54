"""The turns of a benchmark: sessions in random order, block by block, until all is decided."""

import contextlib
import random
import time
from collections.abc import Callable, Collection, Sequence

from deploykit.benchmarking.conditions import Watch
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.sampling import Sampler
from deploykit.benchmarking.seating import Course, Seat, Seating

TURN = 0.015
"""Seconds of a turn. Of turns of half a second, ratios scatter six times as much on a busy
machine."""
GPU_TURN = 1.0  # a driver tells what a GPU did for periods of up to a second
LONG_CALL = 0.1  # seconds, from which on a call before the timed ones costs more than it tells
SLICES = 20  # of the time, after which progress is told
TURNS_EACH = 4  # that a session has at least where calls are counted
LOOKS = (0.1, 0.25, 0.5)
"""After these shares of the time it is asked what is decided."""
Undecided = Callable[[Sequence[Measurement]], Collection[int]]
"""Returns the places of the measurements of which more time would tell more."""


def everyone(taken: Sequence[Measurement]) -> Collection[int]:
    """Let all contestants go on to the end of their time."""
    return range(len(taken))


def together(decided: Callable[[Sequence[Measurement]], bool]) -> Undecided:
    """Return what lets all contestants go on until all is decided."""
    return lambda taken: () if decided(taken) else everyone(taken)


class Play:
    """Turns that go on until their time or number is over."""

    def __init__(
        self, seating: Seating, sampler: Sampler, step: Callable[[], None], undecided: Undecided
    ) -> None:
        """Begin nothing yet; `step` is called after each of SLICES equal parts of the time."""
        self._seating, self._sampler, self._step = seating, sampler, step
        self._undecided = undecided
        self._order = random.Random(0)

    def for_seconds(self, seconds: float, watch: Watch) -> None:
        """Take turns for so many seconds of each contestant, or until its comparison is decided."""
        courses = self._seating.courses
        taken, told, looks, block = 0.0, 0, list(LOOKS), 0
        while True:
            watch.refer()
            began, shares = time.monotonic(), seconds * len(courses)
            for seat in self._shuffled(courses):
                passed = taken + (time.monotonic() - began) / shares
                while told < min(SLICES, int(passed * SLICES) + 1):
                    told += 1
                    self._step()
                if passed >= 1 and block:
                    return
                self._turn(seat, block, _length(seat.course), None)
            block += 1
            taken += (time.monotonic() - began) / shares
            if looks and taken >= looks[0]:
                looks.pop(0)
                every = self._seating.courses
                left = self._undecided([each.measurement() for each in every])
                courses = [each for n, each in enumerate(every) if n in left and each in courses]
                if not courses:
                    return

    def for_calls(self, runs: int, rounds: int, watch: Watch) -> None:
        """Take so many calls of each contestant, in so many turns."""
        rounds = min(rounds, runs)
        for number in range(rounds):
            watch.refer()
            calls = runs * (number + 1) // rounds - runs * number // rounds
            if number * SLICES // rounds != (number - 1) * SLICES // rounds:
                self._step()
            courses = self._seating.courses
            for course in self._order.sample(courses, len(courses)):
                seat = course.seats[number % len(course.seats)]
                self._turn(seat, number, 1e9, calls)

    def _shuffled(self, courses: Sequence[Course]) -> list[Seat]:
        seats = [seat for course in courses for seat in course.seats]
        self._order.shuffle(seats)
        return seats

    def _turn(self, seat: Seat, block: int, seconds: float, runs: int | None) -> None:
        on_gpu = seat.course.contestant.job.settings.device != "cpu"
        watching = self._sampler.watching(seat.course.contestant.name, seat.process.worker.pid)
        with watching if on_gpu else contextlib.nullcontext():
            seat.take_a_turn(block, seconds, runs, seat.course.call_seconds < LONG_CALL)


def _length(course: Course) -> float:
    """Return the seconds of a turn: two calls at least, where these are not very long."""
    if course.contestant.job.settings.device != "cpu":
        return GPU_TURN
    call = course.call_seconds
    return TURN if call >= LONG_CALL else max(TURN, 1.5 * call)
