"""Reads models, versions and signatures of a server over REST. Only REST can list the models."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from google.protobuf import json_format

from deploykit.serving.client.endpoint import (
    OTHER_AUTHORITY,
    OTHER_NAME,
    CallError,
    Connection,
    speaks_tls,
)
from deploykit.serving.protocol.errors import code_of
from deploykit.serving.protocol.protos import SignatureDefMap
from deploykit.serving.protocol.signatures import UNAVAILABLE, Signature, signatures_in
from deploykit.serving.protocol.versions import VersionStatus
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.untrusted.files import MAX_TEXT

_PAUSE = 0.2  # before the first retry; doubles with each further one


def is_rest(address: str) -> bool:
    """Return whether an address is an HTTP URL."""
    return address.lower().startswith(("http:", "https:"))


@dataclass(frozen=True)
class HttpRequest:
    """An HTTP request as plain data: GET, or POST if it has a body."""

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(
        self, connection: http.client.HTTPConnection, keep_alive: bool = False
    ) -> http.client.HTTPResponse:
        """Send it and return the response, whose body is not read yet."""
        more = {} if keep_alive else {"Connection": "close"}
        method = "GET" if self.body is None else "POST"
        connection.request(method, self.path, self.body, {**self.headers, **more})
        return connection.getresponse()


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP response."""

    status: int
    headers: Message
    body: bytes


_BY_VERIFY_CODE = {10: " (it is no longer valid)", 9: " (it is not valid yet)",
                   62: OTHER_NAME, 64: OTHER_NAME}  # fmt: skip
"""Advice by OpenSSL's code of a refused certificate: X509_V_ERR_*."""
_OF_GRPC = " (is this the port of gRPC?)"
_NEEDS_HTTPS = " (the server encrypts: write https:, and give its certificate authority with --ca)"


