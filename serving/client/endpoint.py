"""A channel to a server: address, TLS, retries, sizes, errors, and requests of a load test."""

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

import grpc

from deploykit.serving.protocol.errors import OK, SERVED_HERE
from deploykit.serving.protocol.open_inference import INFERENCE_SERVICE
from deploykit.serving.protocol.protos import MODEL_SERVICE, PREDICTION_SERVICE
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.untrusted.files import MAX_TEXT, check_socket_path, read_bytes

ServingProtocol = Literal["tensorflow", "v2"]
PROTOCOLS: tuple[ServingProtocol, ...] = get_args(ServingProtocol)


@dataclass(frozen=True)
class Connection:
    """The options of a connection, without the address."""

    HEADING: ClassVar = "Server"

    tls: bool = False
    """Encrypt, and trust the certificate authorities of this system."""
    ca: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """Encrypt, and trust the certificate authorities in this file."""
    certificate: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """Your own certificate, for a server that asks for one (mutual TLS)."""
    key: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """The private key of your certificate."""
    server_name: Annotated[str | None, Flag(metavar="NAME")] = None
    """The name in the server's certificate, if it differs from the address."""
    timeout: Annotated[float, Flag(metavar="SECONDS", above=0)] = 60
    """Wait at most this long for a response."""
    retries: Annotated[int, Flag(is_python_only=True, at_least=0)] = 2
    """Retries of a request while the server cannot be reached; `reload` is never retried."""
    protocol: ServingProtocol = "tensorflow"
    """API of the server: tensorflow for TensorFlow Serving, v2 for the Open Inference Protocol of
    KServe, Triton, OpenVINO Model Server and MLServer (ADDRESS may be an HTTP URL)."""

    def __post_init__(self) -> None:
        """Raise Error for an unknown protocol."""
        if self.protocol not in PROTOCOLS:
            raise Error("not-one-of", what="--protocol", known=PROTOCOLS, got=self.protocol)


DEFAULT_CONNECTION = Connection()


MODEL_INFER = f"/{INFERENCE_SERVICE}/ModelInfer"

_UNBOUNDED = -1
_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 2.0
_PEER = re.compile(r"^([A-Z_]+: )?((ipv[46]|unix):\S+: )?")  # gRPC puts this before the reason
_RETRIED_BYTES = 256 << 20  # gRPC does not retry larger requests
_RECONNECT_MS = 100  # gRPC's default of a second would make each retry miss the server's start


class CallError(Error):
    """A request that failed. `status` is the name of a grpc.StatusCode."""

    def __init__(self, code: str = "", /, status: str = "UNKNOWN", **fields: object) -> None:
        """Store the status. For a passed deadline, a command exits as for a time limit."""
        super().__init__(code, **fields)
        self.status = status
        if status == "DEADLINE_EXCEEDED":
            self.exit_status = 6


