"""Uploads over gRPC that stop before their end, frame by frame; no gRPC client makes such ones."""

import select
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK, _END_HEADERS = 1, 4
_STREAM = 1
_CHUNK = 1 << 20  # bytes: as much is sent in one go


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def headers(path: str) -> bytes:
    """Return the headers of a call: HPACK without a table and without Huffman's code."""
    lines = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "here"),
             ("te", "trailers"), ("content-type", "application/grpc"))  # fmt: skip
    return b"".join(b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in line)
                    for line in lines)  # fmt: skip


class UnfinishedUpload:
    """A call whose request says to have so many bytes, of which some are sent."""

    def __init__(self, port: int, path: str, size: int) -> None:
        """Begin it."""
        self.sent = 0
        self.reset: int | None = None
        """Why the server ended the call, as a code of HTTP/2."""
        self._windows = {0: 65535, _STREAM: 65535}
        self._most = 16384
        self._read = b""
        self._head = b"\0" + struct.pack(">I", size)  # the size of the message
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        begin = frame(_HEADERS, _END_HEADERS, _STREAM, headers(path))
        self.socket.sendall(PREFACE + frame(_SETTINGS, 0, 0, b"") + begin)

    def send(self, count: int) -> None:
        """Send so many bytes more, as fast as the server takes them; end early where it is done."""
        left = count
        try:
            while left and self.reset is None:
                room = min(left, _CHUNK, *self._windows.values())
                self._hear(0 if room > 0 else 30)
                if room > 0:
                    self.socket.sendall(self._frames(room))
                    left -= room
        except OSError:  # the connection is gone
            pass

    def hear(self, seconds: float) -> None:
        """Answer what the server says, for so long, or until it ends the call."""
        try:
            while self.reset is None and self._hear(seconds):
                pass
        except OSError:
            pass

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _frames(self, count: int) -> bytes:
        content = self._head + bytes(count - len(self._head))
        self._head = b""
        self.sent += count
        for window in self._windows:
            self._windows[window] -= count
        parts = (content[at : at + self._most] for at in range(0, count, self._most))
        return b"".join(frame(_DATA, 0, _STREAM, part) for part in parts)

    def _hear(self, seconds: float) -> bool:
        """Take in what there is, after so long at most; return whether there was any."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return False
        found = self.socket.recv(1 << 16)
        if not found:
            raise ConnectionError
        self._read += found
        while len(self._read) >= 9:
            size = int.from_bytes(self._read[:3], "big")
            if len(self._read) < 9 + size:
                break
            kind, flags, stream = struct.unpack(">BBI", self._read[3:9])
            self._obey(kind, flags, stream, self._read[9 : 9 + size])
            self._read = self._read[9 + size :]
        return True

    def _obey(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            self._windows[stream] += struct.unpack(">I", content)[0]
        elif kind == _RST_STREAM:
            self.reset = struct.unpack(">I", content)[0]
        elif kind == _PING and not flags & _ACK:
            self.socket.sendall(frame(_PING, _ACK, 0, content))
        elif kind == _SETTINGS and not flags & _ACK:
            for key, value in struct.iter_unpack(">HI", content):
                if key == 4:
                    self._windows[_STREAM] += value - 65535
                elif key == 5:
                    self._most = value
            self.socket.sendall(frame(_SETTINGS, _ACK, 0, b""))
