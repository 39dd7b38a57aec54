"""The gRPC health service of a server and its models."""

import threading
from collections.abc import Callable
from typing import Any

from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from deploykit.serving.grpc_server.grpc_calls import GrpcCall, Method, of_messages, parsed
from deploykit.serving.grpc_server.threads import CallThreads
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import INFERENCE_SERVICE
from deploykit.serving.protocol.protos import MODEL_SERVICE, PREDICTION_SERVICE
from deploykit.serving.protocol.versions import check_name

SERVICES = (MODEL_SERVICE, PREDICTION_SERVICE, INFERENCE_SERVICE)
_NAMES = ("", *SERVICES, *(name.rpartition(".")[2] for name in SERVICES))
"""Names of the whole server; TensorFlow Serving has only the short ones."""

_SERVICE = "the name of the service"
_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
_SERVING = HealthCheckResponse.SERVING
_NOT_SERVING = HealthCheckResponse.NOT_SERVING

_PROBES = 24  # concurrent probes


class Health:
    """grpc.health.v1: the server serves while one of its models does; each model has its own name.

    gRPC's servicer keeps watchers until they disconnect, which would delay each shutdown.
    """

    def __init__(self, models: Callable[[], dict[str, bool]]) -> None:
        """`models` returns for each configured model whether it is available."""
        self._models = models
        self.threads = CallThreads(_PROBES, "health")
        """The threads of its methods, so that probes do not wait for model calls."""
        self._lock = threading.RLock()
        self._watchers: dict[Callable[[bytes | None], None], tuple[str, int]] = {}
        self._serving = False

    def begin(self) -> None:
        """Report SERVING from now on."""
        self._serving = True
        self.tell()

    def end(self) -> None:
        """Report NOT_SERVING from now on."""
        self._serving = False
        self.tell()

    def is_serving(self) -> bool:
        """Return whether the server serves."""
        return self._state("") == int(_SERVING)

    def leave(self) -> None:
        """End the calls of all watchers."""
        with self._lock:
            for send in list(self._watchers):
                send(None)
            self._watchers.clear()

    def tell(self) -> None:
        """Send changed states to the watchers."""
        with self._lock:
            for send, (name, last) in list(self._watchers.items()):
                if (state := self._state(name)) != last:
                    self._watchers[send] = name, state
                    send(_written(state))

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        check = of_messages(HealthCheckRequest, self._check)
        return {
            f"/{HEALTH}/Check": Method(check, threads=self.threads),
            f"/{HEALTH}/Watch": Method(self._watch, threads=self.threads, watches=True),
        }

    def _check(self, request: Any, _: GrpcCall) -> Any:
        check_name(_SERVICE, request.service)
        state = self._state(request.service)
        if state == _UNKNOWN:
            raise ServingError("NOT_FOUND", "service-missing", name=request.service)
        return HealthCheckResponse(status=state)

    def _watch(self, request: bytes, call: GrpcCall, send: Callable[[bytes | None], None]) -> None:
        name = parsed(HealthCheckRequest, request).service
        check_name(_SERVICE, name)
        with self._lock:
            state = self._state(name)
            send(_written(state))
            if call.context.add_callback(lambda: self._watchers.pop(send, None)):
                self._watchers[send] = name, state

    def _state(self, name: str) -> int:
        models = self._models()
        if name in _NAMES:
            serves = any(models.values()) or not models
        elif name in models:
            serves = models[name]
        else:
            return int(_UNKNOWN)
        return int(_SERVING if serves and self._serving else _NOT_SERVING)


def _written(state: int) -> bytes:
    return bytes(HealthCheckResponse(status=state).SerializeToString())
