"""How well several GPUs do what one does, and several threads."""

from collections.abc import Iterator
from dataclasses import replace

from deploykit.benchmarking.comparison.speed_verdict import NARROW, judge
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult


def scaling_efficiency(measurement: Measurement, result: BenchmarkResult) -> float | None:
    """Return the rate of n towers over n times the rate of one tower, which is 1 at best.

    None: the measurement is not on all GPUs, or the result lacks the same on `gpu:0`.
    """
    if measurement.settings.device != "all":
        return None
    alone = replace(measurement.settings, device="gpu:0")
    for each in result.measurements:
        if each.model == measurement.model and each.settings == alone:
            towers = len(measurement.facts["towers"])
            return measurement.items_per_second / (towers * each.items_per_second)
    return None


def thread_lines(result: BenchmarkResult) -> Iterator[str]:
    """Say where more threads inside an op are no faster for sure; nothing where it is undecided."""
    for one, more in _pairs(result):
        found = judge(one, more)
        if found.wall.high <= 1 + NARROW:  # no more than what counts as no difference
            (few, _), (many, _) = (threads_of(each) for each in (one, more))
            ratio = found.wall
            way = ""
            if more.settings.concurrency == 1:
                way = (
                    "; whether calls at the same time use them better is for --threads "
                    f"{few}x{many} --concurrency {many} to show"
                )
            what = "are slower than" if ratio.high < 1 else "bring nothing over"
            yield (
                f"{more.name}: {many} threads inside an op {what} {few} here "
                f"({ratio.value:.2f} times as fast, {ratio.low:.2f} to {ratio.high:.2f}){way}"
            )


def threads_of(measurement: Measurement) -> tuple[int, int]:
    """Return the threads inside an op, and the ops at once; TensorFlow has one of each a CPU."""
    every = len(measurement.facts.get("cpus", ())) or 1
    return measurement.settings.threads or (every, every)


def _pairs(result: BenchmarkResult) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield each measurement with more threads, and the one with the fewest that is like it else.

    So that nothing but threads can be the cause, there are no fewer ops at once with more.
    """
    firsts: dict[object, Measurement] = {}
    several = [each for each in result.measurements if each.scenario is None]
    for each in sorted(several, key=threads_of):
        if each.settings.device == "cpu":
            key = (each.model, each.samples, replace(each.settings, threads=None))
            one = firsts.setdefault(key, each)
            (few, ops), (many, more_ops) = threads_of(one), threads_of(each)
            if few < many and ops <= more_ops:
                yield one, each
