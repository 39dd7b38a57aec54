"""Use of the CPUs between two samples: work, idle time, waiting for disks, and steal time.

Sources: proc_stat(5) for the times of each CPU; Linux's Documentation/accounting/psi.rst for the
time in which a runnable process had to wait.
"""

import contextlib
import ctypes
import errno
import itertools
import mmap
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil

from deploykit.transforms.common.documents import NOT_NEGATIVE, Written

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
WORK = ("user", "nice", "system", "irq", "softirq")
"""States in which a CPU works for a process of this machine."""
_NONE = dict.fromkeys(_FIELDS, 0.0)


Cores = Annotated[float, Written(digits=3), NOT_NEGATIVE]


@dataclass(frozen=True)
class Activity:
    """Use of the CPUs available to this process, in cores: 1.5 is one and a half of them."""

    seconds: Cores
    """Seconds between the two samples."""
    busy: Cores
    """Cores used by any process of this machine."""
    idle: Cores
    """Idle cores, without those waiting for disks."""
    iowait: Cores
    """Cores that were idle while a process waited for a disk."""
    steal: Cores
    """Cores taken by the host of this virtual machine."""
    waiting: Annotated[Annotated[float, NOT_NEGATIVE] | None, Written(digits=3)]
    """Share of the time in which a runnable process waited for a CPU, from 0 to 1; None: the kernel
    does not report it."""

    def foreign(self, own: float) -> float:
        """Return the cores used by others, given the `own` cores used by deploykit's processes."""
        return max(0.0, self.busy - own) + self.steal


@dataclass(frozen=True)
class Look:
    """The kernel's CPU counters at one time."""

    at: float
    ticks: dict[str, float]
    """Seconds of all usable CPUs in each state."""
    waited: float | None

    @classmethod
    def now(cls) -> "Look":
        """Read the counters. Without `/proc/stat`, all are 0."""
        return cls(time.monotonic(), _ticks(), _waited())

    def since(self, earlier: "Look") -> Activity:
        """Return the use between an earlier sample and this one."""
        seconds = max(self.at - earlier.at, 1e-9)
        cores = {
            name: max(0.0, self.ticks[name] - earlier.ticks[name]) / seconds for name in _FIELDS
        }
        waiting = None
        if self.waited is not None and earlier.waited is not None:
            waiting = min(1.0, max(0.0, self.waited - earlier.waited) / seconds)
        return Activity(
            seconds,
            busy=sum(cores[name] for name in WORK),
            idle=cores["idle"],
            iowait=cores["iowait"],
            steal=cores["steal"],
            waiting=waiting,
        )


def cpu_ticks() -> dict[int, dict[str, float]]:
    """Return the seconds that each CPU of this machine has spent in each state; empty if the kernel
    does not report them.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    hertz = os.sysconf("SC_CLK_TCK")
    results = {}
    for name, *counts in (line.split() for line in lines if line.startswith("cpu")):
        if number := name.removeprefix("cpu"):
            ticks = [int(count) / hertz for count in counts]
            results[int(number)] = {**_NONE, **dict(zip(_FIELDS, ticks, strict=False))}
    return results


def _ticks() -> dict[str, float]:
    usable, every = os.sched_getaffinity(0), cpu_ticks()
    known = [ticks for cpu, ticks in every.items() if cpu in usable]
    return {field: sum(ticks[field] for ticks in known) for field in _FIELDS}


def _waited() -> float | None:
    try:
        first = Path("/proc/pressure/cpu").read_text().split("\n")[0]
        return int(first.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


_QUIET = 0.1  # seconds
_MOSTLY = 0.5  # of a file's pages


@dataclass(frozen=True)
class OwnUse:
    """Resource use of this process; None: the kernel does not report it."""

    cpu_seconds: float
    waited_seconds: float | None
    """Seconds in which runnable threads waited for a CPU, summed over all threads."""
    read_bytes: int | None
    """Bytes read from storage, not from memory."""
    asked_bytes: int | None
    """Bytes requested from files and pipes, whatever their source."""


@dataclass(frozen=True)
class OwnLook:
    """The kernel's counters for this process."""

    cpu: float
    waits: dict[str, int] | None
    """Waiting time in nanoseconds by thread."""
    io: tuple[int, int] | None
    """Bytes read from storage, and bytes requested from files and pipes."""

    @classmethod
    def now(cls) -> "OwnLook":
        """Read the counters."""
        return cls(time.process_time(), _waits(), _io([os.getpid()]))

    def since(self, earlier: "OwnLook") -> OwnUse:
        """Return the use between an earlier sample and this one."""
        waited = None
        if self.waits is not None and earlier.waits is not None:
            waited = sum(
                max(0, nanoseconds - earlier.waits.get(thread, 0))
                for thread, nanoseconds in self.waits.items()
            ) / 1e9  # fmt: skip
        read = requested = None
        if self.io is not None and earlier.io is not None:
            read, requested = (
                max(0, now - then) for now, then in zip(self.io, earlier.io, strict=True)
            )
        return OwnUse(max(0.0, self.cpu - earlier.cpu), waited, read, requested)


def wait_for_idle(processes: Sequence[int], longest: float) -> None:
    """Wait until none of the processes reads files any more, for `longest` seconds at most."""
    end, before = time.monotonic() + longest, None
    while (now := _io(processes)) != before and now is not None and time.monotonic() < end:
        before = now
        time.sleep(_QUIET)


def not_in_memory(files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of which less than half is in memory, without unreadable files."""
    return tuple(file for file in files if _share(file) < _MOSTLY)


def forget(files: Iterable[str]) -> None:
    """Drop files from the page cache, so that the next read waits for the disk."""
    for file in files:
        with contextlib.suppress(OSError), open(file, "rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of another process in seconds; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(process).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _waits() -> dict[str, int] | None:
    results = {}
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it may just have ended
                results[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return results or None


def _io(processes: Sequence[int]) -> tuple[int, int] | None:
    try:
        results = [psutil.Process(process).io_counters() for process in processes]
    except (psutil.Error, OSError, RuntimeError):  # one has ended, or the kernel does not report it
        return None
    return sum(result.read_bytes for result in results), sum(
        result.read_chars for result in results
    )


def _share(path: str) -> float:
    """Return the share of a file that is in memory, from 0 to 1."""
    try:
        # A private copy uses no memory until it is written.
        how = mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, *how) as pages:
            start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
            states = (ctypes.c_ubyte * -(-len(pages) // mmap.PAGESIZE))()
            length = ctypes.c_size_t(len(pages))
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(start), length, states)
            return 1.0 if failed else sum(state & 1 for state in states) / len(states)
    except (OSError, ValueError, BufferError, AttributeError):  # empty, deleted, or not a file
        return 1.0


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
