"""Ends connections that send data which belongs to no call, or that reset calls without end.

gRPC itself limits the streams of a connection, pings and the size of headers. It does not end a
connection that sends headers without end (CONTINUATION frames) or other frames without a call.
Each such connection occupies one of gRPC's few threads, so that new connections wait for seconds.
"""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

_FREE = 1 << 20  # bytes that a connection may send without a call
_FREE_PER_SECOND = 1 << 10  # pings of a silent client take less
_RESETS_PER_SECOND = 4000
_PAUSE = 0.25  # seconds between two looks
_SHARE = 0.02  # of a core that looks may take: with thousands of connections they are rarer
_PATIENCE = 5.0  # seconds; a client that calls would connect again and call as often as it can
_GRACE = 1.5  # seconds without any call: a busy server notes calls late
_SCOPE = re.compile(r"%25.*?(?=%5D:)")
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
    """Whether it has called since the last look."""
    ever_called: bool = False
    base: int = 0
    """Bytes that had been received when it last called."""
    since: float = field(default_factory=time.monotonic)
    flooding_since: float | None = None


class Floods:
    """Watches the connections of a port, by the names that gRPC gives to peers."""

    def __init__(self, largest: int) -> None:
        """Watch nothing yet. `largest`: maximum size of a request in bytes."""
        self._largest = largest
        self._lock = threading.Lock()
        self._clients: dict[str, _Client] = {}
        self._closed = threading.Event()
        self._looked = time.monotonic()

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
            client.ever_called |= calls >= 0
            client.open += calls
            client.arriving += arriving

    def reset(self, peer: str) -> None:
        """Note that a client reset a call before its request arrived."""
        with self._lock:
            self._client(peer).resets += 1

    def _client(self, peer: str) -> _Client:
        return self._clients.setdefault(without_scope(peer), _Client())

    def look(self, sockets: Iterator[socket.socket], now: float) -> int:
        """Shut down the connections that flood the server; return their number."""
        ended, seen = 0, set()
        resets = _RESETS_PER_SECOND * max(_PAUSE, now - self._looked)
        self._looked = now
        for connection in sockets:
            with connection:
                try:
                    peer = peer_name(*connection.getpeername()[:2])
                    (received,) = _RECEIVED.unpack(
                        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
                    )
                    seen.add(peer)
                    if self._is_flood(peer, received, now, resets):
                        connection.shutdown(socket.SHUT_RDWR)
                        ended += 1
                except (OSError, struct.error):  # gone meanwhile, or not Linux
                    continue
        with self._lock:
            for peer in self._clients.keys() - seen:
                if not self._clients[peer].open:
                    del self._clients[peer]
        return ended

    def _is_flood(self, peer: str, received: int, now: float, most: float) -> bool:
        with self._lock:
            client = self._clients.setdefault(peer, _Client(base=received))
            resets, client.resets = client.resets, 0
            if client.has_called or received < client.base:
                client.has_called, client.base, client.since = False, received, now
            allowed = _FREE + _FREE_PER_SECOND * (now - client.since)
            allowed += client.arriving * self._largest
            if resets <= most and received - client.base <= allowed:
                client.flooding_since = None
                return False
            if client.flooding_since is None:
                client.flooding_since = now
            return now - client.flooding_since > (_PATIENCE if client.ever_called else _GRACE)

    def _run(self, sockets: Callable[[], Iterator[socket.socket]]) -> None:
        took = 0.0
        while not self._closed.wait(max(_PAUSE, took / _SHARE)):
            before = time.thread_time()
            self.look(sockets(), time.monotonic())
            took = time.thread_time() - before


def peer_name(host: str, port: int) -> str:
    """Return the name that gRPC gives to the peer with this address, without an IPv6 scope."""
    host = host.partition("%")[0].removeprefix("::ffff:")  # an IPv4 client of a socket for both
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}"


def without_scope(peer: str) -> str:
    """Return gRPC's name of a peer without the scope of its address, as %25eth0.

    Linux may or may not give the scope of a link-local address.
    """
    return _SCOPE.sub("", peer)
