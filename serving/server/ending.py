"""The end of a server: it goes on for a while, refuses, answers what it has, and lets go.

Where gRPC's core is told to stop, it answers calls that are on their way with CANCELLED, which no
client repeats. So it is told last, when nothing that it says is heard any more.
"""

import time
from collections.abc import Callable, Sequence

from deploykit.serving.grpc_server.grpc_calls import GrpcCalls
from deploykit.serving.rest.listener import Listener

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
        lambda: time.monotonic() - max(each.last_began for each in ports) >= _QUIET_SECONDS,
        begin + seconds + more,
    )


def refuse_and_answer(ports: Sequence[PortCalls], end: float) -> bool:
    """Refuse new calls; return whether those in flight were answered before `end`.

    One that does not come whole is left out soon: its caller is told nothing and may repeat it.
    """
    for each in ports:
        each.closing = True
    begin = idle_since = time.monotonic()

    def answered() -> bool:
        nonlocal idle_since
        now = time.monotonic()
        arriving = now - begin < _ARRIVING_SECONDS and any(each.arriving for each in ports)
        if arriving or any(each.in_flight for each in ports):
            idle_since = now
        return now - idle_since >= _SURE_SECONDS

    return _wait_until(answered, end) or not any(each.in_flight for each in ports)


def _wait_until(condition: Callable[[], bool], end: float) -> bool:
    """Return whether a condition came about before `end`."""
    while not condition():
        if (left := end - time.monotonic()) <= 0:
            return False
        time.sleep(min(left, _LOOK_SECONDS))
    return True
