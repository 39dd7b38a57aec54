"""Ends connections that send data which belongs to no call, or that reset calls without end.

gRPC itself limits the streams of a connection, pings and the size of headers. It does not end a
connection that sends headers without end (CONTINUATION frames) or other frames without a call.
Each such connection occupies one of gRPC's few threads, so that new connections wait for seconds.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_FREE = 1 << 20  # bytes that a connection may send without a call
_FREE_PER_SECOND = 1 << 10  # pings of a silent client take less
_RESETS = 1000  # between two looks
_PAUSE = 0.25  # seconds between two looks
_PATIENCE = 5.0  # seconds; a client that calls would connect again and call as often as it can
_RECEIVED = struct.Struct("=128xQ")  # `tcpi_bytes_received` of Linux's `struct tcp_info`


@dataclass
class _Client:
    """What is known of a connection's calls and bytes since its last call."""

    arriving: int = 0
    """Calls whose request has not arrived."""
    open: int = 0
    """Calls whose response is not completely sent."""
    resets: int = 0
    has_called: bool = True
    base: int = 0
    """Bytes that had been received when it last called."""
    since: float = field(default_factory=time.monotonic)
    flooding_since: float | None = None


class Floods:
    """Watches the connections of a port. Clients are known by their port alone, which is cheap."""

    def __init__(self, largest: int) -> None:
        """Watch nothing yet. `largest`: maximum size of a request in bytes."""
        self._largest = largest
        self._lock = threading.Lock()
        self._clients: dict[int, _Client] = {}
        self._closed = threading.Event()

    def start(self, sockets: Callable[[], Iterator[socket.socket]]) -> None:
        """Watch connections in a new thread. `sockets` yields copies of their sockets."""
        threading.Thread(target=self._run, args=(sockets,), daemon=True, name="floods").start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def note(self, peer: str, calls: int = 0, arriving: int = 0) -> None:
        """Note calls that begin (1) or end (-1), or whose request starts or ceases to arrive."""
        with self._lock:
            client = self._client(peer)
            client.has_called |= calls >= 0
            client.open += calls
            client.arriving += arriving

    def reset(self, peer: str) -> None:
        """Note that a client reset a call before its request arrived."""
        with self._lock:
            self._client(peer).resets += 1

    def _client(self, peer: str) -> _Client:
        port = peer.rpartition(":")[2]
        return self._clients.setdefault(int(port) if port.isdigit() else 0, _Client())

    def look(self, sockets: Iterator[socket.socket], now: float) -> int:
        """Shut down the connections that flood the server; return their number."""
        ended, seen = 0, set()
        for connection in sockets:
            with connection:
                try:
                    port = connection.getpeername()[1]
                    (received,) = _RECEIVED.unpack(
                        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
                    )
                    seen.add(port)
                    if self._is_flood(port, received, now):
                        connection.shutdown(socket.SHUT_RDWR)
                        ended += 1
                except (OSError, struct.error):  # gone meanwhile, or not Linux
                    continue
        with self._lock:
            for port in self._clients.keys() - seen:
                if not self._clients[port].open:
                    del self._clients[port]
        return ended

    def _is_flood(self, port: int, received: int, now: float) -> bool:
        with self._lock:
            client = self._clients.setdefault(port, _Client(base=received))
            resets, client.resets = client.resets, 0
            if client.has_called or received < client.base:
                client.has_called, client.base, client.since = False, received, now
            allowed = _FREE + _FREE_PER_SECOND * (now - client.since)
            allowed += client.arriving * self._largest
            if resets <= _RESETS and received - client.base <= allowed:
                client.flooding_since = None
                return False
            if client.flooding_since is None:
                client.flooding_since = now
            calls = client.open or resets
            return not calls or now - client.flooding_since > _PATIENCE

    def _run(self, sockets: Callable[[], Iterator[socket.socket]]) -> None:
        while not self._closed.wait(_PAUSE):
            self.look(sockets(), time.monotonic())
