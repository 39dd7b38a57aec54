"""A port that answers HTTP/1.1: a thread a connection, and no connection for longer than fair.

Of the servers at hand none bounds all of this: http.server advises against its use in production;
waitress looks at every connection for each event and keeps a client that stopped reading;
uvicorn lets a request take forever, and its way from thread to thread takes longer than the rest.
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
_ENDING = "the server is ending; try again later, or another one"


class Listener:
    """A port that listens from `start` to `close`."""

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
        """`answer` is called in many threads at once, and raises nothing; so is `begin` before.

        It lets in the body of a request whose headers are there, of a size if that is said, as
        `Uploads.begin`. HttpError, ServingError: it need not be read. With `tls`, it is HTTPS.
        """
        self.limits = limits or HttpLimits()
        self.host, self.port = host, port
        self.leaving = False
        """Set where connections end with their next answer: callers look for another server."""
        self.closing = False
        """Set where new calls are refused."""
        self.last_began = time.monotonic()
        """When the last call came that is not a probe; who answers notes it."""
        self._ended = False
        self.failed: Callable[[HttpError, str], None] = lambda error, peer: None
        """What is told of each request that could not be read; set before `start`."""
        self._answer = answer
        self.begin = begin
        self._reuse_port = reuse_port
        self._tls = tls
        self._socket: socket.socket | None = None
        self._connections: set[HttpConnection] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        """Listen. Error: the address is taken, or none of this machine's."""
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
        self._socket.settimeout(1.0)  # so that it notices the end where closing does not wake it
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._socket,), daemon=True).start()

    @property
    def in_flight(self) -> int:
        """How many calls are not answered yet."""
        with self._changed:
            return sum(connection.answers for connection in self._connections)

    @property
    def arriving(self) -> int:
        """How many calls have come in part."""
        with self._changed:
            return sum(connection.arrives for connection in self._connections)

    def close(self) -> None:
        """Take no more connections, and close those that there are."""
        self.closing = self._ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        with self._changed:
            for connection in self._connections:
                connection.cut()

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        if self.closing:
            return error_response(503, _ENDING)
        return self._answer(request)

    def forget(self, connection: HttpConnection) -> None:
        """Take note that a connection is closed."""
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
        except (OSError, ValueError):  # the client is gone already
            connected.close()
            return
        connection = HttpConnection(connected, self)
        if len(self._connections) >= self.limits.connections and not self._cut_oldest():
            connection.refuse(f"{self.limits.connections} connections are open already")
            return
        with self._changed:
            self._connections.add(connection)
            if self._ended:
                connection.cut()
        try:
            threading.Thread(target=connection.serve, daemon=True, name="rest").start()
        except RuntimeError as error:  # the machine lends no more threads
            connection.refuse(str(error))
            self.forget(connection)

    def _cut_oldest(self) -> bool:
        """Make room: cut whoever keeps the server waiting longest. False: nobody does.

        Whoever was answered once goes last, so that new connections which say nothing, however
        many, do not end those that are kept for later calls.
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
