"""What tuning tries: values of settings, as far as the environment does not hold them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from deploykit.benchmarking.settings import RunConfig
from deploykit.benchmarking.tuning.searching import Coordinate
from deploykit.hardware import allocators
from deploykit.transforms.core.engines.engines import TENSORFLOW

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def held(variables: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the settings that the user's environment holds already, with the variables' names."""
    wanted = {
        "onednn": RunConfig(onednn=True),
        "caller_thread": RunConfig(caller_thread=True),
        "keep_memory": RunConfig(keep_memory=True),
    }
    found = {
        name: tuple(each for each in settings.environment if each in variables)
        for name, settings in wanted.items()
    }
    if allocators.is_tuned(variables):
        found["keep_memory"] += (allocators.TUNABLES,)
    found["allocator"] = allocators.held(variables)
    found["threads"] = tuple(each for each in _THREADS if each in variables)
    return {name: names for name, names in found.items() if names}


def coordinates(
    cores: int,
    sizes: Sequence[int | None],
    onednn: bool,
    kept: Mapping[str, Sequence[str]],
    here: Sequence[str] = (),
    engines: Sequence[str] = (TENSORFLOW,),
) -> list[Coordinate]:
    """Return what to try, what usually pays first; the batch and calls in flight share starts.

    With one thread inside ops, calls in flight do not wait for each other's ops. `here` are the
    allocators that this machine has; what keeps the C library's memory says nothing to tcmalloc.
    """
    every = len(os.sched_getaffinity(0))
    usual = None if cores == every else (cores, cores)  # TensorFlow sees no quota
    streams: list[dict[str, Any]] = [{"threads": usual, "concurrency": 1}]
    for flight in dict.fromkeys((cores, cores // 2)):
        if flight > 1:
            streams.append({"threads": (1, flight), "concurrency": flight})
            streams.append({"threads": usual, "concurrency": flight})
    alone = dict.fromkeys([(cores, 1), (1, cores), (max(1, cores // 2), 1), (1, 1)])
    lean = [{"executor": "caller", "threads": (1, 1)}]  # many small ops gain by both alone
    if "threads" in kept:
        lean = []
        streams = [{"concurrency": each["concurrency"]} for each in streams]
    found: list[tuple[str, Coordinate]] = [
        ("engine", _engines(engines)),
        ("onednn", [{"onednn": not onednn}, {"onednn": None}]),
        ("executor", [{"executor": "caller"}, *lean, {"executor": None}]),
        ("caller_thread", [{"caller_thread": True}, {"caller_thread": None}]),
        ("memory", _memory(kept, here)),
        ("streams", streams),
        ("batch", [{"batch": size} for size in sizes]),
        ("threads", [{"threads": each} for each in (usual, *alone)]),
    ]
    return [changes for name, changes in found if changes and name not in kept]


def _engines(names: Sequence[str]) -> Coordinate:
    """Return what to try of engines, where there are several; what only one has, goes with it."""
    if len(names) == 1:
        return []
    kept = ("batch", "concurrency", "threads", "keep_memory", "engine")
    bare = {each.name: each.default for each in fields(RunConfig) if each.name not in kept}
    return [{**bare, "engine": None if each == TENSORFLOW else each} for each in reversed(names)]


def _memory(kept: Mapping[str, Sequence[str]], here: Sequence[str]) -> Coordinate:
    """Return what to try of the allocator and of the memory that the C library keeps."""
    found: dict[tuple[tuple[str, Any], ...], None] = {}
    for keep, allocator in ((True, None), (None, "tcmalloc"), (True, "huge-pages"), (None, None)):
        if allocator is None or allocator in here:
            both = {"keep_memory": keep, "allocator": allocator}
            found[tuple((name, value) for name, value in both.items() if name not in kept)] = None
    return [dict(each) for each in found]