class RestClient:
    """Reads from the REST API of a server. Each request opens a new connection."""

    _api = "TensorFlow Serving API"

    def __init__(self, address: str, connection: Connection) -> None:
        """Check the address; connect later.

        Error: it is not the URL of a server. FileError: a certificate or key cannot be read.
        """
        self._address, self._connection = address, connection
        self._url = _parsed(address)
        self._tls = _context(connection) if self._url.scheme == "https" else None
        if self._tls is None and (connection.tls or connection.ca or connection.certificate):
            raise Error("tls-needs-https", source=address)

    def models(self) -> list[str]:
        """Return the names of all models. CallError: the server is unreachable or has no list."""
        status, document = self._get("/v1/models")
        if status in (400, 404):
            raise CallError(
                "rest-no-list", status="UNIMPLEMENTED", source=self._address, address=self._address
            )
        names = self._field(status, document, "models")
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise self._foreign("response-without", what="list of models")
        return names

    def status(
        self, model: str, version: int | None = None, label: str = ""
    ) -> list[VersionStatus]:
        """Return the status of each version. CallError: no such server, model or version exists."""
        result = self._field(*self._get(_path(model, version, label)), "model_version_status")
        try:
            return [
                VersionStatus(int(item["version"]), str(item["state"]), **_error(item))
                for item in result
            ]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._foreign("response-without", what="versions") from None

    def metadata(
        self, model: str, version: int | None = None, label: str = ""
    ) -> dict[str, Signature]:
        """Return the signatures of a model by name. CallError: as in `status`."""
        result = self._field(*self._get(f"{_path(model, version, label)}/metadata"), "metadata")
        signatures = SignatureDefMap()
        try:
            json_format.ParseDict(result["signature_def"], signatures, ignore_unknown_fields=True)
        except (TypeError, KeyError, json_format.ParseError):
            raise self._foreign("response-without", what="signatures") from None
        refused = result.get(UNAVAILABLE)
        return signatures_in(signatures, refused if isinstance(refused, dict) else None)

    def _field(self, status: int, document: Any, name: str) -> Any:
        if status == 200 and isinstance(document, dict) and name in document:
            return document[name]
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            why = " ".join(document["error"].split())
            raise CallError(
                "rest-status",
                status=code_of(status),
                source=self._address,
                reason=why,
                http_status=status,
            )
        raise self._foreign("response-without-field", http_status=status, name=name)

    def _foreign(self, code: str, /, **fields: object) -> CallError:
        return CallError(code, "UNKNOWN", source=self._address, api=self._api, **fields)

    def _get(self, path: str) -> tuple[int, Any]:
        """Return status and JSON document of a response; retry while the server is not ready."""
        return self._document(self._ask(HttpRequest(path)))

    def _document(self, response: HttpResponse) -> tuple[int, Any]:
        status = response.status
        try:
            return status, json.loads(response.body)
        except (ValueError, RecursionError):
            if status in (400, 404):
                return status, None
            raise self._foreign("response-not-json", http_status=status) from None

    def _ask(self, request: HttpRequest, most: int = MAX_TEXT) -> HttpResponse:
        """Return a response of at most `most` bytes; retry while the server is not ready."""
        end = time.monotonic() + self._connection.timeout
        for attempt in range(self._connection.retries + 1):
            is_last = attempt == self._connection.retries
            try:
                response = self._request(request, end, most)
                if response.status != 503 or is_last:
                    break
            except ConnectionRefusedError as error:
                if is_last:
                    raise self._unreachable(error) from None
            time.sleep(max(0.0, min(_PAUSE * 2**attempt, end - time.monotonic())))
        return response

    def _request(self, request: HttpRequest, end: float, most: int) -> HttpResponse:
        """Return a response. ConnectionRefusedError: no server listens at the address."""
        late = threading.Event()
        try:
            with self._connected(end, late) as connection:
                response = request.send(connection)
                page = response.read(most + 1)
        except ConnectionRefusedError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise self._late() from None
            raise self._unreachable(error) from None
        if late.is_set():
            raise self._late()
        if len(page) > most:
            raise self._foreign("response-too-large", most=most >> 20)
        return HttpResponse(response.status, response.headers, page)

    @contextlib.contextmanager
    def _connected(self, end: float, late: threading.Event) -> Iterator[http.client.HTTPConnection]:
        """Connect, and shut the connection down at `end` even if the server is still sending."""
        with contextlib.closing(self._opened(max(end - time.monotonic(), 0.001))) as connection:
            used = connection.sock

            def hang_up() -> None:
                late.set()
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(used, socket.SHUT_RDWR)

            timer = threading.Timer(max(end - time.monotonic(), 0.001), hang_up)
            timer.daemon = True
            timer.start()
            try:
                if isinstance(used, ssl.SSLSocket):
                    used.do_handshake()
                yield connection
            finally:
                timer.cancel()

    def _opened(self, seconds: float) -> http.client.HTTPConnection:
        """Return a new connection. Its TLS handshake follows on first use."""
        host = self._url.hostname or ""
        port = self._url.port or (80 if self._tls is None else 443)
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        connection.connect()
        if self._tls is not None:
            name = self._connection.server_name or host
            connection.sock = self._tls.wrap_socket(
                connection.sock, server_hostname=name, do_handshake_on_connect=False
            )
        return connection

    def _late(self) -> CallError:
        seconds = f"{self._connection.timeout:g} seconds"
        return CallError(
            "rest-timeout", status="DEADLINE_EXCEEDED", source=self._address, seconds=seconds
        )

    def _unreachable(self, error: Exception) -> CallError:
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message
            hint = _BY_VERIFY_CODE.get(error.verify_code, OTHER_AUTHORITY)
            return self._unavailable("tls-certificate-refused", reason=reason, hint=hint)
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).replace("_", " ").lower()
            is_plain = "wrong version number" in reason
            hint = " (the server does not encrypt: write http:)" if is_plain else ""
            return self._unavailable("tls-failed", reason=reason, hint=hint)
        if isinstance(error, (http.client.HTTPException, ConnectionResetError, ValueError)):
            host, port = self._url.hostname or "", self._url.port or 80
            hint = _NEEDS_HTTPS if self._tls is None and speaks_tls(host, port) else ""
            return self._unavailable("not-an-http-server", hint=hint or _OF_GRPC)
        reason = getattr(error, "strerror", None) or str(error)
        return self._unavailable("server-unreachable", reason=reason)

    def _unavailable(self, code: str, /, **fields: object) -> CallError:
        return CallError(code, "UNAVAILABLE", source=self._address, **fields)


def _parsed(address: str) -> SplitResult:
    """Return the parts of a URL. Error: its path is not empty, /v1, /v1/models or /v2."""
    try:
        url = urlsplit(address)
        valid = url.hostname is not None and url.port != 0
    except ValueError:
        valid = False
    valid = valid and address.isascii() and address.isprintable() and not {*address} & {*"@?#"}
    if valid and url.path.rstrip("/") in ("", "/v1", "/v1/models", "/v2"):
        return url
    raise Error("server-url", source=address)


def _context(how: Connection) -> ssl.SSLContext:
    path = how.ca
    try:
        context = ssl.create_default_context(cafile=path)
        if how.certificate is not None:
            path = how.certificate
            context.load_cert_chain(path, how.key, password="")
    except ssl.SSLError as error:
        words = (error.reason or str(error)).replace("_", " ").lower()
        raise FileError("not-pem", source=path, reason=words) from None
    except OSError as error:
        shown = path if path == how.ca else f"{how.certificate}, {how.key}"
        raise FileError("file-error", source=shown, reason=error.strerror or error) from None
    return context


def _path(model: str, version: int | None, label: str) -> str:
    path = f"/v1/models/{quote(model, safe='')}"
    if version is not None:
        return f"{path}/versions/{version}"
    return f"{path}/labels/{quote(label, safe='')}" if label else path


def _error(version: Mapping[str, Any]) -> dict[str, str]:
    status = version.get("status") or {}
    return {"code": str(status.get("error_code", "OK")),
            "message": str(status.get("error_message", ""))}  # fmt: skip
