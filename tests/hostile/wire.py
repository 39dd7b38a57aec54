"""The bytes of protobuf messages, one field at a time, right or wrong."""


def varint(value: int) -> bytes:
    """Return a whole number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number."""
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes, length: int | None = None) -> bytes:
    """Return a field that holds bytes or a message; `length` is a lie about its size."""
    return varint(field << 3 | 2) + varint(len(content) if length is None else length) + content


def group(field: int, content: bytes = b"") -> bytes:
    """Return a field in the old form with a start and an end."""
    return varint(field << 3 | 3) + content + varint(field << 3 | 4)


def fields(message: bytes) -> list[tuple[int, int, bytes]]:
    """Return the fields of a message: number, wire type, and all of its bytes. ValueError: none."""
    found, at = [], 0
    while at < len(message):
        start = at
        key, at = _varint_at(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint_at(message, at)
        elif kind == 2:
            size, at = _varint_at(message, at)
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("no such wire type")
        if at > len(message) or not key >> 3:
            raise ValueError("the message ends inside a field")
        found.append((key >> 3, kind, message[start:at]))
    return found


def payload(field: bytes) -> bytes:
    """Return the content of a field with a length."""
    _, at = _varint_at(field, 0)
    _, at = _varint_at(field, at)
    return field[at:]


def _varint_at(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("no whole number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
