"""gRPC server reflection: clients such as grpcurl need no .proto files."""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as messages

from deploykit.serving.grpc_server.health import SERVICES
from deploykit.serving.grpc_server.threads import CallThreads, answered_by
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.ir.protos import private_pool

_V1 = "grpc.reflection.v1.ServerReflection"  # the messages of v1alpha under another name
_PATHS = {f"/{name}/ServerReflectionInfo" for name in (reflection.SERVICE_NAME, _V1)}
_OPEN = 16  # open streams; each takes a thread


class Reflection(grpc.GenericRpcHandler):  # type: ignore[misc]
    """grpc.reflection.v1 and v1alpha.

    At the limit of open streams, a new one ends the stream whose last request is the oldest.
    """

    def __init__(self) -> None:
        """Describe the services of the server; threads start later."""
        self.threads = CallThreads(0, "reflection", patience=0, arriving=_OPEN)
        """One thread per stream."""
        names = (*SERVICES, HEALTH, reflection.SERVICE_NAME)
        servicer = reflection.ReflectionServicer(names, pool=_pool())

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return servicer.ServerReflectionInfo(self._questions(requests, context), context)

        self._handler = grpc.stream_stream_rpc_method_handler(
            answered_by(self.threads, answer),
            messages.ServerReflectionRequest.FromString,
            messages.ServerReflectionResponse.SerializeToString,
        )

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a stream, after ending an idle one if necessary."""
        if details.method not in _PATHS:
            return None
        with contextlib.suppress(ServingError):
            self.threads.check_free(computing=False)
        return self._handler

    def _questions(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with contextlib.suppress(ServingError):  # the stream was ended for another one
            while (question := self.threads.awaited(requests, context)) is not None:
                yield question


def _pool() -> Any:
    """Return a descriptor pool of all services."""
    pool = private_pool()
    for file in (health_pb2.DESCRIPTOR, messages.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    return pool
