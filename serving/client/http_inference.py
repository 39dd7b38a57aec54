"""A client of the Open Inference Protocol over HTTP, and the sender of a load test."""

import contextlib
import functools
import http.client
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format

from deploykit.serving.client.endpoint import CallError, Connection
from deploykit.serving.client.load_generator import LoadTarget
from deploykit.serving.client.rest_client import HttpRequest, RestClient
from deploykit.serving.protocol.errors import code_of
from deploykit.serving.protocol.open_inference import BINARY, HEADER_LENGTH, InferRequest, message
from deploykit.serving.protocol.open_inference_client import read_document, write_document
from deploykit.transforms.ir.tensors import Array

_MAX_RESPONSE = 1 << 31  # bytes
_SEVERAL = 256  # concurrent requests of one sender
_FLAGS = {"ServerLive": "live", "ServerReady": "ready", "ModelReady": "ready"}


class HttpInference(RestClient):
    """Calls a server of the Open Inference Protocol over HTTP."""

    _api = "Open Inference Protocol"

    def __init__(self, address: str, connection: Connection) -> None:
        """Check the address; connect later. Raises the errors of `RestClient`."""
        super().__init__(address, connection)
        self._is_binary: bool | None = None

    def call(self, method: str, name: str = "", version: str = "") -> Any:
        """Return the response of a method as the gRPC message.

        A status other than 200 means `false`. CallError: the server or model does not exist.
        """
        path = {"ServerLive": "/v2/health/live", "ServerReady": "/v2/health/ready",
                "ModelReady": f"{_path(name, version)}/ready"}.get(method)  # fmt: skip
        response = message(f"{method}Response")()
        if path is not None:
            status = self._ask(HttpRequest(path)).status
            if status in (404, 405, 501) and not name:
                raise self._foreign("response-status-of-path", path=path, http_status=status)
            setattr(response, _FLAGS[method], status == 200)
            return response
        status, document = self._get(_path(name, version) if name else "/v2")
        self._field(status, document, "name")
        try:
            return json_format.ParseDict(document, response, ignore_unknown_fields=True)
        except json_format.ParseError as error:
            words = " ".join(str(error).split())
            raise self._foreign("response-not-of-method", method=method, reason=words) from None

    def infer(self, requested: InferRequest) -> dict[str, Array]:
        """Return the outputs. ServingError: they are damaged. CallError: the request failed."""
        response = self._ask(self.request(requested), _MAX_RESPONSE)
        if response.status != 200:
            self._field(*self._document(response), "outputs")
        return read_document(response.body, response.headers.get(HEADER_LENGTH))

    def request(self, requested: InferRequest) -> HttpRequest:
        """Return an HTTP request. Tensors are binary data if the server supports that extension."""
        if self._is_binary is None:
            self._is_binary = False
            with contextlib.suppress(CallError):  # some servers do not implement ServerMetadata
                self._is_binary = BINARY in self.call("ServerMetadata").extensions
        body, headers = write_document(requested, self._is_binary)
        return HttpRequest(f"{_path(requested.model, requested.version)}/infer", body, headers)

    def load(self, requested: Sequence[InferRequest]) -> tuple[LoadTarget, list[HttpRequest]]:
        """Return the target of a load test and its requests."""
        target = functools.partial(HttpSender, self._address, self._connection)
        return target, [self.request(item) for item in requested]

    def close(self) -> None:
        """Do nothing: no connection stays open."""


class HttpSender(RestClient):
    """Sends requests over keep-alive connections, one for each concurrent request.

    The timeout applies to each transfer, not to a whole request.
    """

    def __init__(self, address: str, connection: Connection) -> None:
        """Connect when requests are sent. Errors are those of `RestClient`."""
        super().__init__(address, connection)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._threads = ThreadPoolExecutor(_SEVERAL)

    def send(self, request: HttpRequest) -> str:
        """Wait for the response; return the name of its gRPC status code."""
        used = None
        with contextlib.suppress(IndexError):
            used = self._idle.pop()
        try:
            used = used or self._opened(self._connection.timeout)
            response = request.send(used, keep_alive=True)
            response.read()
        except (OSError, http.client.HTTPException) as error:
            if used is not None:
                used.close()
            return "DEADLINE_EXCEEDED" if isinstance(error, TimeoutError) else "UNAVAILABLE"
        if response.will_close:  # http.client would reconnect without TLS
            used.close()
        else:
            self._idle.append(used)
        return code_of(response.status)

    def begin(self, request: HttpRequest, done: Callable[[str], None]) -> None:
        """Send it in another thread, which calls `done` with the status."""
        self._threads.submit(lambda: done(self.send(request)))


def _path(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path
