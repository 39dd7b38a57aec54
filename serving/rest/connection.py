"""An HTTP connection with or without TLS: its successive requests and its timeouts."""

import contextlib
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from deploykit.serving.execution.uploads import Upload, refusal
from deploykit.serving.rest.http_requests import (
    HttpError,
    HttpLimits,
    Parser,
    Request,
    from_serving,
)

_PLAIN_HTTP = b'{"error":"This port speaks HTTPS; the request came as plain HTTP"}'
_TOLD = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_PLAIN_HTTP), _PLAIN_HTTP)
)
_MAX_READ = 1 << 20  # bytes read from a client without TLS, so that it receives the error
_READ_SECONDS = 1.0


class TlsSocket(ssl.SSLSocket):
    """A TLS connection whose handshake happens in the first read, within that timeout."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read; a client that sends plain HTTP receives an error. OSError: it is rejected."""
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                with contextlib.suppress(OSError):
                    self._tell_plainly()
            raise

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all data within the timeout; ssl's `sendall` applies it to each record."""
        seconds, rest = self.gettimeout(), memoryview(data).cast("B")
        end = None if seconds is None else time.monotonic() + seconds
        while rest:
            if end is not None:
                self.settimeout(max(end - time.monotonic(), 0.001))
            rest = rest[self.send(rest, flags) :]

    def shutdown(self, how: int) -> None:
        """Shut down one direction or both; ssl's `shutdown` would continue without TLS."""
        if how == socket.SHUT_WR:
            self._say_goodbye()
        socket.socket.shutdown(self, how)

    def close(self) -> None:
        """Close it with a TLS close_notify."""
        if self.fileno() >= 0:
            self._say_goodbye()
        super().close()

    def _say_goodbye(self) -> None:
        """Send close_notify without waiting for the response of the client."""
        with contextlib.suppress(OSError, ValueError):
            self.settimeout(0.0)
            self.unwrap()

    def _tell_plainly(self) -> None:
        socket.socket.sendall(self, _TOLD)
        socket.socket.shutdown(self, socket.SHUT_WR)
        end, size = time.monotonic() + _READ_SECONDS, 0
        while size < _MAX_READ and (left := end - time.monotonic()) > 0:  # else the error is lost
            self.settimeout(left)
            data = socket.socket.recv(self, 1 << 16)
            if not data:
                return
            size += len(data)


def over_tls(context: ssl.SSLContext, connected: socket.socket) -> socket.socket:
    """Return a TLS connection without waiting for it. OSError: the client has disconnected."""
    return context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)


logger = logging.getLogger("deploykit")

_RECEIVED = 256 << 10  # bytes at once
_CREDIT = 1 << 17  # bytes per second; a client at this rate does not keep the server waiting
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}
_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


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


class Owner(Protocol):
    """The part of the listener that a connection uses."""

    limits: HttpLimits
    leaving: bool
    closing: bool

    @property
    def begin(self) -> Callable[[Request, int | None, Callable[[], None]], Upload | None]:
        """Admits the body of a request after its headers, as `Uploads.begin`.

        HttpError, ServingError: the request is rejected, and its body need not be read.
        """
        ...

    def answer(self, request: Request) -> Response:
        """Return the response to a request; it raises nothing."""
        ...

    @property
    def failed(self) -> Callable[[HttpError, str], None]:
        """Called with the error and the peer of each request that could not be read."""
        ...

    def forget(self, connection: "HttpConnection") -> None:
        """Remove a closed connection."""
        ...


class HttpConnection:
    """A connection, whose requests are handled one after the other."""

    def __init__(self, connected: socket.socket, listener: "Owner") -> None:
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
        self._listener.failed(error, self._peer)
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
