"""TensorFlow Serving's REST API and the Open Inference Protocol (KServe v2) over HTTP.

Requests -> data plane -> JSON.
"""

import gzip
import io
import re
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from deploykit import __version__
from deploykit.serving.execution.data_plane import Plane, Requester, Target
from deploykit.serving.execution.open_inference import (
    chosen_signature,
    is_available,
    model_metadata,
    only_input,
)
from deploykit.serving.execution.uploads import SMALL, Upload, Uploads, spent
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.errors import ServingError, code_of, refused, reported
from deploykit.serving.protocol.open_inference import (
    EXTENSIONS,
    HEADER_LENGTH,
    SERVER_NAME,
    InferResponse,
)
from deploykit.serving.protocol.signatures import UNAVAILABLE, signature_map, unavailable_in
from deploykit.serving.rest.http_requests import Buffer, HttpError, HttpLimits, Request, too_large
from deploykit.serving.rest.json_infer import InferDocument, split_body, write_infer
from deploykit.serving.rest.json_outputs import write_classes, write_outputs, write_values
from deploykit.serving.rest.json_reader import JsonReader
from deploykit.serving.rest.json_requests import Document, Inputs, with_content
from deploykit.serving.rest.listener import Listener, Response, error_response
from deploykit.serving.rest.metrics import CONTENT_TYPE, ENTRYPOINT, Metrics
from deploykit.serving.rest.paths import PROBES, V2_PROBES, is_v2, method_of, parse_path, path_of

# The larger one limits an unpacked gzip body. Real JSON numbers do not compress that well.
_MAX_UNPACKED, _MAX_RATIO = 8 << 20, 100
_CORS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, GET"),
    ("Access-Control-Allow-Headers", f"Content-Type, {HEADER_LENGTH}"),
    ("Access-Control-Expose-Headers", HEADER_LENGTH),
)


Log = Callable[[str, str, str, float, str, int | None], None]
"""Takes method, peer, code, seconds, model, and the size of the body in bytes if it arrived."""


@dataclass(frozen=True)
class RestSettings:
    """The address and limits of REST."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 for any free port."""
    timeout_in_ms: int = 30_000
    """Of a request; 0 for no timeout."""
    cors: bool = False
    metrics_path: str = ""
    """Path of the Prometheus metrics; empty: disabled."""
    converting: int = 2
    """Maximum number of bodies that are converted or unpacked concurrently."""
    limits: HttpLimits = field(default_factory=HttpLimits)
    reuse_port: bool = False
    """Whether other processes share the port."""
    tls: ssl.SSLContext | None = None
    """For HTTPS; None for plain HTTP."""


