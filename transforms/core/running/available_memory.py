"""How much memory processes can still take, on this machine or in its container."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MACHINE = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return the bytes that the machine has available or that a cgroup leaves, whichever is less.

    What a cgroup caches of files counts as left: the kernel drops it when memory runs short.
    """
    return min([_of_machine(), *_of_groups()])


def _of_machine() -> int:
    with contextlib.suppress(OSError):
        for line in _MACHINE.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_groups() -> Iterator[int]:
    """Yield what each cgroup of this process leaves; the limits of those above it hold as well.

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
        for each in dict.fromkeys((group, *group.parents)):
            if ".." not in each.parts and (left := _left(mount / each, *names)) is not None:
                yield left


def _left(group: Path, limit: str, usage: str, prefix: str) -> int | None:
    try:
        most, used = int((group / limit).read_text()), int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # there is none, or its limit is "max"
        return None
    cached = sum(int(stat.get(f"{prefix}{each}_file", 0)) for each in ("inactive", "active"))
    return max(most - max(used - cached, 0), 0)
