"""The connections of gRPC's core, which it shows nobody: found among the files of this process.

They are shut down for writing once all that was written has arrived: callers then read every answer
and an end after it, and take a call that has none for one that never came (UNAVAILABLE).
"""

import contextlib
import fcntl
import os
import select
import socket
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence

_FILES = "/proc/self/fd"
_DELIVERY_SECONDS = 1.0  # for what was written to arrive
_FAREWELL_SECONDS = 0.3  # for the other side to hang up
_LOOK_SECONDS = 0.01
_SHUT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def listening_sockets(port: int) -> Iterator[socket.socket]:
    """Yield copies of the sockets that listen on a port, each open until the next one."""
    for _, found in _sockets(port, "", listening=True):
        with found:
            yield found


def refuse_connections(port: int, path: str = "") -> None:
    """Let nobody connect to a port, or to a Unix socket, that gRPC listens on.

    A socket of which nobody knows takes its place: of one that was shut down, gRPC complains.
    """
    for file, found in _sockets(port, path, listening=True):
        with found, socket.socket(socket.AF_UNIX) as unknown:
            unknown.bind("")
            unknown.listen()
            unknown.setblocking(False)
            os.dup2(unknown.fileno(), file, inheritable=False)


def hang_up(port: int, path: str = "") -> None:
    """Shut down the connections that came by a port, or by a Unix socket.

    What was written arrives first, but for who does not read for a second.
    """
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(each) for _, each in _sockets(port, path, listening=False)]
        _until_none(found, _unread, _DELIVERY_SECONDS)
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR)
        _until_none(found, _is_open, _FAREWELL_SECONDS)


def _sockets(port: int, path: str, listening: bool) -> Iterator[tuple[int, socket.socket]]:
    """Yield the sockets that listen on a port or path, or are connected by it: file and copy."""
    files = os.listdir(_FILES) if os.path.isdir(_FILES) else []
    for name in files:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(f"{_FILES}/{name}").st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            if _is_at(copy, port, path) and _listens(copy) == listening:
                yield int(name), copy
            else:
                copy.close()


def _is_at(one: socket.socket, port: int, path: str) -> bool:
    here = one.getsockname()
    if one.family == socket.AF_UNIX:
        return bool(path) and here == path
    return one.type == socket.SOCK_STREAM and isinstance(here, tuple) and here[1] == port


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _until_none(
    found: Sequence[socket.socket], holds: Callable[[socket.socket], bool], seconds: float
) -> None:
    """Wait until something has been false for each, if only for a moment."""
    end, left = time.monotonic() + seconds, [each for each in found if holds(each)]
    while left and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        left = [each for each in left if holds(each)]


def _unread(connection: socket.socket) -> bool:
    """Return whether the other side has not got all that was written."""
    left = fcntl.ioctl(connection, termios.TIOCOUTQ, struct.pack("i", 0))
    return bool(struct.unpack("i", left)[0])


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side may still write."""
    poll = select.poll()
    poll.register(connection, _SHUT)
    return not poll.poll(0)
