"""A connection of TLS that is used as a plain one is: time limits and half-closing work alike."""

import contextlib
import socket
import ssl
import time
from typing import Any

_PLAIN_HTTP = b'{"error":"This port speaks HTTPS; the request came as plain HTTP"}'
_TOLD = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_PLAIN_HTTP), _PLAIN_HTTP)
)
_MOST_READ = 1 << 20  # bytes of what a client still sends that speaks no TLS
_READ_SECONDS = 1.0


class TlsSocket(ssl.SSLSocket):
    """A connection whose handshake is part of the first read, within the time of that."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read; whoever speaks plain HTTP is told so. OSError: the client is refused."""
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                with contextlib.suppress(OSError):
                    self._tell_plainly()
            raise

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send within the time limit in all; ssl's own grants it to each record anew."""
        seconds, rest = self.gettimeout(), memoryview(data).cast("B")
        end = None if seconds is None else time.monotonic() + seconds
        while rest:
            if end is not None:
                self.settimeout(max(end - time.monotonic(), 0.001))
            rest = rest[self.send(rest, flags) :]

    def shutdown(self, how: int) -> None:
        """End one direction or both; ssl's own would go on in clear."""
        if how == socket.SHUT_WR:
            self._say_goodbye()
        socket.socket.shutdown(self, how)

    def close(self) -> None:
        """Close it, and say so."""
        if self.fileno() >= 0:
            self._say_goodbye()
        super().close()

    def _say_goodbye(self) -> None:
        """Tell the client that nothing was cut off, without waiting for its answer."""
        with contextlib.suppress(OSError, ValueError):
            self.settimeout(0.0)
            self.unwrap()

    def _tell_plainly(self) -> None:
        socket.socket.sendall(self, _TOLD)
        socket.socket.shutdown(self, socket.SHUT_WR)
        end, size = time.monotonic() + _READ_SECONDS, 0
        while size < _MOST_READ and (left := end - time.monotonic()) > 0:  # else it is lost
            self.settimeout(left)
            data = socket.socket.recv(self, 1 << 16)
            if not data:
                return
            size += len(data)


def over_tls(context: ssl.SSLContext, connected: socket.socket) -> socket.socket:
    """Return a connection over TLS; nothing is waited for. OSError: the client is gone already."""
    return context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
