"""TuneOptions, and the settings that tuning tries."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.search import Coordinate
from deploykit.system import allocators
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

    def engines(self, own: str) -> tuple[str, ...]:
        """Return the engines to search in, starting with the first; `own` is that of the model."""
        if self.engine == AUTO:
            return tuple(engine for engine in ENGINES if not lacking(engine))
        return (self.engine or (TENSORFLOW if lacking(own) else own),)


_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def held(variables: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the settings that the user's environment already defines, with the variable names."""
    settings_of = {
        "onednn": RunConfig(onednn=True),
        "caller_thread": RunConfig(caller_thread=True),
        "keep_memory": RunConfig(keep_memory=True),
    }
    results = {
        name: tuple(item for item in settings.environment if item in variables)
        for name, settings in settings_of.items()
    }
    if allocators.is_tuned(variables):
        results["keep_memory"] += (allocators.TUNABLES,)
    results["allocator"] = allocators.held(variables)
    results["threads"] = tuple(variable for variable in _THREADS if variable in variables)
    return {name: names for name, names in results.items() if names}


def coordinates(
    cores: int,
    sizes: Sequence[int | None],
    onednn: bool,
    retained: Mapping[str, Sequence[str]],
    here: Sequence[str] = (),
    engines: Sequence[str] = (TENSORFLOW,),
) -> list[Coordinate]:
    """Return the changes to try, usually the most effective first.

    With one thread per op, concurrent calls do not wait for each other's ops. Changes of batch and
    concurrency need no new process. `here` are the available allocators. The C library's memory
    settings have no effect on tcmalloc.
    """
    every = len(os.sched_getaffinity(0))
    usual = None if cores == every else (cores, cores)  # TensorFlow ignores CPU quotas
    streams: list[dict[str, Any]] = [{"threads": usual, "concurrency": 1}]
    for flight in dict.fromkeys((cores, cores // 2)):
        if flight > 1:
            streams.append({"threads": (1, flight), "concurrency": flight})
            streams.append({"threads": usual, "concurrency": flight})
    alone = dict.fromkeys([(cores, 1), (1, cores), (max(1, cores // 2), 1), (1, 1)])
    lean = [{"executor": "caller", "threads": (1, 1)}]  # many small ops gain only by both
    if "threads" in retained:
        lean = []
        streams = [{"concurrency": stream["concurrency"]} for stream in streams]
    named: list[tuple[str, Coordinate]] = [
        ("engine", _engines(engines)),
        ("onednn", [{"onednn": not onednn}, {"onednn": None}]),
        ("executor", [{"executor": "caller"}, *lean, {"executor": None}]),
        ("caller_thread", [{"caller_thread": True}, {"caller_thread": None}]),
        ("memory", _memory(retained, here)),
        ("streams", streams),
        ("batch", [{"batch": size} for size in sizes]),
        ("threads", [{"threads": item} for item in (usual, *alone)]),
    ]
    return [changes for name, changes in named if changes and name not in retained]


def _engines(names: Sequence[str]) -> Coordinate:
    """Return the changes of the engine, if there are several; they reset settings of a single
    engine.
    """
    if len(names) == 1:
        return []
    retained = ("batch", "concurrency", "threads", "keep_memory", "engine")
    bare = {
        field_.name: field_.default for field_ in fields(RunConfig) if field_.name not in retained
    }
    return [{**bare, "engine": None if name == TENSORFLOW else name} for name in reversed(names)]


def _memory(retained: Mapping[str, Sequence[str]], here: Sequence[str]) -> Coordinate:
    """Return the changes of the allocator and of the C library's memory."""
    results: dict[tuple[tuple[str, Any], ...], None] = {}
    for keep, allocator in ((True, None), (None, "tcmalloc"), (True, "huge-pages"), (None, None)):
        if allocator is None or allocator in here:
            both = {"keep_memory": keep, "allocator": allocator}
            results[
                tuple((name, value) for name, value in both.items() if name not in retained)
            ] = None
    return [dict(result) for result in results]
