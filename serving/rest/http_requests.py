"""Parses bytes of a connection into HTTP/1.1 requests within limits, with httptools (llhttp)."""

import mmap
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httptools

from deploykit.serving.execution.uploads import SMALL, Upload
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.common.errors import CodedError

Buffer = bytes | bytearray | memoryview
_HOST = re.compile(r"[^\s/?#@\\]*")


class HttpError(CodedError):
    """An HTTP error. The connection cannot be used afterwards."""

    def __init__(
        self, status: int = 400, code: str = "", /, *, retry: bool = False, **fields: object
    ) -> None:
        """Store the status; `retry` sends Retry-After: 1."""
        super().__init__(code, **fields)
        self.status = status
        self.headers = (("Retry-After", "1"),) if retry else ()


def from_serving(error: ServingError) -> HttpError:
    """Return the HTTP error for a ServingError."""
    full = error.status == "RESOURCE_EXHAUSTED"
    http_error = HttpError(error.http_status, *error.args, retry=full)
    http_error.fields = error.fields
    return http_error


@dataclass(frozen=True)
class HttpLimits:
    """The limits of a connection; times in seconds, sizes in bytes."""

    body: int = 64 << 20
    flag: str = ""
    """The option that sets `body`, for the error message."""
    head: int = 64 << 10
    connections: int = 1000
    patience: float = 10.0
    """Timeout of a new connection's first request; also the base of a transfer's timeout, in
    addition to the time for its bytes."""
    rate: int = 10_000
    """Minimum bytes per second of a transfer."""
    idle: float = 75.0
    """Timeout between requests of a connection; proxies typically close it after 60."""

    def seconds(self, size: int) -> float:
        """Return the timeout in seconds for transferring `size` bytes."""
        return self.patience + size / self.rate


def too_large(limits: HttpLimits) -> HttpError:
    """Return the error for a request whose body is too large."""
    flag = f" ({limits.flag})" if limits.flag else ""
    return HttpError(413, "http-body-too-large", most=limits.body, flag=flag)


@dataclass(frozen=True)
class Request:
    """An HTTP request; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Buffer
    version: str = "1.1"
    keep_alive: bool = False
    upload: Upload | None = field(default=None, compare=False)
    """The memory accounting of its body."""
    gone: Callable[[], bool] = field(default=lambda: False, compare=False)
    """Return whether the client has disconnected."""
    peer: str = field(default="", compare=False)
    """The client's address, as `ipv4:127.0.0.1:1234`."""

    def close(self) -> None:
        """Release the memory accounting of the body."""
        if self.upload is not None:
            self.upload.close()


class _Pieces:
    """A body that arrives in pieces.

    A large one uses its own memory mapping. It takes memory only as bytes arrive, grows without
    copies, and is returned to the kernel at once; malloc would keep it.
    """

    def __init__(self, most: int = 0) -> None:
        """Expect at most `most` bytes."""
        self.size = 0
        self._most = most
        self._few = bytearray()
        self._many: mmap.mmap | None = None

    def add(self, data: bytes) -> None:
        """Append bytes."""
        start, self.size = self.size, self.size + len(data)
        if self.size <= SMALL:
            self._few += data
            return
        if self._many is None:
            self._many = mmap.mmap(-1, self._most, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._many[:start], self._few = self._few, bytearray()
        self._many[start : self.size] = data

    def all(self) -> Buffer:
        """Return all bytes."""
        return self._few if self._many is None else memoryview(self._many)[: self.size]


Begin = Callable[[Request, int | None, bool], Upload | None]
"""Admits the body of a request after its headers, and returns its memory accounting.

It takes the declared size, if any, and whether the client waits for 100 Continue. HttpError,
ServingError: the request is rejected, and its body need not be read."""


class Parser:
    """Parses bytes into requests. Invalid HTTP or exceeded limits set `error`."""

    def __init__(self, limits: HttpLimits, begin: Begin = lambda *_: None) -> None:
        """`begin` is called before any byte of a body is stored."""
        self.requests: deque[Request] = deque()
        self.error: HttpError | None = None
        self.upload: Upload | None = None
        """The memory accounting of the body that is being received."""
        self._limits = limits
        self._begin = begin
        self._parser = httptools.HttpRequestParser(self)
        self._received = 0  # since the last request was complete
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; complete requests are appended to `requests`."""
        self._received += len(data)
        while data and self.error is None:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # This server supports no other protocol, and may ignore a request to upgrade.
                data = data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserCallbackError as error:
                if isinstance(error.__context__, ServingError):
                    self.error = from_serving(error.__context__)
                elif isinstance(error.__context__, HttpError):
                    self.error = error.__context__
                else:
                    raise
            except httptools.HttpParserError as error:
                self.error = HttpError(400, "not-http", reason=error)
        if self.error is None and not self._in_body and self._received > self._limits.head:
            self.error = HttpError(431, "http-headers-too-long", most=self._limits.head)
        # With chunks this long, more than half would be chunk headers.
        if self.error is None and self._received > self._limits.head + 2 * self._limits.body:
            self.error = too_large(self._limits)
        if self.error is not None:
            self._drop()

    def fail(self, error: HttpError) -> None:
        """Set an error, and drop a partly received body."""
        self.error = error
        self._drop()

    def close(self) -> None:
        """Drop all requests."""
        self._drop()
        for request in self.requests:
            request.close()
        self.requests.clear()

    def _drop(self) -> None:
        self._body = _Pieces()
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.close()

    def on_message_begin(self) -> None:
        """Start a request."""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._hosts = 0
        self._body = _Pieces()
        self._in_body = False
        self.upload = None

    def on_url(self, url: bytes) -> None:
        """Append a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers are dropped; of repeated headers the last is used."""
        if not self._in_body:
            key = name.decode("latin-1").lower()
            self._hosts += key == "host"
            self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Reject requests whose body need not be read."""
        self._in_body = True
        headers = self._headers
        self._check_host()
        size = int(headers.get("content-length", 0))
        if size > self._limits.body:
            raise too_large(self._limits)
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise HttpError(
                501, "unexpected", what="Transfer-Encoding", got=coding, expected="chunked"
            )
        waits = headers.get("expect", "").lower() == "100-continue" and not self.requests
        self._body = _Pieces(self._limits.body if coding else size)
        self.upload = self._begin(self._request(), None if coding else size, waits)

    def _check_host(self) -> None:
        """Raise HttpError where RFC 9112, section 3.2, requires status 400."""
        if self._hosts > 1:
            raise HttpError(400, "http-hosts", hosts=self._hosts)
        if not self._hosts and self._parser.get_http_version() != "1.0":
            raise HttpError(400, "http-host-missing")
        if not _HOST.fullmatch(self._headers.get("host", "")):
            raise HttpError(400, "http-host-invalid")

    def on_body(self, data: bytes) -> None:
        """Append a part of the body."""
        if self._body.size + len(data) > self._limits.body:
            raise too_large(self._limits)
        if self.upload is not None:
            self.upload.take(len(data))
        self._body.add(data)

    def on_message_complete(self) -> None:
        """Append the request to `requests`."""
        if self.upload is not None:
            self.upload.complete()
        self.requests.append(self._request())
        self._received = 0
        self.on_message_begin()

    def _request(self) -> Request:
        return Request(
            self._parser.get_method().decode("ascii"),
            self._target.decode("latin-1"),
            self._headers,
            self._body.all(),
            self._parser.get_http_version(),
            self._parser.should_keep_alive(),
            self.upload,
        )
