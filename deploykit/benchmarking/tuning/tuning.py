"""Find settings with which a model runs faster here: short trials, then a proper measurement.

What TensorFlow and the C library read when they start is tried in a process of its own. What the
user has set in the environment is left as it is.
"""

import contextlib
import functools
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploykit.benchmarking.inputs import batches, samples_in
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.measuring import (
    ROUNDS,
    Advance,
    Contestant,
    measure,
    spill,
)
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.tuning.recommendation import Recommendation
from deploykit.benchmarking.tuning.searching import Coordinate, Search, Trial
from deploykit.benchmarking.tuning.trials import Trials
from deploykit.freezing.model_path import model_sha256
from deploykit.hardware.machine import environment, machine, usable_cores
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.transforms.core.errors import Error, GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.child import limits
from deploykit.transforms.core.tensors import Array

logger = logging.getLogger("deploykit")

BATCHES = (8, 32)  # besides one, where the batch is open
MINUTES = 2.8  # with the start of the command itself, under three
FINALISTS = 3  # default, lowest latency, highest throughput
LATE_CALLS = 2 + 1.5 * ROUNDS  # first calls, and what ends a round or begins one
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def tune(
    model: str,
    graph: Graph,
    *,
    batch: Sequence[int] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Mapping[str, Array] | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    goal: str = "latency",
    latency_limit: float | None = None,
    minutes: float = MINUTES,
    state: str | os.PathLike[str] | None = None,
    advance: Advance = lambda name, count: None,
) -> Recommendation:
    """Search the settings with the lowest latency, and those with the most items a second.

    Args:
        model: the path of the model or another name.
        graph: its frozen graph.
        batch: samples at once to try; the lowest latency is sought for the smallest. Default: 1, 8
            and 32 where the graph leaves it open.
        shapes: sizes of inputs that the graph leaves open, by name.
        data: arrays by input name, samples along the first axis; default: made up, seed 0.
        input_range: of made-up floats.
        goal: `latency` or `throughput`, which the recommended settings are for.
        latency_limit: milliseconds that 99 % of the calls must keep to at the highest throughput.
        minutes: how long all may take, as far as starts of TensorFlow allow.
        state: a file that keeps the trials while this runs, and from which it goes on when it was
            interrupted; it is removed at the end.
        advance: called with what comes next, and how many steps there are about.

    GraphError: an input has no known shape, or does not fit the data. LimitError: TensorFlow died
    or hung with its default settings, or in the last measurement.
    """
    began = time.monotonic()
    seen, kept = machine(), held(os.environ)
    feeds = functools.cache(lambda size: batches(graph, size, shapes or {}, data, input_range))
    sizes = _batches(feeds, batch)
    default = Settings(batch=sizes[0])
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        path = Path(folder, "model.pb")
        sha256_of_graph = spill(graph, path)

        def job(settings: Settings) -> Job:
            return Job(str(path), graph.inputs, graph.outputs, feeds(settings.batch), settings)

        bound = {
            "graph": [sha256_of_graph, list(graph.inputs), list(graph.outputs)],
            "inputs": [repr([shapes, input_range]), digest(pieces(data or {}))],
            "memory_limit": limits.memory,
            "environment": environment(),
            **{name: seen[name] for name in ("cpu", "affinity", "cpu_limit")},
            **{name: seen["versions"][name] for name in ("tensorflow", "wheel")},
        }
        kept_trials = State(state, "tuning", bound)
        earlier = _resumed(kept_trials)
        seconds = 60 * minutes
        with contextlib.closing(Trials(job, default)) as trials:
            measured, warm_up = _last(seconds)

            def last(finalists: Sequence[Trial]) -> float:
                late = sum(each.figures.p50_ms for each in finalists if each.figures) / 1000
                each = trials.start_seconds + warm_up + measured
                return FINALISTS * each + LATE_CALLS * late

            trials.until = began + seconds - last(())
            search = Search(
                trials,
                default,
                coordinates(usable_cores(), sizes, trials.onednn, kept),
                seconds=seconds - (time.monotonic() - began),
                latency_limit=latency_limit,
                done=earlier,
                keep=lambda found: kept_trials.keep("trials", [each.document() for each in found]),
                advance=advance,
                last=last,
            )
            with _explained(state, search):
                search.run()
        chosen = [each.settings for each in search.finalists]
        left = began + seconds - time.monotonic() - last(search.finalists)
        left = (left + FINALISTS * measured) / len(chosen)
        with _explained(state, search):
            sha256 = model_sha256(model) or sha256_of_graph
            final = measure(
                [Contestant(str(each), model, sha256, job(each)) for each in chosen],
                seconds=max(1.0, min(measured, left)),
                warm_up=warm_up,
                advance=lambda name, steps: advance(name, steps and len(search.trials) + steps),
            )
            if final.interrupted:
                raise KeyboardInterrupt
    kept_trials.forget()
    return Recommendation(
        model, sha256, goal, latency_limit, final, search.trials, kept, search.complete
    )


