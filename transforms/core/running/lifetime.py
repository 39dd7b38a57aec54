"""No process outlives the one that started it, however that one ended.

The kernel can end a child with its parent (`PR_SET_PDEATHSIG`), also while it computes and no
Python runs in it. It does so when the *thread* ends that started the child, so children are started
by a thread that lasts.
"""

import ctypes
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h

Started = TypeVar("Started")
_requests: "queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]" = queue.SimpleQueue()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def end_with_parent(parent: int) -> None:
    """Let this process be killed when its parent, the process of that number, ends.

    It ends at once where that has happened already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def start(process: Callable[[], Started]) -> Started:
    """Return what `process` returns, which starts a process, in a thread that lasts."""
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
    """Forget the thread, which a forked process lacks."""
    global _thread, _lock, _requests
    _thread, _lock, _requests = None, threading.Lock(), queue.SimpleQueue()


os.register_at_fork(after_in_child=_after_fork)
