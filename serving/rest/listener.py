"""An HTTP/1.1 server with one thread per connection and a time limit for each.

No available server limits all of this: http.server is not for production; waitress scans every
connection per event and keeps clients that stop reading; uvicorn has no timeout for a request,
and passing it between threads takes longer than the rest.
"""

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable

from deploykit.serving.execution.uploads import Upload
from deploykit.serving.rest.connection import HttpConnection, Response, error_response, over_tls
from deploykit.serving.rest.http_requests import HttpError, HttpLimits, Request
from deploykit.transforms.common.errors import Error

Begin = Callable[[Request, int | None, Callable[[], None]], Upload | None]
_ENDING = "the server is shutting down; retry later, or on another server"


class Listener:
    """A listening port from `start` to `close`."""

    def __init__(
        self,
        answer: Callable[[Request], Response],
        host: str = "127.0.0.1",
        port: int = 0,
        limits: HttpLimits | None = None,
        reuse_port: bool = False,
        begin: Begin = lambda *_: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Many threads call `answer` and `begin` concurrently; `answer` must not raise.

        `begin` admits the body of a request after its headers, as `Uploads.begin`. It raises
        HttpError or ServingError to reject it. With `tls`, the port is HTTPS.
        """
        self.limits = limits or HttpLimits()
        self.host, self.port = host, port
        self.leaving = False
        """Whether connections close after their next response, to let clients go elsewhere."""
        self.closing = False
        """Whether new requests are rejected."""
        self.last_began = time.monotonic()
        """Time of the last request that was not a probe; set by the `answer` callback."""
        self._ended = False
        self.failed: Callable[[HttpError, str], None] = lambda error, peer: None
        """Called for each request that could not be read; set before `start`."""
        self._answer = answer
        self.begin = begin
        self._reuse_port = reuse_port
        self._tls = tls
        self._socket: socket.socket | None = None
        self._connections: set[HttpConnection] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        """Listen. Error: the address is in use, or not of this machine."""
        try:
            family, *_, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._reuse_port:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind(address)
            self._socket.listen(1024)
        except OSError as error:
            if self._socket is not None:
                self._socket.close()
            why = error.strerror or error
            raise Error("rest-cannot-listen", host=self.host, port=self.port, reason=why) from None
        self._socket.settimeout(1.0)  # so that it notices `close` if that does not wake it
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._socket,), daemon=True).start()

    @property
    def in_flight(self) -> int:
        """The number of requests in progress."""
        with self._changed:
            return sum(connection.answers for connection in self._connections)

    @property
    def arriving(self) -> int:
        """The number of partly received requests."""
        with self._changed:
            return sum(connection.arrives for connection in self._connections)

    def close(self) -> None:
        """Accept no more connections, and close the open ones."""
        self.closing = self._ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        with self._changed:
            for connection in self._connections:
                connection.cut()

    def answer(self, request: Request) -> Response:
        """Return the response to a request."""
        if self.closing:
            return error_response(503, _ENDING)
        return self._answer(request)

    def forget(self, connection: HttpConnection) -> None:
        """Remove a closed connection."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def _accept(self, listening: socket.socket) -> None:
        while not self._ended:
            try:
                connected, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._cut_oldest()
                    time.sleep(0.05)
                continue
            self._admit(connected)

    def _admit(self, connected: socket.socket) -> None:
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected = connected if self._tls is None else over_tls(self._tls, connected)
        except (OSError, ValueError):  # the client has disconnected
            connected.close()
            return
        connection = HttpConnection(connected, self)
        if len(self._connections) >= self.limits.connections and not self._cut_oldest():
            connection.refuse(f"{self.limits.connections} connections are already open")
            return
        with self._changed:
            self._connections.add(connection)
            if self._ended:
                connection.cut()
        try:
            threading.Thread(target=connection.serve, daemon=True, name="rest").start()
        except RuntimeError as error:  # no more threads available
            connection.refuse(str(error))
            self.forget(connection)

    def _cut_oldest(self) -> bool:
        """Close the connection that keeps the server waiting longest. False: none does.

        Connections that completed a request are closed last, so that new connections without
        requests do not displace keep-alive ones.
        """
        with self._changed:
            waiting = [
                (connection.served, connection.waits_since, connection)
                for connection in self._connections
            ]
            oldest = min(
                ((served, since, item) for served, since, item in waiting if since is not None),
                key=lambda result: result[:2],
                default=None,
            )
            if oldest is not None:
                oldest[2].cut()
                self._connections.discard(oldest[2])
            return oldest is not None