def held(variables: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the settings that the user's environment holds already, with the variables' names."""
    wanted = {
        "onednn": Settings(onednn=True),
        "caller_thread": Settings(caller_thread=True),
        "keep_memory": Settings(keep_memory=True),
    }
    found = {
        name: tuple(each for each in settings.environment if each in variables)
        for name, settings in wanted.items()
    }
    if "glibc.malloc." in variables.get("GLIBC_TUNABLES", ""):
        found["keep_memory"] += ("GLIBC_TUNABLES",)
    found["threads"] = tuple(each for each in _THREADS if each in variables)
    return {name: names for name, names in found.items() if names}


def coordinates(
    cores: int, sizes: Sequence[int | None], onednn: bool, kept: Mapping[str, Sequence[str]]
) -> list[Coordinate]:
    """Return what to try, what usually pays first; the batch and calls in flight share starts.

    With one thread inside ops, calls in flight do not wait for each other's ops.
    """
    every = len(os.sched_getaffinity(0))
    usual = None if cores == every else (cores, cores)  # TensorFlow sees no quota
    streams: list[dict[str, Any]] = [{"threads": usual, "concurrency": 1}]
    for flight in dict.fromkeys((cores, cores // 2)):
        if flight > 1:
            streams.append({"threads": (1, flight), "concurrency": flight})
            streams.append({"threads": usual, "concurrency": flight})
    alone = dict.fromkeys([(cores, 1), (max(1, cores // 2), 1), (1, 1)])
    if "threads" in kept:
        streams = [{"concurrency": each["concurrency"]} for each in streams]
    found: list[tuple[str, Coordinate]] = [
        ("onednn", [{"onednn": not onednn}, {"onednn": None}]),
        ("caller_thread", [{"caller_thread": True}, {"caller_thread": None}]),
        ("streams", streams),
        ("batch", [{"batch": size} for size in sizes]),
        ("threads", [{"threads": each} for each in (usual, *alone)]),
        ("keep_memory", [{"keep_memory": True}, {"keep_memory": None}]),
    ]
    return [changes for name, changes in found if name not in kept]


def _batches(feeds: Any, wanted: Sequence[int]) -> list[int | None]:
    """Return the batches to try, the smallest first; None: as many as the inputs demand."""

    def samples(size: int | None) -> int:
        return samples_in(feeds(size)[0])

    if wanted:
        for size in wanted:
            if samples(size) != size:
                raise GraphError(
                    f"a batch of {size} cannot be tried: the data or the inputs give "
                    f"{samples(size)} samples at once"
                )
        return [*sorted(wanted)]
    smallest = samples(None)
    found: list[int | None] = []
    for size in (smallest, *(each for each in BATCHES if each > smallest)):
        with contextlib.suppress(GraphError):
            if samples(size) == size:
                found.append(size)
    return found if len(found) > 1 else [None]


def _last(seconds: float) -> tuple[float, float]:
    """Return how long each is measured in the end, and may take to warm up."""
    measured = max(1.0, min(10.0, seconds / 20))
    return measured, max(1.0, measured / 3)


def _resumed(state: State) -> tuple[Trial, ...]:
    """Return the trials of an interrupted run."""
    try:
        trials = tuple(Trial.of(each) for each in state.found.get("trials", ()))
    except (Error, KeyError, TypeError, ValueError) as error:
        logger.info("%s: the trials cannot be read (%s), so the search begins anew",
                    state.path, error)  # fmt: skip
        return ()
    if trials:
        logger.info("%s: the search goes on after %d trials", state.path, len(trials))
    return trials


@contextlib.contextmanager
def _explained(state: str | os.PathLike[str] | None, search: Search) -> Iterator[None]:
    """Say on Ctrl-C what was found until then, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        for goal, settings in search.best.items():
            logger.info("best %s so far: %s", goal, settings)
        if state is not None and search.trials:
            logger.info("%d trials are kept in %s; the same command goes on from there",
                        len(search.trials), state)  # fmt: skip
        raise
