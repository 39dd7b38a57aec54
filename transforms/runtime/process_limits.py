"""Limits on a command's main process, and the exit of child processes when their parent exits."""

import contextlib
import ctypes
import os
import queue
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from deploykit.transforms.runtime import resident_memory
from deploykit.transforms.runtime.memory import available_memory

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h

Started = TypeVar("Started")
_requests: "queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]" = queue.SimpleQueue()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent, given by its process ID, ends.

    If the parent has ended already, the process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def start(process: Callable[[], Started]) -> Started:
    """Return the result of `process`, which starts a process, from a thread that does not end."""
    if threading.current_thread() is threading.main_thread():
        return process()
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_answer, daemon=True, name="starts processes")
            _thread.start()
    started: Future[Started] = Future()
    _requests.put((process, started))
    return started.result()


def _answer() -> None:
    while True:
        process, started = _requests.get()
        try:
            started.set_result(process())
        except BaseException as error:
            started.set_exception(error)


def _after_fork() -> None:
    """Forget the thread, which a forked process does not have."""
    global _thread, _lock, _requests
    _thread, _lock, _requests = None, threading.Lock(), queue.SimpleQueue()


os.register_at_fork(after_in_child=_after_fork)


_SHARE = 0.7  # of the available memory: other processes need some too

_seconds: float | None = None
_waiting = 0
_on_cap: Callable[[], None] | None = None  # None: no supervisor, so the process is unbounded
_default_cap: int | None = None
_internal_seconds: float | None = None


def watched(on_cap: Callable[[], None]) -> None:
    """Apply the default limits in a process with a supervisor.

    `on_cap` is called before a new memory limit is applied.
    """
    global _on_cap, _default_cap
    _on_cap, _default_cap = on_cap, usable_memory()
    resident_memory.count_engines_out()
    resident_memory.limit(_default_cap)


def usable_memory() -> int:
    """Return the bytes that deploykit may use by default: a share of the available memory."""
    return int(_SHARE * available_memory())


def default_cap() -> int | None:
    """Return the default memory limit in bytes; None: this process has no supervisor."""
    return _default_cap


def bound(seconds: float | None = None, memory: int | None = None) -> None:
    """Limit the seconds of each stretch of work in this process, and its memory in bytes.

    Beyond the limit, a process with a supervisor gets SIGALRM or a MemoryError; other processes are
    not limited.
    """
    global _seconds
    if _on_cap is None:
        return
    if memory is not None:
        _on_cap()
        resident_memory.limit(memory)
    if seconds is not None:
        with _lock:
            _seconds = seconds
            signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Suspend the time limit in the block, which waits for a process with its own deadline."""
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


def bound_internal_runs(seconds: float) -> None:
    """Make `internal_run` limit the internal runs of this child process to these seconds."""
    global _internal_seconds
    _internal_seconds = seconds


@contextlib.contextmanager
def internal_run(growth: int | None = None) -> Iterator[None]:
    """Run internal work of deploykit; beyond its time limit, SIGALRM ends the process.

    The process may allocate `growth` more bytes. Outside of a child process nothing is limited.
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
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if (now := resident_memory.usage()) is not None:
        most = now.spaces[resource.RLIMIT_DATA] + more
        most = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
