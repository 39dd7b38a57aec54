"""Limits on the resident memory of a process, which its ancestors enforce.

Linux keeps RLIMIT_RSS but ignores it, so a process states its limit there and its ancestors, which
can read it, end the process. Address space does not count: oneDNN and allocators reserve ten times
what they use.
"""

import contextlib
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

INTERVAL = 0.04
"""Seconds between two looks at a process."""
_LISTED = 0.4  # seconds in which a new process has hardly started Python
_RESERVED = 16 << 30  # bytes of address space that an engine may reserve without using them
_SPARE = 256 << 20  # the same for Python and its libraries
_SPACES = {"VmData:": resource.RLIMIT_DATA, "VmSize:": resource.RLIMIT_AS}
_COUNTED = ("RssAnon:", "RssShmem:")  # the kernel drops pages of mapped files if memory runs short
_NEAR = {"resident": 0.9, resource.RLIMIT_DATA: 0.9, resource.RLIMIT_AS: 0.5}
"""Shares of limits beyond which a library may have ended the process as it could not allocate. A
library maps its files in one piece, which does not fit into the rest of a small address space."""
_ENGINES = ("tensorflow", "keras", "tf_keras", "openvino")
_RLIMIT_LOCKS = 10  # Linux ignores it as well, and few users set it

_baseline: int | None = None
_addresses = 0  # private address space at the first call of `limit`
_memory: int | None = None
_imports = 0  # engines whose import has not ended
_reserved = _SPARE


@dataclass(frozen=True)
class MemoryUsage:
    """The memory of a process in bytes."""

    resident: int
    """Without pages of mapped files, if the kernel tells them apart."""
    spaces: Mapping[int, int]
    """Address space, by the resource that limits it."""


def usage(pid: int | str = "self") -> MemoryUsage | None:
    """Return the memory of a process; None: it has ended."""
    sizes = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition("\t")
            if name.startswith(("Vm", "Rss")):
                sizes[name] = int(value.split()[0]) << 10
    if not sizes:  # a process that has ended and was not waited for has no memory
        return None
    counted = [sizes[name] for name in _COUNTED if name in sizes] or [sizes.get("VmRSS:", 0)]
    return MemoryUsage(sum(counted), {kind: sizes.get(name, 0) for name, kind in _SPACES.items()})


def _stated_in() -> int:
    """Return the resource in which processes state their limits; children inherit the choice.

    RLIMIT_RSS cannot be raised where a batch system or `ulimit -m` has set it.
    """
    is_free = resource.getrlimit(resource.RLIMIT_RSS)[1] == resource.RLIM_INFINITY
    return resource.RLIMIT_RSS if is_free else _RLIMIT_LOCKS


def limit(memory: int | None) -> None:
    """Let this process hold `memory` more bytes than at its first call; None: no limit.

    Its address space is limited too, so that one large allocation fails at once.
    """
    global _baseline, _addresses, _memory
    if _baseline is None:
        now = usage()
        _baseline = 0 if now is None else now.resident
        _addresses = 0 if now is None else now.spaces[resource.RLIMIT_DATA]
    _memory = memory
    _apply()


def _apply() -> None:
    if _memory is None:
        _set(_stated_in(), None)
        _set(resource.RLIMIT_DATA, None)
    elif _baseline is not None:
        _set(_stated_in(), None if _imports else _baseline + _memory)
        _set(resource.RLIMIT_DATA, _addresses + _memory + _reserved)


def _set(kind: int, most: int | None) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = hard if most is None else most
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


@contextlib.contextmanager
def importing_engine() -> Iterator[None]:
    """Do not count the memory that the block adds: it imports an engine; it may be nested."""
    global _baseline, _imports, _reserved
    before = resident() if _baseline is not None and not _imports else None
    _imports += 1
    if before is not None:
        _reserved = _RESERVED
        _apply()
    try:
        yield
    finally:
        _imports -= 1
        if before is not None and _baseline is not None:
            _baseline += max(0, resident() - before)
            _apply()


