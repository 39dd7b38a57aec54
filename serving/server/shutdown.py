"""Signal handling, and the shutdown of a server: it drains its requests, then closes its ports."""

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
_ONE_SECONDS = 0.05  # signals within this time are one: timeout(1) sends two, to child and group

_came = threading.Event()  # set by a signal, after `obey_signals`
_numbers: list[int] = []  # that signal, once received


def obey_signals() -> None:
    """Record each signal, regardless of running threads; call this in the main thread.

    Python runs handlers only in the main thread, between two bytecodes. There a handler may
    deadlock on a lock that the thread holds, and it runs late while other threads compute. So the
    handlers do nothing: a thread reads the pipe that Python's C handler writes to at once, in any
    thread. Blocking the signals and waiting for them would not work for threads that libraries have
    started before, and child processes would inherit the mask.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (*_ENDING, signal.SIGHUP):  # which logrotate may send
        signal.signal(number, _do_nothing)
    threading.Thread(target=_obey, args=(read,), daemon=True, name="signals").start()


def _do_nothing(_: int, __: FrameType | None) -> None:
    pass


def _obey(pipe: int) -> None:
    while received := os.read(pipe, 1):
        if received[0] in _ENDING:
            if _came.is_set():
                os._exit(128 + received[0])
            time.sleep(_ONE_SECONDS)
            if select.select([pipe], [], [], 0)[0]:
                os.read(pipe, 1 << 16)
            _numbers.append(received[0])
            _came.set()


def check_signals() -> None:
    """Raise KeyboardInterrupt after a signal that ends the process."""
    if _came.is_set():
        raise KeyboardInterrupt


def wait_for_signal(seconds: float) -> bool:
    """Wait at most `seconds` for a signal; return whether one arrived."""
    return _came.wait(seconds)


def was_terminated() -> bool:
    """Return whether that signal was SIGTERM, which systems send to stop a process."""
    return signal.SIGTERM in _numbers


_QUIET_SECONDS = 0.5  # without a request: then clients have left
_ARRIVING_SECONDS = 2.0  # for the rest of a partly received request
_SURE_SECONDS = 0.1  # without a request in progress: excludes races between the counters
_LOOK_SECONDS = 0.02


PortCalls = GrpcCalls | Listener
"""The calls of one port."""


def go_on(ports: Sequence[PortCalls], seconds: float, more: float) -> None:
    """Wait `seconds`, and then up to `more` until no request has arrived for a while."""
    begin = time.monotonic()
    _wait_until(lambda: False, begin + seconds)
    _wait_until(
        lambda: time.monotonic() - max(port.last_began for port in ports) >= _QUIET_SECONDS,
        begin + seconds + more,
    )


def refuse_and_answer(ports: Sequence[PortCalls], end: float) -> bool:
    """Reject new requests; return whether those in progress were completed before `end`.

    A request that does not arrive completely is soon dropped without a response; the client may
    retry it.
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
    """Return whether a condition became true before `end`."""
    while not condition():
        if (left := end - time.monotonic()) <= 0:
            return False
        time.sleep(min(left, _LOOK_SECONDS))
    return True