@dataclass(frozen=True)
class Endpoint:
    """The address of a server and the connection options, as plain data."""

    address: str
    """`host:port` or `unix:path`."""
    connection: Connection
    method: str = f"/{PREDICTION_SERVICE}/Predict"
    """The gRPC method of a load test."""

    def channel(self, own_connection: bool = False) -> grpc.Channel:
        """Return a new channel, which connects on first use.

        Channels of one process share a connection, unless `own_connection` is set.
        Error: the address is invalid. FileError: a certificate or key cannot be read.
        """
        _check(self.address)
        how = self.connection
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", _UNBOUNDED),
            ("grpc.max_send_message_length", _UNBOUNDED),
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
            ("grpc.per_rpc_retry_buffer_size", _RETRIED_BYTES),
            ("grpc.enable_retries", int(how.retries > 0)),
            ("grpc.use_local_subchannel_pool", int(own_connection)),
        ]
        if how.retries > 0:
            options.append(("grpc.service_config", json.dumps(_retrying(how.retries))))
        if how.server_name is not None:
            options.append(("grpc.ssl_target_name_override", how.server_name))
        if not self._is_encrypted:
            return grpc.insecure_channel(self.address, options)
        ca, key, certificate = map(_content, (how.ca, how.key, how.certificate))
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.secure_channel(self.address, credentials, options)

    def error(self, failed: grpc.RpcError) -> CallError:
        """Return the error of a failed request."""
        status, source = failed.code().name, self.address
        details = " ".join((failed.details() or "the server gave no reason").split())
        if status == "UNAVAILABLE":
            last = _PEER.sub("", details.rsplit("last error: ", 1)[-1])
            hint = self._advice(details)
            return CallError("server-unavailable", status, source=source, reason=last, hint=hint)
        if status == "DEADLINE_EXCEEDED":
            seconds = self.connection.timeout
            return CallError("response-timeout", status, source=source, seconds=seconds)
        if status == "UNIMPLEMENTED":
            return CallError("call-unimplemented", status, source=source, reason=details)
        has_list = SERVED_HERE in details or self.connection.protocol == "v2"
        if status == "NOT_FOUND" and not has_list:
            return CallError("call-not-found", status, source=source, reason=details)
        return CallError("call-failed", status, source=source, reason=details, grpc_status=status)

    def _advice(self, reason: str) -> str:
        """Return what helps where no connection can be made, in parentheses, or an empty string."""
        host, _, port = self.address.rpartition(":")
        if not self._is_encrypted:
            if "HTTP/2" in reason:
                return " (is this the port of REST?)"
            is_tls = not self.address.startswith("unix:") and speaks_tls(host, int(port))
            return NEEDS_TLS if is_tls else ""
        if "WRONG_VERSION_NUMBER" in reason:
            return " (the server does not encrypt: connect without TLS options)"
        if "Hostname" in reason:
            return OTHER_NAME
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return "" if "expired" in reason or "not yet valid" in reason else OTHER_AUTHORITY
        is_asked = "Socket closed" in reason or "CERTIFICATE_REQUIRED" in reason
        return _NEEDS_CERTIFICATE if is_asked and not self.connection.certificate else ""

    @property
    def _is_encrypted(self) -> bool:
        return bool(self.connection.tls or self.connection.ca or self.connection.certificate)

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Return the response of a stub's method. CallError: the request failed."""
        try:
            return method(request, timeout=self.connection.timeout)
        except grpc.RpcError as error:
            raise self.error(error) from None

    def __call__(self) -> "GrpcSender":
        """Return a sender of serialized requests, with its own connection."""
        return GrpcSender(self)


class GrpcSender:
    """Sends serialized requests to one method and returns only the status of each response."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Connect. If that fails, each request returns the error status."""
        channel = endpoint.channel(own_connection=True)
        with contextlib.suppress(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
        self._method: Any = channel.unary_unary(endpoint.method)
        self._timeout = endpoint.connection.timeout

    def send(self, request: bytes) -> str:
        """Wait for the response; return the name of its status."""
        try:
            self._method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            return str(error.code().name)
        return OK

    def begin(self, request: bytes, done: Callable[[str], None]) -> None:
        """Send it and return; another thread calls `done` with the status."""
        call = self._method.future(request, timeout=self._timeout)
        call.add_done_callback(lambda call: done(call.code().name))


NEEDS_TLS = " (the server encrypts: give its certificate authority with --ca FILE.pem, or --tls)"
OTHER_AUTHORITY = " (give its certificate authority with --ca FILE.pem)"

OTHER_NAME = " (give the name in its certificate with --server-name)"
_NEEDS_CERTIFICATE = " (does the server ask for a certificate? --certificate and --key give yours)"


def speaks_tls(host: str, port: int) -> bool:
    """Return whether a server encrypts. Its certificate is not checked, and nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), port), _PROBE_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except (OSError, ValueError):  # no server, no TLS or not a host
        return False
    return True


def _check(address: str) -> None:
    """Raise Error for an invalid address; gRPC would take 65537 as port 1."""
    if address.startswith("unix:"):
        check_socket_path(address.removeprefix("unix:").removeprefix("//"))
        return
    host, _, port = address.rpartition(":")
    has_port = port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    if host and has_port and not host.startswith(("http:", "https:")):
        return
    raise Error("grpc-address", source=address)


def _retrying(retries: int) -> dict[str, Any]:
    """Return a gRPC service config that retries idempotent requests to an unavailable server.

    gRPC retries within the deadline, with randomized exponential backoff, and throttles retries
    after many failures.
    """
    methods = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
    names = [{"service": PREDICTION_SERVICE, "method": method} for method in methods]
    policy = {
        "maxAttempts": 1 + min(retries, 4),  # gRPC allows no more
        "initialBackoff": "0.2s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return {
        "methodConfig": [
            {
                "name": [
                    *names,
                    {"service": MODEL_SERVICE, "method": "GetModelStatus"},
                    {"service": INFERENCE_SERVICE},
                ],
                "retryPolicy": policy,
            }
        ],
        "retryThrottling": {"maxTokens": 20, "tokenRatio": 0.1},
    }


def _content(path: str | None) -> bytes | None:
    return None if path is None else read_bytes(path, MAX_TEXT, "key or certificate")