def bound_address_space(memory: int) -> None:
    """Let allocations of this process fail that are far beyond `memory` bytes."""
    _set(resource.RLIMIT_DATA, memory + _RESERVED)


def resident() -> int:
    """Return the resident memory of this process in bytes, without pages of mapped files."""
    now = usage()
    return 0 if now is None else now.resident


def own_limit() -> int | None:
    """Return the bytes that this process may hold; None: no limit."""
    return _memory


@dataclass(frozen=True)
class MemoryState:
    """How a process stands to its limits."""

    is_exceeded: bool
    is_near: bool
    """Whether it is near any limit of memory or address space."""


def state(pid: int) -> MemoryState | None:
    """Return how a process stands to its limits; None: it has ended, or states none."""
    now = usage(pid)
    try:
        most, _ = resource.prlimit(pid, _stated_in())
        limits = {kind: resource.prlimit(pid, kind)[0] for kind in _SPACES.values()}
    except (ProcessLookupError, PermissionError):
        return None
    if now is None or most == resource.RLIM_INFINITY:
        return None
    is_near = now.resident > _NEAR["resident"] * most or any(
        limit != resource.RLIM_INFINITY and now.spaces[kind] + _SPARE > _NEAR[kind] * limit
        for kind, limit in limits.items()
    )
    return MemoryState(now.resident > most, is_near)


class Family:
    """A process and its descendants, watched by a parent that does nothing else.

    A thread of a process that computes in Python cannot look at its children in time.
    """

    def __init__(self, pid: int) -> None:
        """Watch a child process of this process."""
        self._pid = pid
        self._descendants: list[int] = []
        self._listed = -math.inf
        self.was_near = False
        """Whether the process was near a limit at the last look."""

    def look(self) -> bool:
        """Kill descendants beyond their limits; return whether the process is beyond its own."""
        if time.monotonic() - self._listed > _LISTED:
            self._listed, self._descendants = time.monotonic(), _descendants(self._pid)
        for pid in self._descendants:
            if (found := state(pid)) is not None and found.is_exceeded:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        own = state(self._pid)
        self.was_near = own is not None and (own.is_near or own.is_exceeded)
        return own is not None and own.is_exceeded


def _descendants(ancestor: int) -> list[int]:
    """Return the process IDs of all descendants; empty if the kernel does not tell."""
    found = [ancestor]
    for pid in found:  # which grows
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found[1:]


_lock = threading.Lock()
_watched: dict[int, bool] = {}
"""By process ID, whether the process was near a limit when it was last seen."""
_watcher: threading.Thread | None = None


def watch(pid: int) -> None:
    """Kill a child process of this process as soon as it has grown beyond its limit."""
    global _watcher
    with _lock:
        _watched.setdefault(pid, False)
        if _watcher is None:
            _watcher = threading.Thread(target=_watch, daemon=True, name="watches memory")
            _watcher.start()


def unwatch(pid: int) -> bool:
    """Stop watching, and return whether the process was killed or was near a limit.

    The process must not have been waited for: its ID could be that of another one.
    """
    with _lock:
        return _watched.pop(pid, False)


def _watch() -> None:
    global _watcher
    while True:
        time.sleep(INTERVAL)
        with _lock:
            if not _watched:
                _watcher = None
                return
            for pid in _watched:
                if (found := state(pid)) is not None:
                    _watched[pid] = found.is_near or found.is_exceeded
                    if found.is_exceeded:
                        os.kill(pid, signal.SIGKILL)


def _after_fork() -> None:
    """Forget the thread and the children, which a forked process does not have."""
    global _watcher, _lock
    _watcher, _lock = None, threading.Lock()
    _watched.clear()


os.register_at_fork(after_in_child=_after_fork)


class _CountedOut(MetaPathFinder):
    """Does not count what the import of an engine adds, wherever it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of an engine, whose loader runs in `importing_engine`."""
        spec = PathFinder.find_spec(name, path, target) if name in _ENGINES else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with importing_engine():
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def count_engines_out() -> None:
    """Do not count what the imports of engines add to this process from now on."""
    sys.meta_path.insert(0, _CountedOut())
