"""Limits on the resident memory of a process, which its parent enforces.

Linux keeps RLIMIT_RSS but ignores it, so a process states its limit there and its parent, which can
read it, ends the process. Address space does not count: oneDNN and allocators reserve ten times
what they use.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

INTERVAL = 0.04
"""Seconds between two looks at a process."""
_RESERVED = 16 << 30  # bytes of address space that an engine may reserve without using them
_NEAR = 0.9  # of a limit: a library that failed to allocate more may have ended the process

_COUNTED = ("RssAnon:", "RssShmem:")  # the kernel drops pages of mapped files if memory runs short
_SPACES = {"VmData:": resource.RLIMIT_DATA, "VmSize:": resource.RLIMIT_AS}
_ENGINES = ("tensorflow", "keras", "tf_keras", "openvino")

_baseline: int | None = None
_memory: int | None = None
_imports = 0  # engines whose import has not ended
_reserved = 0


@dataclass(frozen=True)
class Usage:
    """The memory of a process in bytes."""

    resident: int
    """Without pages of mapped files."""
    spaces: dict[int, int]
    """Address space, by the resource that limits it."""


def usage(pid: int | str = "self") -> Usage | None:
    """Return the memory of a process; None: it has ended."""
    sizes = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition("\t")
            if name in _COUNTED or name in _SPACES:
                sizes[name] = int(value.split()[0]) << 10
    if not sizes:  # a process that has ended and was not waited for has no memory
        return None
    resident = sum(sizes.get(name, 0) for name in _COUNTED)
    return Usage(resident, {limit: sizes[name] for name, limit in _SPACES.items()})


def limit(memory: int | None) -> None:
    """Let this process hold `memory` more bytes than at its first call; None: no limit.

    Its address space is limited too, so that one large allocation fails at once.
    """
    global _baseline, _memory
    if _baseline is None:
        _baseline = resident()
    _memory = memory
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


def _apply() -> None:
    if _memory is None:
        _set(resource.RLIMIT_RSS, None)
        _set(resource.RLIMIT_DATA, None)
    elif _baseline is not None:
        _set(resource.RLIMIT_RSS, None if _imports else _baseline + _memory)
        _set(resource.RLIMIT_DATA, _memory + _reserved)


def _set(kind: int, most: int | None) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = hard if most is None else most
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


@contextlib.contextmanager
def importing_engine() -> Iterator[None]:
    """Do not count the memory that the block adds: it imports an engine; it may be nested."""
    global _baseline, _imports, _reserved
    before = usage() if _baseline is not None and not _imports else None
    _imports += 1
    if before is not None:
        _reserved = _RESERVED
        _apply()
    try:
        yield
    finally:
        _imports -= 1
        if before is not None and _baseline is not None:
            if (after := usage()) is not None:
                _baseline += max(0, after.resident - before.resident)
            _apply()


def is_exceeded(pid: int) -> bool:
    """Return whether a process has grown beyond its limit."""
    state = _state(pid)
    return state is not None and state[0].resident > state[1]


def _state(pid: int) -> tuple[Usage, int, bool] | None:
    """Return the memory of a process, its limit in bytes, and whether it is near any limit."""
    now = usage(pid)
    try:
        most, _ = resource.prlimit(pid, resource.RLIMIT_RSS)
        limits = {kind: resource.prlimit(pid, kind)[0] for kind in _SPACES.values()}
    except (ProcessLookupError, PermissionError):
        return None
    if now is None or most == resource.RLIM_INFINITY:
        return None
    sizes = {most: now.resident} | {limits[kind]: size for kind, size in now.spaces.items()}
    is_near = any(
        limit != resource.RLIM_INFINITY and size > _NEAR * limit for limit, size in sizes.items()
    )
    return now, most, is_near


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
                if (state := _state(pid)) is not None:
                    now, most, _watched[pid] = state
                    if now.resident > most:
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
