"""TLS for gRPC and REST: checks keys and certificates before a client connects."""

import contextlib
import os
import socket
import ssl
import time
from typing import Any

import grpc

from deploykit.serving.server.config_files import Tls
from deploykit.transforms.common.errors import Error

_PLAIN_HTTP = b'{"error":"This port speaks HTTPS; the request came as plain HTTP"}'
_TOLD = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_PLAIN_HTTP), _PLAIN_HTTP)
)
_MAX_READ = 1 << 20  # bytes read from a client without TLS, so that it receives the error
_READ_SECONDS = 1.0


class TlsSocket(ssl.SSLSocket):
    """A TLS connection whose handshake happens in the first read, within that timeout."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read; a client that sends plain HTTP receives an error. OSError: it is rejected."""
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                with contextlib.suppress(OSError):
                    self._tell_plainly()
            raise

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all data within the timeout; ssl's `sendall` applies it to each record."""
        seconds, rest = self.gettimeout(), memoryview(data).cast("B")
        end = None if seconds is None else time.monotonic() + seconds
        while rest:
            if end is not None:
                self.settimeout(max(end - time.monotonic(), 0.001))
            rest = rest[self.send(rest, flags) :]

    def shutdown(self, how: int) -> None:
        """Shut down one direction or both; ssl's `shutdown` would continue without TLS."""
        if how == socket.SHUT_WR:
            self._say_goodbye()
        socket.socket.shutdown(self, how)

    def close(self) -> None:
        """Close it with a TLS close_notify."""
        if self.fileno() >= 0:
            self._say_goodbye()
        super().close()

    def _say_goodbye(self) -> None:
        """Send close_notify without waiting for the response of the client."""
        with contextlib.suppress(OSError, ValueError):
            self.settimeout(0.0)
            self.unwrap()

    def _tell_plainly(self) -> None:
        socket.socket.sendall(self, _TOLD)
        socket.socket.shutdown(self, socket.SHUT_WR)
        end, size = time.monotonic() + _READ_SECONDS, 0
        while size < _MAX_READ and (left := end - time.monotonic()) > 0:  # else the error is lost
            self.settimeout(left)
            data = socket.socket.recv(self, 1 << 16)
            if not data:
                return
            size += len(data)


class CertificateError(Error):
    """A key or certificate that no client would accept."""


def credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return credentials for a gRPC port. CertificateError: no client would accept them."""
    try:
        server_context(tls)
    except CertificateError as error:
        raise error.within(tls.source) from None
    return grpc.ssl_server_credentials(
        [(tls.server_key.encode(), tls.server_cert.encode())],
        root_certificates=tls.custom_ca.encode() or None,
        require_client_auth=tls.client_verify,
    )


def server_context(tls: Tls) -> ssl.SSLContext:
    """Return an SSLContext with key and certificates. CertificateError: as in `credentials`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(context, tls)
    _shake_hands(context, tls.server_cert)
    if tls.custom_ca:
        _trust(context, tls.custom_ca, "custom_ca")
    if tls.client_verify:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def https_context(tls: Tls) -> ssl.SSLContext:
    """Return an SSLContext for the REST port. CertificateError: as in `credentials`."""
    context = server_context(tls)
    context.sslsocket_class = TlsSocket
    context.options |= ssl.OP_NO_RENEGOTIATION  # which a client could request repeatedly
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_chain(context: ssl.SSLContext, tls: Tls) -> None:
    """Load key and certificate through an in-memory file, as SSLContext reads only files."""
    held = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(held, "w", closefd=False) as file:
            file.write(f"{tls.server_key.rstrip()}\n{tls.server_cert}")
        context.load_cert_chain(f"/proc/self/fd/{held}", password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError("tls-key-mismatch") from None
        raise CertificateError("tls-pair-unreadable", reason=_reason(error)) from None
    finally:
        os.close(held)


def _trust(context: ssl.SSLContext, certificates: str, name: str) -> None:
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise CertificateError(
            "tls-certificate-unreadable", name=name, reason=_reason(error)
        ) from None


def _shake_hands(server: ssl.SSLContext, certificate: str) -> None:
    """Run a handshake in memory with a client that trusts the server's certificate."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(client, certificate, "server_cert")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(3):  # a handshake takes three rounds
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        raise CertificateError("tls-clients-refuse", reason=error.verify_message) from None
    except ssl.SSLError as error:
        raise CertificateError("tls-handshake-failed", reason=_reason(error)) from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
