"""Bytes of a connection -> HTTP/1.1 requests within limits. The parser is llhttp's (httptools)."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httptools


class HttpError(Exception):
    """What is wrong with a request as HTTP; the connection cannot be used afterwards."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the status and one sentence."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class HttpLimits:
    """What a connection may take; times in seconds, sizes in bytes."""

    body: int = 64 << 20
    head: int = 64 << 10
    connections: int = 1000
    patience: float = 10.0
    """What a new connection may wait with its request, and what any transfer may take besides
    the time that its bytes are granted."""
    rate: int = 10_000
    """The bytes a second that a transfer is granted."""
    idle: float = 75.0
    """What a connection may wait between requests; proxies tend to give up after 60."""

    def seconds(self, size: int) -> float:
        """Return what it may take to move so many bytes."""
        return self.patience + size / self.rate


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    version: str = "1.1"
    keep_alive: bool = False
    gone: Callable[[], bool] = field(default=lambda: False, compare=False)
    """Say whether the caller has hung up."""


class Parser:
    """Makes requests of bytes. What is not HTTP, or beyond the limits, is kept as `error`."""

    def __init__(self, limits: HttpLimits, go_on: Callable[[], None] = lambda: None) -> None:
        """`go_on` is called when a client waits to be told to send the body."""
        self.requests: deque[Request] = deque()
        self.error: HttpError | None = None
        self._limits = limits
        self._go_on = go_on
        self._parser = httptools.HttpRequestParser(self)
        self._received = 0  # since the last request was complete
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; requests that they complete are appended to `requests`."""
        self._received += len(data)
        while data and self.error is None:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # No other protocol is spoken here, and a wish for one may be ignored.
                data = data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserCallbackError as error:
                if not isinstance(error.__context__, HttpError):
                    raise
                self.error = error.__context__
            except httptools.HttpParserError as error:
                self.error = HttpError(400, f"this is no HTTP/1.1 request: {error}")
        if self.error is None and not self._in_body and self._received > self._limits.head:
            self.error = HttpError(
                431, f"the headers are longer than the limit of {self._limits.head} bytes"
            )
        # Of chunks this long more than half would be something else than data.
        if self.error is None and self._received > self._limits.head + 2 * self._limits.body:
            self.error = self._too_large()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._in_body = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those behind a body are dropped, and of two alike the last counts."""
        if not self._in_body:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Refuse what need not be read."""
        self._in_body = True
        headers = self._headers
        if int(headers.get("content-length", 0)) > self._limits.body:
            raise self._too_large()
        coding = headers.get("transfer-encoding", "chunked")
        if coding.lower() != "chunked":
            raise HttpError(501, f"Transfer-Encoding is {coding}, expected chunked")
        if headers.get("expect", "").lower() == "100-continue" and not self.requests:
            self._go_on()

    def on_body(self, data: bytes) -> None:
        """Take a part of the body."""
        self._size += len(data)
        if self._size > self._limits.body:
            raise self._too_large()
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Hand the request on."""
        request = Request(
            self._parser.get_method().decode("ascii"),
            self._target.decode("latin-1"),
            self._headers,
            b"".join(self._body),
            self._parser.get_http_version(),
            self._parser.should_keep_alive(),
        )
        self._received = 0
        self.on_message_begin()
        self.requests.append(request)

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the body is larger than the limit of {self._limits.body} bytes")