class Rest:
    """The REST API on its own port, from `start` to `close`."""

    def __init__(
        self,
        plane: Plane,
        models: Models[Any],
        settings: RestSettings | None = None,
        metrics: Metrics | None = None,
        uploads: Uploads | None = None,
        log: Log | None = None,
    ) -> None:
        """Serve requests for models and record `metrics`.

        Bodies count as `uploads`; `log` is called for each request.
        """
        self._plane = plane
        self._models = models
        self._settings = settings = settings or RestSettings()
        self._seconds = settings.timeout_in_ms / 1000
        self._metrics = metrics or Metrics()
        self._converting = threading.BoundedSemaphore(settings.converting)
        self._admission = threading.BoundedSemaphore(plane.in_flight)
        self._reader = JsonReader()
        self._uploads = uploads or Uploads(settings.limits.body)
        self.listener = Listener(
            self.answer,
            settings.host,
            settings.port,
            settings.limits,
            settings.reuse_port,
            self._begin,
            settings.tls,
        )
        self.is_ready: Callable[[], bool] = lambda: True
        """Returns whether health probes report SERVING; set before `start`."""
        self._log = log
        self.listener.report_failure = self._failed
        self._methods: dict[str, Callable[[Target, Document, Requester], bytes | Response]] = {
            "predict": lambda target, document, caller: write_outputs(
                plane.predict(target, document.inputs, (), caller).outputs, document.rows
            ),
            "classify": lambda target, document, caller: write_classes(
                plane.classify(target, document.examples, caller).classes
            ),
            "regress": lambda target, document, caller: write_values(
                plane.regress(target, document.examples, caller).values
            ),
            "infer": self._infer,
        }

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.listener.port

    def start(self) -> None:
        """Listen. Error: the address is not available."""
        self.listener.start()

    def close(self) -> None:
        """Close all connections at once."""
        self.listener.close()
        self._reader.close()

    def _begin(self, _: Request, size: int | None, end: Callable[[], None]) -> Upload | None:
        """Admit a body. ServingError: memory or the number of requests is at its limit."""
        if size == 0:
            return None
        if size is None or size > SMALL:  # others are read anyway, to keep the connection
            self._admit()
            self._admission.release()
        return self._uploads.begin(size, end)

    def _admit(self) -> None:
        self._plane.refuse_if_full()
        if not self._admission.acquire(blocking=False):
            raise ServingError(
                "RESOURCE_EXHAUSTED", "too-many-calls", in_flight=self._plane.in_flight
            )

    def answer(self, request: Request) -> Response:
        """Return the response to any request."""
        token, start, path = ENTRYPOINT.set("REST"), time.monotonic(), path_of(request.target)
        try:
            response = self._respond(request, path)
        finally:
            ENTRYPOINT.reset(token)
        size, code = len(request.body), response.code or code_of(response.status)
        spent.note(size, refused=code != "OK")
        if self._log is not None:
            method, model = method_of(request.method, path)
            self._log(method, request.peer, code, time.monotonic() - start, model, size)
        return response

    def _failed(self, error: HttpError, peer: str) -> None:
        spent.note(0, refused=True)
        if self._log is not None:
            self._log("", peer, code_of(error.status), 0.0, "", None)

    def _respond(self, request: Request, path: str) -> Response:
        page = self._settings.metrics_path
        if page and path == page and request.method == "GET":
            return Response(200, self._metrics.page(), CONTENT_TYPE)
        plain = path.partition("?")[0]
        if request.method in ("GET", "HEAD"):
            if plain in PROBES:
                if self.is_ready():  # the status names of gRPC's health service
                    return Response(200, b'{"status":"SERVING"}')
                return Response(503, b'{"status":"NOT_SERVING"}')
            if plain in V2_PROBES:
                if plain.endswith("/live"):
                    return Response(200, b'{"live":true}')
                is_ready = self.is_ready()
                return Response(200 if is_ready else 503, orjson.dumps({"ready": is_ready}))
        self.listener.last_began = time.monotonic()
        if not path.lower().startswith("/v1/") and not is_v2(path):
            return error_response(404, f"Not found: {request.method} {path}")
        try:
            answer = self._answer(request, path)
            response = answer if isinstance(answer, Response) else Response(200, answer)
        except HttpError as error:
            response = error_response(error.status, str(error))
        except Exception as error:
            refusal = reported(error)
            response = error_response(refusal.http_status, refusal.message)
            retry = (("Retry-After", "1"),) if refusal.http_status == 429 else ()
            response = replace(response, code=refusal.status, headers=retry)
        more = _CORS if self._settings.cors else ()
        return replace(response, headers=(*response.headers, *more))

    def _answer(self, request: Request, path: str) -> bytes | Response:
        if request.method == "OPTIONS":
            if re.match("https?://", request.headers.get("origin", "")):
                return b""
            raise ServingError("FAILED_PRECONDITION", "cors-origin-missing")
        requested, target = parse_path(request.method, path)
        match requested:
            case "models":
                return orjson.dumps({"models": sorted(self._models.names)})
            case "status":
                return self._status(target)
            case "metadata":
                return self._metadata(target)
            case "server_metadata":
                server = {"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS}
                return orjson.dumps(server)
            case "model_metadata":
                _, signatures = self._plane.signatures(target)
                versions = self._models.status(target.name)
                return orjson.dumps(model_metadata(target.name, signatures, versions))
            case "model_ready":
                return self._model_ready(target)
            case _:
                return self._called(target, requested, request)

    def _called(self, target: Target, method: str, request: Request) -> bytes | Response:
        deadline = time.monotonic() + self._seconds if self._seconds > 0 else None
        caller = Requester(deadline, request.gone)
        self._admit()
        try:
            with self._reading(target, method):
                document = self._document(target, method, request, caller)
            target = Target(target.name, target.version, target.label, document.signature)
            return self._methods[method](target, document, caller)
        finally:
            self._admission.release()

    def _document(
        self, target: Target, method: str, request: Request, caller: Requester
    ) -> Document:
        """Return a parsed document; few small ones are converted concurrently."""
        content = memoryview(b"")
        with self._converted(caller):
            body = _body(request, self._settings.limits)
            if method == "infer":
                text, content = split_body(body, request.headers)
                if text is None:
                    return self._without_document(target, content)
                body = text
            inputs = self._taken(target) if method == "predict" else {}
            if not self._reader.is_large(body):
                return with_content(self._reader.read(method, body, inputs), content)
        document = self._reader.read(method, body, inputs, caller.seconds_left())
        return with_content(document, content)

    def _without_document(self, target: Target, content: memoryview) -> Document:
        """Return the only input of a model, whose data is the whole body, as Triton reads it."""
        _, signatures = self._plane.signatures(target)
        signature = signatures[chosen_signature(target.name, "", signatures)]
        infer = InferDocument(is_binary=True)
        return Document("", only_input(target.name, signature, content), infer=infer)

    def _taken(self, target: Target) -> Inputs | ServingError:
        """Return the inputs of a model by signature, or its error, raised after parsing."""
        try:
            _, signatures = self._plane.signatures(target)
        except ServingError as error:
            return error
        return {name: signature.inputs for name, signature in signatures.items()}

    def _infer(self, target: Target, document: Document, caller: Requester) -> Response:
        requested = document.infer
        answer = self._plane.infer(
            target, document.inputs, list(requested.outputs), caller, requested.classes
        )
        response = InferResponse(answer.name, str(answer.version), requested.id, answer.outputs)
        body, content_type, headers = write_infer(response, requested)
        return Response(200, body, content_type, headers)

    def _model_ready(self, target: Target) -> Response:
        """Respond whether a model or version is available; 404 if it does not exist."""
        try:
            is_ready = is_available(self._models.status(target.name, target.version, target.label))
        except ServingError as error:
            return error_response(404, error.message)
        results = {"name": target.name, "ready": is_ready}
        return Response(200 if is_ready else 503, orjson.dumps(results))

    def _status(self, target: Target) -> bytes:
        results = [
            {
                "version": str(item.version),
                "state": item.state,
                "status": {"error_code": item.code, "error_message": item.message},
            }
            for item in self._models.status(target.name, target.version, target.label)
        ]
        return orjson.dumps({"model_version_status": results})

    def _metadata(self, target: Target) -> bytes:
        answer, signatures = self._plane.signatures(target)
        results: dict[str, Any] = {"signature_def": _plain(signature_map(signatures))}
        if reasons := unavailable_in(signatures):
            results[UNAVAILABLE] = reasons
        return orjson.dumps({"model_spec": _plain(answer.spec), "metadata": results})

    @contextmanager
    def _reading(self, target: Target, method: str) -> Iterator[None]:
        """Record a request that fails within the block in the metrics."""
        start = time.monotonic()
        try:
            yield
        except Exception as error:
            code = "INVALID_ARGUMENT" if isinstance(error, HttpError) else reported(error).status
            self._metrics.observe(target.name, method, code, time.monotonic() - start, 0.0)
            raise

    @contextmanager
    def _converted(self, caller: Requester) -> Iterator[None]:
        """Wait for one of the few slots that convert documents."""
        if not self._converting.acquire(timeout=caller.seconds_left()):
            raise ServingError("DEADLINE_EXCEEDED", "deadline-before-run")
        try:
            yield
        finally:
            self._converting.release()


def _body(request: Request, limits: HttpLimits) -> Buffer:
    """Return the body of a request, unpacked. HttpError: it is too large unpacked."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return request.body
    if coding != "gzip":
        raise refused("http-content-encoding", coding=coding)
    try:
        most = min(limits.body, max(_MAX_UNPACKED, _MAX_RATIO * len(request.body)))
        body = gzip.GzipFile(fileobj=io.BytesIO(request.body)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refused("http-body-not-gzip", reason=error) from None
    if len(body) > limits.body:
        raise too_large(limits)
    if len(body) > most:
        raise HttpError(413, "http-body-unpacks", most=_MAX_RATIO)
    return body


def _plain(message: Any) -> dict[str, Any]:
    """Return a message as JSON in TensorFlow Serving's format."""
    from google.protobuf.json_format import MessageToDict

    plain: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return plain
