"""Responds while no worker is ready: REST with 503, gRPC with UNAVAILABLE.

The parent process listens first on the shared ports, so its socket has index 0 among those that
Linux selects for a new connection. A BPF filter selects one of the workers' sockets, which follow.
If these are closed, even before the parent knows, Linux ignores the filter and selects the
remaining one: the parent. So no connection is refused.
"""

import ctypes
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc

from deploykit.serving.execution.uploads import Upload
from deploykit.serving.rest.http_requests import HttpError, HttpLimits
from deploykit.serving.rest.listener import Listener, error_response
from deploykit.serving.server.ports import (
    bracketed,
    channel_options,
    listening_sockets,
    refused_port,
)
from deploykit.serving.server.settings import ServerSettings
from deploykit.serving.server.tls import credentials, https_context

logger = logging.getLogger("deploykit")

_CONNECTION_MS = 200  # then gRPC clients reconnect, to a worker if one is ready
_ATTACH_FILTER = 51  # Linux's SO_ATTACH_REUSEPORT_CBPF, missing in Python
_LOAD_RANDOM, _MODULO, _ADD, _RETURN, _RETURN_RESULT = 0x20, 0x94, 0x04, 0x06, 0x16
_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM


class Standby:
    """The parent's listeners on the ports of its workers; create it before these listen."""

    def __init__(self, settings: ServerSettings) -> None:
        """Listen if Linux can route connections to the workers; otherwise do nothing.

        Error: the ports or certificates cannot be used.
        """
        self._lock = threading.Lock()
        self._ready = 0
        self._ports = [settings.port]
        self._grpc = _grpc_server(settings)
        self._rest: Listener | None = None
        try:
            self._grpc.start()
            if settings.rest_api_port is not None:
                self._ports.append(settings.rest_api_port)
                self._rest = _rest_listener(settings)
                self._rest.start()
            self.count(0)
        except OSError as error:
            logger.debug("connections are refused while no worker is ready: %s", error)
            self.close()
        except BaseException:
            self.close()
            raise

    def count(self, change: int) -> None:
        """Add `change` to the number of ready workers (1 or -1), and update the filter."""
        with self._lock:
            self._ready += change
            for port in self._ports:
                for listening_socket in listening_sockets(port):
                    _choose_worker(listening_socket, self._ready)

    def close(self) -> None:
        """Stop listening for good."""
        with self._lock:
            self._ports.clear()
        self._grpc.stop(None)
        if self._rest is not None:
            self._rest.close()

    def __enter__(self) -> "Standby":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _choose_worker(shared: socket.socket, ready: int) -> None:
    """Route new connections to a random worker, or to the parent if none is ready.

    OSError: the system does not support the filter.
    """
    steps = [(_LOAD_RANDOM, _RANDOM), (_MODULO, ready), (_ADD, 1), (_RETURN_RESULT, 0)]
    program = b"".join(
        struct.pack("HBBI", code, 0, 0, value)
        for code, value in (steps if ready else [(_RETURN, 0)])
    )
    retained = ctypes.create_string_buffer(program, len(program))
    filter_of = struct.pack("HP", len(program) // 8, ctypes.addressof(retained))
    shared.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, filter_of)


def _rest_listener(settings: ServerSettings) -> Listener:
    tls = None if settings.rest_plain else settings.tls
    made = Listener(
        lambda _: error_response(
            503, str(HttpError(503, "no-worker-ready"))
        ),  # unreachable, as `begin` rejects requests
        settings.host,
        settings.rest_api_port or 0,
        HttpLimits(body=settings.max_message_bytes),
        reuse_port=True,
        begin=_refuse_body,
        tls=https_context(tls) if tls else None,
    )
    made.leaving = True  # so that the next request opens a connection, to a worker if one is ready
    return made


def _refuse_body(*_: object) -> Upload | None:
    raise HttpError(503, "no-worker-ready", retry=True)


def _grpc_server(settings: ServerSettings) -> grpc.Server:
    options = dict(channel_options(settings)) | {"grpc.max_connection_age_ms": _CONNECTION_MS}
    made = grpc.server(ThreadPoolExecutor(2), [_Refusal()], options=list(options.items()))
    address = f"{bracketed(settings.host)}:{settings.port}"
    try:
        if settings.tls is None:
            made.add_insecure_port(address)
        else:
            made.add_secure_port(address, credentials(settings.tls))
    except RuntimeError:
        raise refused_port(address, "cannot listen there", "--port") from None
    return made


class _Refusal(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Rejects any call before its request is read."""

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(_unavailable)


def _unavailable(_: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.UNAVAILABLE, str(HttpError(503, "no-worker-ready")))
    raise AssertionError
