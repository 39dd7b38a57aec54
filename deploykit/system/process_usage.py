"""Resource use of deploykit's processes, and files in the page cache.

Interleaved input pipelines read the same files. Data that one of them read from a slow disk would
be in memory for the next, which would seem faster. Sources: mincore(2), posix_fadvise(2), and
Linux's Documentation/scheduler/sched-stats.rst for the time in which a runnable thread waited for a
CPU.
"""

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_QUIET = 0.1  # seconds
_MOSTLY = 0.5  # of a file's pages


@dataclass(frozen=True)
class OwnUse:
    """Resource use of processes; None: the kernel does not report it."""

    cpu_seconds: float
    waited_seconds: float | None
    """Seconds in which runnable threads waited for a CPU, summed over all threads."""
    read_bytes: int | None
    """Bytes read from storage, not from memory."""
    asked_bytes: int | None
    """Bytes requested from files and pipes, whatever their source."""


@dataclass(frozen=True)
class OwnLook:
    """The kernel's counters for this process and its helper processes."""

    cpu: float
    waits: dict[tuple[int, str], int] | None
    """Waiting time in nanoseconds by process and thread."""
    io: tuple[int, int] | None
    """Bytes read from storage, and bytes requested from files and pipes."""

    @classmethod
    def now(cls, helpers: Sequence[int] = ()) -> "OwnLook":
        """Read the counters of this process and of its helpers, given by their process ids."""
        every = (os.getpid(), *helpers)
        cpu = time.process_time() + sum(map(cpu_seconds, helpers))
        return cls(cpu, _waits(every), _io(every))

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


def _waits(processes: Sequence[int]) -> dict[tuple[int, str], int] | None:
    results = {}
    for process in processes:
        tasks = Path(f"/proc/{process}/task")
        with contextlib.suppress(OSError):
            for thread in tasks.iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it may just have ended
                    counts = (thread / "schedstat").read_text().split()
                    results[process, thread.name] = int(counts[1])
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
        with open(path, "rb") as file, _mapped(file.fileno()) as pages:
            start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
            states = (ctypes.c_ubyte * -(-len(pages) // mmap.PAGESIZE))()
            length = ctypes.c_size_t(len(pages))
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(start), length, states)
            return 1.0 if failed else sum(state & 1 for state in states) / len(states)
    except (OSError, ValueError, BufferError, AttributeError):  # empty, deleted, or not a file
        return 1.0


def _mapped(number: int) -> mmap.mmap:
    """Map a file as a private copy, which uses no memory until it is written."""
    return mmap.mmap(number, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
