"""TLS of a server, gRPC and REST: what it shows is proved before anybody connects."""

import os
import ssl

import grpc

from deploykit.serving.rest.connection import TlsSocket
from deploykit.serving.server.config_files import Tls
from deploykit.transforms.common.errors import Error


class CertificateError(Error):
    """A key or certificate with which no client would be served."""


def credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return what a port of gRPC takes. CertificateError: no client would accept it."""
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
    """Return key and certificates for handshakes. CertificateError: as `credentials`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(context, tls)
    _shake_hands(context, tls.server_cert)
    if tls.custom_ca:
        _trust(context, tls.custom_ca, "custom_ca")
    if tls.client_verify:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def https_context(tls: Tls) -> ssl.SSLContext:
    """Return what the port of REST takes. CertificateError: as `credentials`."""
    context = server_context(tls)
    context.sslsocket_class = TlsSocket
    context.options |= ssl.OP_NO_RENEGOTIATION  # which a client can ask for again and again
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_chain(context: ssl.SSLContext, tls: Tls) -> None:
    """Give key and certificate to a context, which reads files only; these are in memory alone."""
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
    """Connect in memory to a server, trusting its own certificate, as a client would tomorrow."""
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
        for _ in range(3):  # a handshake takes that many turns
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
