"""TuneOptions, and the settings that tuning tries."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from deploykit.benchmarking import process_variables
from deploykit.benchmarking.process_variables import CALLER_THREAD, THREADS, Given
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.search import Coordinate
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import (
    AUTO,
    ENGINES,
    MAX_BATCH,
    TENSORFLOW,
    check_engine,
    lacking,
)


@dataclass(frozen=True)
class TuneOptions:
    """Options of the search by `deploykit.tune`."""

    HEADING: ClassVar = "Search"

    batch: Annotated[Sequence[int] | int, Flag(format="counts", at_most=MAX_BATCH)] = ()
    """Batch sizes to try; the smallest one is used for the lowest latency [default: 1,8,32 if the
    model has no fixed batch]."""
    goal: Literal["latency", "throughput"] = "latency"
    """Recommend settings for low latency or for high throughput."""
    latency_limit: Annotated[float | None, Flag(metavar="MS", above=0)] = None
    """Limit on p99 latency, also at the highest throughput [default: none]."""
    engine: Literal["auto", "tensorflow", "openvino"] | None = None
    """Engine to search in; auto: the significantly faster one, if both are installed [default: the
    one that the model was written for, else tensorflow]."""
    env: Annotated[Given, Flag(metavar="NAME=VALUE", format="variable")] = field(
        default_factory=dict
    )
    """Set an environment variable of the process that runs the model, such as KMP_BLOCKTIME=1. The
    value is everything after the first =; NAME= unsets the variable. May be repeated: the search
    starts from the first value of a name and tries the others."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0)] = 2.8
    """Time limit of the whole search."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes to try."""
        return (self.batch,) if isinstance(self.batch, int) else tuple(self.batch)

    def check(self) -> None:
        """Raise GraphError for an engine that is not available."""
        if self.engine not in (None, AUTO):
            check_engine(self.engine)

    @property
    def variables(self) -> Sequence[Mapping[str, str | None]]:
        """Every combination of the values of `env`, of which the search starts from the first."""
        return process_variables.combinations(self.env)

    def engines(self, own: str) -> tuple[str, ...]:
        """Return the engines to search in, starting with the first; `own` is that of the model."""
        if self.engine == AUTO:
            return tuple(engine for engine in ENGINES if not lacking(engine))
        return (self.engine or (TENSORFLOW if lacking(own) else own),)


def held(variables: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Return the settings that the user's environment already defines, with the variable names."""
    results: dict[str, Iterable[str]] = {
        "onednn": RunConfig(onednn=True).given_by(variables),
        "caller_thread": RunConfig(env={CALLER_THREAD: "1"}).given_by(variables),
        "keep_memory": RunConfig(keep_memory=True).given_by(variables),
        "threads": [name for name in THREADS if name in variables],
    }
    return {name: tuple(names) for name, names in results.items() if names}


def coordinates(
    cores: int,
    sizes: Sequence[int | None],
    onednn: bool,
    retained: Mapping[str, Sequence[str]],
    engines: Sequence[str] = (TENSORFLOW,),
    variables: Sequence[Mapping[str, str | None]] = (),
) -> list[Coordinate]:
    """Return the changes to try, usually the most effective first.

    With one thread per op, concurrent calls do not wait for each other's ops. Changes of batch and
    concurrency need no new process. `variables` are values of environment variables to try; a
    change `without` gives variables back the value that the user's environment has.
    """
    every = len(os.sched_getaffinity(0))
    usual = None if cores == every else (cores, cores)  # TensorFlow ignores CPU quotas
    streams: list[dict[str, Any]] = [{"threads": usual, "concurrency": 1}]
    for flight in dict.fromkeys((cores, cores // 2)):
        if flight > 1:
            streams.append({"threads": (1, flight), "concurrency": flight})
            streams.append({"threads": usual, "concurrency": flight})
    alone = dict.fromkeys([(cores, 1), (1, cores), (max(1, cores // 2), 1), (1, 1)])
    others = [  # without the settings that a single engine has
        {"onednn": None, "executor": None, "engine": name} for name in reversed(engines)
    ]
    lean = [{"executor": "caller", "threads": (1, 1)}]  # many small ops gain only by both
    if "threads" in retained:
        lean = []
        streams = [{"concurrency": stream["concurrency"]} for stream in streams]
    named: list[tuple[str, Coordinate]] = [
        ("engine", others if len(engines) > 1 else []),
        ("onednn", [{"onednn": not onednn}, {"onednn": None}]),
        ("executor", [{"executor": "caller"}, *lean, {"executor": None}]),
        ("env", [{"env": item} for item in variables if len(variables) > 1]),
        ("caller_thread", [{"env": {CALLER_THREAD: "1"}}, {"without": [CALLER_THREAD]}]),
        ("keep_memory", [{"keep_memory": True}, {"keep_memory": None}]),
        ("streams", streams),
        ("batch", [{"batch": size} for size in sizes]),
        ("threads", [{"threads": item} for item in (usual, *alone)]),
    ]
    return [changes for name, changes in named if changes and name not in retained]
