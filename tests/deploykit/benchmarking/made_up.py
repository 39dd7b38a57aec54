"""Latencies of a machine that is made up: noise, spikes, drift, and a level that keeps for long."""

import math

import numpy as np

from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig

MACHINE = {"cpu": "made up", "cores": 2, "cpus": 2, "load": [0.5, 0.5, 0.5]}
KINDS = ("plain", "drifting", "autocorrelated", "contended")


def in_turn(seed: int, count: int, kind: str, slowdown: float = 1.0) -> list[list[np.ndarray]]:
    """Return the rounds of two processes in turn; the second is slower."""
    rng = np.random.default_rng(seed)
    found: list[list[np.ndarray]] = [[], []]
    level = 0.0
    for number in range(count):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            if kind == "drifting":
                level += 0.01
            elif kind == "autocorrelated":
                level = 0.9 * level + rng.normal(0, 0.05)
            elif kind == "contended" and rng.random() < 0.3:
                level = rng.choice([0, 0, 0, 0.7, 1.1])
            calls = level + rng.normal(0, 0.03) + rng.normal(0, 0.05, 10)
            calls += np.where(rng.random(10) < 0.05, rng.exponential(1, 10), 0)
            found[which].append(10 * np.exp(calls) * (slowdown if which else 1))
    return found


def in_turns(
    seed: int,
    kind: str,
    slowdown: float = 1.0,
    *,
    work: float | None = None,
    turns: int = 25,
    sessions: int = 8,
    processes: str = "shared",
    copies: int = 3,
    of_process=None,
) -> list[Measurement]:
    """Return two measurements in turns; the second is slower, and does `work` times the work.

    Processes of one model differ by 0.6 % of the work, and their sessions by 0.8 %. On a contended
    machine half of the turns wait for others, up to twice as long.
    """
    rng = np.random.default_rng(seed)
    work = slowdown if work is None else work
    copies = min(copies, sessions)
    given = rng.normal(0, 0.006, 2 * copies) if of_process is None else np.tile(of_process, 2)
    shared = given.tolist()
    offset = [0, 0 if processes == "shared" else copies]
    own = rng.normal(0, 0.008, (2, sessions)).tolist()
    found: list[dict[str, list]] = [{"rounds": [], "seconds": [], "turns": []} for _ in "ab"]
    level, size = 0.0, (turns, 2 * sessions)
    places = rng.permuted(np.tile(np.arange(2 * sessions), (turns, 1)), axis=1)
    noise, step = rng.normal(0, 0.015, size), rng.normal(0, 0.02, size)
    waits = rng.exponential(0.5, size) * (rng.random(size) < 0.5) * (kind == "contended")
    every = zip(*(each.ravel().tolist() for each in (places, noise, step, waits)), strict=True)
    for number, (place, noisy, moved, waited) in enumerate(every):
        which, session = divmod(place, sessions)
        if kind == "drifting":
            level += 0.001
        elif kind == "autocorrelated":
            level = 0.9 * level + moved
        process = offset[which] + session % copies
        cpu = 10 * math.exp(level + shared[process] + own[which][session] + noisy)
        wall = cpu * (slowdown if which else 1) * (1 + waited)
        found[which]["rounds"].append((wall,) * 2)
        found[which]["seconds"].append(2 * wall / 1e3)
        spent = 2 * cpu * (work if which else 1)
        found[which]["turns"].append(Turn(number // (2 * sessions), process, session, spent, 0, 0))
    return [
        measurement(each["rounds"], name=name, rounds_seconds=tuple(each["seconds"]),
                    turns=tuple(each["turns"]))
        for name, each in zip("ab", found, strict=True)
    ]  # fmt: skip


def measurement(rounds=None, **changes: object) -> Measurement:
    """Return the measurement of a quiet machine, or of other rounds."""
    if rounds is None:
        rounds = [10 + np.random.default_rng(i).uniform(0, 0.2, 20) for i in range(10)]
    values = {
        "name": "net.pb",
        "model": "net.pb",
        "sha256": "0" * 64,
        "settings": RunConfig(),
        "samples": 4,
        "load_ms": 100.0,
        "first_run_ms": 50.0,
        "warm_up_ms": (20.0, 15.0),
        "settled": True,
        "rounds_ms": tuple(tuple(map(float, each)) for each in rounds),
        "rounds_seconds": tuple(float(sum(each)) / 1e3 for each in rounds),
        "facts": {"tensorflow": "2.21.0", "bytes_peak": 1 << 20, "inputs": {"x": "float32 [4]"}},
    }
    return Measurement(**(values | changes))


def result(*measurements: Measurement, **machine: object) -> BenchmarkResult:
    return BenchmarkResult(measurements, MACHINE | machine, "2026-11-21T10:00:00+00:00")


def times(factor: float) -> list[np.ndarray]:
    """Return the rounds of a quiet machine, so many times slower."""
    return [factor * np.asarray(each) for each in measurement().rounds_ms]
