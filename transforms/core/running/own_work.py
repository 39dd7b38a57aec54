"""Bounds of what a command's own process computes and holds, between its runs in TensorFlow.

They are the kernel's: neither a loop in C nor a file that unpacks without end gets around them.
Whoever started the process says what became of it.

Where --memory-limit is not given, the command's process and each child may take 70 % of the memory
that is available when the command starts. `serve` has no such limit.
"""

import contextlib
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from deploykit.transforms.core.running.available_memory import available_memory

_STATUS = Path("/proc/self/status")
_SHARE = 0.7  # of the available memory: other processes need some too

_lock = threading.Lock()
_seconds: float | None = None
_waiting = 0
_on_cap: Callable[[], None] | None = None  # None: nobody watches this process, so it is unbounded
_default_cap: int | None = None
_internal_seconds: float | None = None


def watched(on_cap: Callable[[], None]) -> None:
    """Take the bounds that hold where none are given, in a process that another one watches.

    `on_cap` is called where a cap on memory is asked for.
    """
    global _on_cap, _default_cap
    _on_cap, _default_cap = on_cap, int(_SHARE * available_memory())
    _cap(_default_cap)


def default_cap() -> int | None:
    """Return the memory limit in bytes where none is given; None: this process is not watched."""
    return _default_cap


def bound(seconds: float | None = None, memory: int | None = None) -> None:
    """Let each stretch of own work last so long at most, and take so many bytes.

    Beyond, a process that is watched gets SIGALRM or a MemoryError; in any other one, nothing is
    bounded.
    """
    global _seconds
    if _on_cap is None:
        return
    if memory is not None:
        _on_cap()
        _cap(memory)
    if seconds is not None:
        with _lock:
            _seconds = seconds
            signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Wait for another process, whose own deadline holds, while the block lasts."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _waiting
    with _lock:
        _waiting += change
        if _seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0 if _waiting else _seconds)


def lift_cap(memory: int | None) -> None:
    """Take this cap instead of the one that the parent has for itself; None: no cap."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    _cap(hard if memory is None else memory)


def bound_internal_runs(seconds: float) -> None:
    """Let `internal_run` bound what this process, a child, runs for deploykit itself."""
    global _internal_seconds
    _internal_seconds = seconds


@contextlib.contextmanager
def internal_run(growth: int | None = None) -> Iterator[None]:
    """Run something for deploykit itself: beyond the seconds for it, SIGALRM ends the process.

    The process may take `growth` bytes more than it has. In no child, nothing is bounded.
    """
    if _internal_seconds is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if growth is not None:
        _cap_growth(growth)
    signal.setitimer(signal.ITIMER_REAL, _internal_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _cap_growth(more: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmData:"):
            most = (int(line.split()[1]) << 10) + more
            _cap(most if soft == resource.RLIM_INFINITY else min(most, soft))


def _cap(memory: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
