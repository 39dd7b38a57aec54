"""Signals that end a process, and the end of a server: it drains its requests, then closes its
ports.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from deploykit.serving.grpc_server.grpc_calls import GrpcCalls
from deploykit.serving.rest.listener import Listener

_ENDING = (signal.SIGTERM, signal.SIGINT)
_REOPENING = signal.SIGHUP
_ONE_SECONDS = 0.05  # signals that come within are one: timeout(1) sends two, to child and group

_came = threading.Event()  # a signal, in a process that obeys signals
_reopened: list[Callable[[], None]] = []
_numbers: list[int] = []  # that signal, once it came


def obey_signals() -> None:
    """Take note of each signal, whatever the threads of this process do; only the main one may.

    Python runs a handler in the main thread alone, between any two instructions of it. There it may
    wait for ever for a lock that this very thread holds, and while others compute it comes late. So
    the handlers do nothing: a thread reads from a pipe what C's part of them writes to it at once,
    in whichever thread the kernel interrupts. To block the signals and wait for them would do as
    well, but for threads that libraries have started before, and for child processes, which inherit
    what is blocked.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (*_ENDING, _REOPENING):
        signal.signal(number, _do_nothing)
    threading.Thread(target=_obey, args=(read,), daemon=True, name="signals").start()


def _do_nothing(_: int, __: FrameType | None) -> None:
    pass


def _obey(pipe: int) -> None:
    while received := os.read(pipe, 1):
        if received[0] == _REOPENING:
            for reopen in list(_reopened):
                reopen()
        if received[0] in _ENDING:
            if _came.is_set():
                os._exit(128 + received[0])
            time.sleep(_ONE_SECONDS)
            if select.select([pipe], [], [], 0)[0]:
                os.read(pipe, 1 << 16)
            _numbers.append(received[0])
            _came.set()


def at_hangup(reopen: Callable[[], None]) -> None:
    """Call a function, which waits for nothing, at each SIGHUP: logs were moved away."""
    _reopened.append(reopen)


def forget_hangup(reopen: Callable[[], None]) -> None:
    """Call it no more."""
    _reopened.remove(reopen)


def check_signals() -> None:
    """Raise KeyboardInterrupt where a signal came that ends the process."""
    if _came.is_set():
        raise KeyboardInterrupt


def wait_for_signal(seconds: float) -> bool:
    """Return whether a signal came, at the latest so much later."""
    return _came.wait(seconds)


def was_terminated() -> bool:
    """Return whether that signal was SIGTERM, by which a machine ends a process."""
    return signal.SIGTERM in _numbers


_QUIET_SECONDS = 0.5  # without a call: then nobody calls
_ARRIVING_SECONDS = 2.0  # for the rest of a request that began to come
_SURE_SECONDS = 0.1  # without a call in flight: then there is none between two counters
_LOOK_SECONDS = 0.02


PortCalls = GrpcCalls | Listener
"""Calls that come by one port."""


def go_on(ports: Sequence[PortCalls], seconds: float, more: float) -> None:
    """Wait so long, and up to so much `more` until no call came for a while."""
    begin = time.monotonic()
    _wait_until(lambda: False, begin + seconds)
    _wait_until(
        lambda: time.monotonic() - max(port.last_began for port in ports) >= _QUIET_SECONDS,
        begin + seconds + more,
    )


def refuse_and_answer(ports: Sequence[PortCalls], end: float) -> bool:
    """Refuse new calls; return whether those in flight were answered before `end`.

    One that does not come whole is left out soon: its caller is told nothing and may repeat it.
    """
    for item in ports:
        item.closing = True
    begin = idle_since = time.monotonic()

    def answered() -> bool:
        nonlocal idle_since
        now = time.monotonic()
        arriving = now - begin < _ARRIVING_SECONDS and any(port.arriving for port in ports)
        if arriving or any(port.in_flight for port in ports):
            idle_since = now
        return now - idle_since >= _SURE_SECONDS

    return _wait_until(answered, end) or not any(port.in_flight for port in ports)


def _wait_until(condition: Callable[[], bool], end: float) -> bool:
    """Return whether a condition came about before `end`."""
    while not condition():
        if (left := end - time.monotonic()) <= 0:
            return False
        time.sleep(min(left, _LOOK_SECONDS))
    return True
