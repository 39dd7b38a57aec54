"""Pinning of worker processes, each to a CPU of its own.

A process claims a CPU by binding a name, an abstract Unix socket address (unix(7)). Such a name is
in no file system and is visible to all users of a machine. The kernel releases it when a process
ends. Other sources: sched_setaffinity(2), and Linux's Documentation/admin-guide/cputopology.rst.
"""

import errno
import itertools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploykit.system.cpu_usage import WORK, cpu_ticks

_NAME = "deploykit-own"
_BOUND = Path("/proc/net/unix")
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_LOOK = 0.1  # seconds

_held: list[socket.socket] = []  # as long as this process lives


def take_own_cpu() -> int:
    """Pin this process, with all its threads, to one of its usable CPUs, and return the CPU.

    It is the least loaded CPU that no other process has claimed, on an unclaimed core. If all are
    claimed, they are shared evenly. -1: the platform does not support pinning.
    """
    if not hasattr(os, "sched_setaffinity"):
        return -1
    usable = sorted(os.sched_getaffinity(0))
    busy = _busy(usable) if len(usable) > 1 else {}
    quiet_first = sorted(usable, key=lambda cpu: busy.get(cpu, 0))
    cpu = _claimed(quiet_first, {cpu: _core(cpu) for cpu in usable})
    return cpu if _moved_to(cpu) else -1


def _claimed(cpus: Sequence[int], cores: Mapping[int, tuple[int, ...]]) -> int:
    """Claim the first available CPU and return it; without claims, return the first one."""
    try:
        used = _taken()
        for cpu in cpus:
            core = cores[cpu]
            if not used.intersection(core) and (whole := _bound(f"core-{core[0]}")):
                if own := _bound(f"0-{cpu}"):
                    _held.extend((whole, own))
                    return cpu
                whole.close()
        for level, cpu in ((level, cpu) for level in itertools.count() for cpu in cpus):
            if own := _bound(f"{level}-{cpu}"):
                _held.append(own)
                return cpu
    except OSError:  # abstract addresses are not available
        pass
    return cpus[0]


def _bound(name: str) -> socket.socket | None:
    """Return a socket that holds a name until it is closed; None: another process has it.

    It accepts no connections, so no process can send anything to it.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(f"\0{_NAME}-{name}")
    except OSError as error:
        holder.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return holder


def _taken() -> set[int]:
    """Return the CPUs that processes have claimed."""
    start = f"@{_NAME}-0-"
    try:
        names = [line.rpartition(" ")[2] for line in _BOUND.read_text().splitlines()]
    except OSError:
        return set()
    return {int(name.removeprefix(start)) for name in names if name.startswith(start)}


def _core(cpu: int) -> tuple[int, ...]:
    """Return the CPUs of the same core, including the given one, in order."""
    try:
        text = Path(_SIBLINGS.format(cpu)).read_text()
        spans = [list(map(int, part.split("-"))) for part in text.strip().split(",")]
        results = {index for span in spans for index in range(span[0], span[-1] + 1)}
    except (OSError, ValueError):
        results = set()
    return tuple(sorted(results | {cpu}))


def _busy(cpus: Sequence[int]) -> dict[int, float]:
    """Return the seconds that each CPU was in use or stolen, during a short sample."""
    before = cpu_ticks()
    time.sleep(_LOOK)
    now = cpu_ticks()
    return {
        cpu: sum(now[cpu][kind] - before[cpu][kind] for kind in (*WORK, "steal"))
        for cpu in cpus
        if cpu in now and cpu in before
    }


def _moved_to(cpu: int) -> bool:
    """Pin all threads of this process to a CPU; return whether that is permitted."""
    try:
        os.sched_setaffinity(0, {cpu})  # threads that begin later inherit it
    except OSError:
        return False
    for thread in _threads():
        try:
            os.sched_setaffinity(thread, {cpu})
        except OSError:  # it has just ended
            continue
    return True


def _threads() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return []
