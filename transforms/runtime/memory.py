"""Memory that processes can still allocate, and freed memory returned to the kernel."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MACHINE = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self/statm")


def available_memory() -> int:
    """Return the bytes available on the machine or in the cgroup, whichever is less.

    File cache of a cgroup counts as available: the kernel drops it when memory runs short.
    """
    return min([_of_machine(), *_of_groups()])


def resident_memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(_PROCESS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _of_machine() -> int:
    with contextlib.suppress(OSError):
        for line in _MACHINE.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_groups() -> Iterator[int]:
    """Yield the available bytes of each cgroup of this process; limits of parents apply as well.

    In a container the path may be that of the host: then the mount itself is the cgroup.
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:  # no cgroups
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = PurePosixPath(path.lstrip("/"))
        if not controllers:
            names, mount = ("memory.max", "memory.current", ""), _MOUNT
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            mount = _MOUNT / "memory"
        else:
            continue
        for parent in dict.fromkeys((group, *group.parents)):
            if ".." not in parent.parts and (left := _left(mount / parent, *names)) is not None:
                yield left


def _left(group: Path, limit: str, usage: str, prefix: str) -> int | None:
    try:
        most, used = int((group / limit).read_text()), int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # there is none, or its limit is "max"
        return None
    cached = sum(int(stat.get(f"{prefix}{name}_file", 0)) for name in ("inactive", "active"))
    return max(most - max(used - cached, 0), 0)


_GIVE_BACK = {"malloc_trim": (0,), "MallocExtension_ReleaseFreeMemory": ()}
"""Functions of the C library and, if preloaded, of tcmalloc, with arguments."""
# Of glibc's malloc.h. Setting either threshold stops the other one from growing, so it is set to
# its largest value.
_M_ARENA_MAX, _M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -8, -1, -3
_KEPT = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 16 << 20}


def give_back() -> None:
    """Return the allocator's free memory to the kernel; does nothing for other C libraries."""
    program = ctypes.CDLL(None)
    for name, arguments in _GIVE_BACK.items():
        with contextlib.suppress(AttributeError):
            getattr(program, name)(*arguments)


def keep_less(arenas: int) -> None:
    """Limit glibc's free memory: to `arenas` arenas instead of 8 per core, and 16 MiB in each.

    The default is 64 MiB after large blocks were used: if a thread has freed the end of its arena,
    no other call returns that memory. Settings in the environment have precedence.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for variable, tunable, settings in (
        ("MALLOC_ARENA_MAX", "arena_max", {_M_ARENA_MAX: arenas}),
        ("MALLOC_TRIM_THRESHOLD_", "trim_threshold", _KEPT),
    ):
        if variable not in os.environ and f"malloc.{tunable}" not in tunables:
            for item, value in settings.items():
                with contextlib.suppress(AttributeError):
                    ctypes.CDLL(None).mallopt(item, value)
