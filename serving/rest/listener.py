"""An HTTP/1.1 server with one thread per connection and a time limit for each.

No available server limits all of this: http.server is not for production; waitress scans every
connection per event and keeps clients that stop reading; uvicorn has no timeout for a request,
and passing it between threads takes longer than the rest.
"""

import contextlib
import errno
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus

import orjson

from deploykit.serving.execution.uploads import Upload, refusal
from deploykit.serving.rest.http_requests import (
    HttpError,
    HttpLimits,
    Parser,
    Request,
    from_serving,
)
from deploykit.transforms.common.errors import Error

logger = logging.getLogger("deploykit")

_RECEIVED = 256 << 10  # bytes at once
_CREDIT = 1 << 17  # bytes per second; a client at this rate does not keep the server waiting
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}
_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
Begin = Callable[[Request, int | None, Callable[[], None]], Upload | None]
_ENDING = "the server is shutting down; retry later, or on another server"


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()
    code: str = ""
    """The gRPC status code if known; otherwise derived from the HTTP status."""


def error_response(status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """Return an error response in TensorFlow Serving's format."""
    readable = message.encode(errors="replace").decode()  # a lone surrogate is not valid JSON
    return Response(status, orjson.dumps({"error": readable}), headers=headers)


class HttpConnection:
    """A connection, whose requests are handled one after the other."""

    def __init__(self, connected: socket.socket, listener: "Listener") -> None:
        self.waits_since: float | None = time.monotonic()
        """Time since which the server waits for the client; None if it does not."""
        self.served = False
        """Whether it has responded to a request."""
        self.answers = False
        """Whether a request is being handled, until the response is sent."""
        self._socket = connected
        self._listener = listener
        self._limits = listener.limits
        self._parser = Parser(self._limits, self._begin)
        self._peer = _peer(connected)
        self._idle = True  # no byte of the next request has arrived

    def serve(self) -> None:
        """Handle requests until either side closes the connection."""
        try:
            while self._receive() and self._answer():
                pass
        except OSError:
            pass  # the client disconnected or was too slow, and cannot receive an error
        except Exception as error:
            logger.warning("a connection failed: %s: %s", type(error).__name__, error)
        finally:
            self._socket.close()
            self._parser.close()
            self._listener.forget(self)

    @property
    def arrives(self) -> bool:
        """Whether a part of a request has arrived."""
        return not (self._idle or self.answers)

    def refuse(self, why: str) -> None:
        """Respond 503 for lack of capacity, and close."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(1.0)
            if not isinstance(self._socket, ssl.SSLSocket):  # a handshake takes time
                self._send(error_response(503, f"{why}; try again later"), keep=False)
        self._socket.close()

    def cut(self) -> None:
        """Shut the connection down while another thread uses it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _receive(self) -> bool:
        """Read until there is a request or an error. False: the client disconnected."""
        parser, limits = self._parser, self._limits
        self.waits_since = start = began = time.monotonic()
        deadline = start + (limits.idle if self.served else limits.patience)
        size = 0
        while not (parser.requests or parser.error):
            try:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                data = self._socket.recv(_RECEIVED)
            except TimeoutError:
                if not size:
                    raise
                parser.fail(HttpError(408, "http-too-slow"))
                break
            except OSError:  # cancelling an upload within a TLS record raises this
                if parser.upload is None or not parser.upload.ended:
                    raise
            if parser.upload is not None and parser.upload.ended:
                parser.fail(from_serving(refusal()))
                break
            if not data:
                return False
            if self._idle:
                self._idle, start = False, time.monotonic()
            size += len(data)
            deadline = start + limits.seconds(size)
            self.waits_since = began + size // _CREDIT
            parser.feed(data)
        return True

    def _answer(self) -> bool:
        """Respond to the next request. False: close the connection."""
        self.waits_since = None
        if not self._parser.requests:
            self._tell(self._parser.error)
            return False
        request = replace(self._parser.requests.popleft(), gone=self._gone, peer=self._peer)
        self.answers = True
        try:
            try:
                response = self._listener.answer(request)
            finally:
                request.close()
                request = replace(request, body=b"")  # release it before a slow send
            keep = request.keep_alive and not (self._listener.leaving or self._listener.closing)
            self.waits_since = time.monotonic()
            self._send(response, keep, request)
        finally:
            self.answers = False
        self.served = True
        self._idle = not self._parser.requests
        return keep

    def _tell(self, error: HttpError | None) -> None:
        """Send an error, and wait until the client has read it: closing at once would drop it."""
        if error is None:
            return
        self._listener.report_failure(error, self._peer)
        self._send(error_response(error.status, str(error), error.headers), keep=False)
        self.waits_since = time.monotonic()
        self._socket.shutdown(socket.SHUT_WR)
        end = time.monotonic() + self._limits.patience
        while (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            if not self._socket.recv(_RECEIVED):
                return

    def _send(self, response: Response, keep: bool, request: Request | None = None) -> None:
        status = f"{response.status} {_REASONS.get(response.status, 'Error')}"
        head = [
            f"HTTP/1.1 {status}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            *(f"{name}: {value}" for name, value in response.headers),
        ]
        if not keep:
            head.append("Connection: close")
        elif request is not None and request.version == "1.0":
            head.append("Connection: keep-alive")
        body = b"" if request is not None and request.method == "HEAD" else response.body
        data = "\r\n".join([*head, "\r\n"]).encode("latin-1") + body
        self._socket.settimeout(self._limits.seconds(len(data)))
        self._socket.sendall(data)

    def _begin(self, request: Request, size: int | None, waits: bool) -> Upload | None:
        """Admit a body, and send 100 Continue if the client waits for it."""
        upload = self._listener.begin(request, size, self._read_no_more)
        if waits:
            with contextlib.suppress(OSError):
                self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return upload

    def _read_no_more(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def _gone(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._socket, _HUNG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed
            return True


def _peer(connected: socket.socket) -> str:
    """Return the peer address in gRPC's format."""
    try:
        host, port, *rest = connected.getpeername()
    except (OSError, ValueError):
        return ""
    return f"ipv6:[{host}]:{port}" if rest else f"ipv4:{host}:{port}"


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
        self.report_failure: Callable[[HttpError, str], None] = lambda error, peer: None
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
            if self._tls is not None:  # without waiting for the handshake
                connected = self._tls.wrap_socket(
                    connected, server_side=True, do_handshake_on_connect=False
                )
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
