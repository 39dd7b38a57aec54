"""What a server offers, for the tools that ask: they need no .proto files then."""

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

_V1 = "grpc.reflection.v1.ServerReflection"  # the messages of v1alpha, renamed
_PATHS = {f"/{name}/ServerReflectionInfo" for name in (reflection.SERVICE_NAME, _V1)}
_OPEN = 16  # tools that keep a stream open: each takes a thread


class Reflection(grpc.GenericRpcHandler):  # type: ignore[misc]
    """grpc.reflection.v1 and v1alpha.

    Where one more tool opens a stream than there may be, that ends whose question was asked the
    longest ago.
    """

    def __init__(self) -> None:
        """Answer about the services of a server; there is no thread yet."""
        self.threads = CallThreads(0, "reflection", patience=0, arriving=_OPEN)
        """One for each stream."""
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
        """Return what answers a stream of questions, for which there is room."""
        if details.method not in _PATHS:
            return None
        with contextlib.suppress(ServingError):
            self.threads.check_free(computing=False)
        return self._handler

    def _questions(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with contextlib.suppress(ServingError):  # it had to make room
            while (question := self.threads.awaited(requests, context)) is not None:
                yield question


def _pool() -> Any:
    """Return a pool of all that this server speaks."""
    pool = private_pool()
    for file in (health_pb2.DESCRIPTOR, messages.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    return pool
