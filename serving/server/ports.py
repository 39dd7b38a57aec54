"""Ports that are bound before models are loaded, gRPC's options, and open gRPC connections."""

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence

from deploykit.serving.server.settings import ServerSettings
from deploykit.transforms.common.errors import Error, FileError

ChannelOption = tuple[str, str | int]

UNBOUNDED = -1
_HANDSHAKE_MS = 10_000  # until a client has completed the handshake
_PING_MS, _ANSWER_MS = 10_000, 5_000  # detects a lost client within 15 s
_CONNECTION_STREAMS = 600
"""Open streams of a connection, at least. gRPC counts those that the client has just reset."""
_PENDING = 16_384
"""Calls that gRPC has received and not handed over: beside a flood, honest ones are among them."""
_PATIENCE_MS = 5_000  # minimum interval of pings from clients


def channel_options(settings: ServerSettings) -> list[ChannelOption]:
    """Return gRPC's channel options for a server; user options override the defaults.

    Error: as in `channel_arguments`.
    """
    options: dict[str, str | int] = {
        "grpc.max_receive_message_length": settings.max_message_bytes,
        "grpc.max_send_message_length": UNBOUNDED,
        "grpc.max_concurrent_streams": max(_CONNECTION_STREAMS, 2 * settings.max_in_flight),
        "grpc.server.max_pending_requests": _PENDING,  # gRPC cancels calls at random above it
        "grpc.server.max_pending_requests_hard_limit": 2 * _PENDING,
        "grpc.so_reuseport": int(settings.workers > 1),
        "grpc.server_handshake_timeout_ms": _HANDSHAKE_MS,
        "grpc.keepalive_time_ms": _PING_MS,
        "grpc.keepalive_timeout_ms": _ANSWER_MS,
        "grpc.http2.ping_timeout_ms": _ANSWER_MS,  # otherwise a minute for reachable clients
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,  # keep pinging silent clients
        "grpc.http2.min_ping_interval_without_data_ms": _PATIENCE_MS,
    }
    return list({**options, **dict(channel_arguments(settings.grpc_channel_arguments))}.items())


def channel_arguments(text: str) -> list[ChannelOption]:
    """Parse `key=value,key=value` as TensorFlow Serving does: values are integers or text.

    Error: the format is different.
    """
    result: list[ChannelOption] = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise Error(
                "unexpected",
                what="--grpc_channel_arguments",
                got=part,
                expected="key=value, as grpc.max_connection_age_ms=2000",
            )
        whole = value.removeprefix("-").isdecimal() and abs(int(value)) < 1 << 31
        result.append((key, int(value) if whole else value))
    return result


def check_ports(settings: ServerSettings) -> None:
    """Raise FileError before models are loaded if a port is not available."""
    for port, flag in ((settings.port, "--port"), (settings.rest_api_port, "--rest_api_port")):
        if port is not None:
            bound(settings.host, port, flag, shared=settings.workers > 1).close()


def bound(host: str, port: int, flag: str, shared: bool) -> socket.socket:
    """Return a socket that is bound but does not listen. FileError: the port is not available."""
    trial = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        trial = socket.socket(family, socket.SOCK_STREAM)
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        if shared:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        trial.bind(address)
    except OSError as error:
        if trial is not None:
            trial.close()
        shown = f"{bracketed(host)}:{port}"
        raise refused_port(shown, _words(error), flag) from None
    return trial


def _words(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def bracketed(host: str) -> str:
    """Return a host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def refused_port(shown: str, why: str, flag: str) -> FileError:
    """Return the error for an address that is not available."""
    free = " (0 for any free port)" if flag == "--port" else ""
    return FileError("port-unavailable", source=shown, reason=why, flag=flag, hint=free)


_FILES = "/proc/self/fd"
_DELIVERY_SECONDS = 1.0  # for delivery of written data
_FAREWELL_SECONDS = 0.3  # for the client to disconnect
_LOOK_SECONDS = 0.01
_SHUT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def connected_sockets(port: int) -> Iterator[socket.socket]:
    """Yield copies of the sockets of a port's connections, to be closed by the caller."""
    for _, result in _sockets(port, "", listening=False):
        yield result


def refuse_connections(port: int, path: str = "") -> None:
    """Refuse new connections to gRPC's port or Unix socket.

    A socket with an unknown address replaces the listening one; gRPC would report a closed one.
    """
    for file, result in _sockets(port, path, listening=True):
        with result, socket.socket(socket.AF_UNIX) as unknown:
            unknown.bind("")
            unknown.listen()
            unknown.setblocking(False)
            os.dup2(unknown.fileno(), file, inheritable=False)


def hang_up(port: int, path: str = "") -> None:
    """Shut down the connections of a port or Unix socket.

    Data already written is delivered first, if the client reads it within a second.
    """
    with contextlib.ExitStack() as stack:
        results = [stack.enter_context(item) for _, item in _sockets(port, path, listening=False)]
        _until_none(results, _unread, _DELIVERY_SECONDS)
        for result in results:
            with contextlib.suppress(OSError):
                result.shutdown(socket.SHUT_WR)
        _until_none(results, _is_open, _FAREWELL_SECONDS)


def _sockets(port: int, path: str, listening: bool) -> Iterator[tuple[int, socket.socket]]:
    """Yield file number and copy of each socket that listens on a port or path, or is connected."""
    files = os.listdir(_FILES) if os.path.isdir(_FILES) else []
    for name in files:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(f"{_FILES}/{name}").st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            is_listening = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            if _is_at(copy, port, path) and is_listening == listening:
                yield int(name), copy
            else:
                copy.close()


def _is_at(one: socket.socket, port: int, path: str) -> bool:
    here = one.getsockname()
    if one.family == socket.AF_UNIX:
        return bool(path) and here == path
    return one.type == socket.SOCK_STREAM and isinstance(here, tuple) and here[1] == port


def _until_none(
    sockets: Sequence[socket.socket], holds: Callable[[socket.socket], bool], seconds: float
) -> None:
    """Wait until a condition has been false once for each socket."""
    end, left = time.monotonic() + seconds, [item for item in sockets if holds(item)]
    while left and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        left = [item for item in left if holds(item)]


def _unread(connection: socket.socket) -> bool:
    """Return whether written data is not acknowledged yet."""
    left = fcntl.ioctl(connection, termios.TIOCOUTQ, struct.pack("i", 0))
    return bool(struct.unpack("i", left)[0])


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side may still send data."""
    poll = select.poll()
    poll.register(connection, _SHUT)
    return not poll.poll(0)
