"""Ports, taken before models are loaded: what is wrong with one is said at once."""

import errno
import os
import socket

from deploykit.serving.server.settings import ServerSettings
from deploykit.transforms.core.errors import FileError


def check_ports(settings: ServerSettings) -> None:
    """Raise FileError now for a port on which nobody could listen after the models are loaded."""
    _check_port(settings, settings.port, "--port")
    if settings.rest_api_port is not None:
        _check_port(settings, settings.rest_api_port, "--rest_api_port")


def _check_port(settings: ServerSettings, port: int, flag: str) -> None:
    bound(settings.host, port, flag, shared=settings.workers > 1).close()


def bound(host: str, port: int, flag: str, shared: bool) -> socket.socket:
    """Return a socket that has a port, but does not listen. FileError: it cannot be had."""
    trial = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        trial = socket.socket(family, socket.SOCK_STREAM)
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        if shared:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        trial.bind(address)
    except OSError as error:
        if trial is not None:
            trial.close()
        shown = f"{bracketed(host)}:{port}"
        raise refused_port(shown, _words(error), flag) from None
    return trial


def _words(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def refused_port(shown: str, why: str, flag: str) -> FileError:
    """Return the error about an address that cannot be had."""
    free = " (0 takes one that is free)" if flag == "--port" else ""
    return FileError("port-unavailable", source=shown, reason=why, flag=flag, hint=free)
