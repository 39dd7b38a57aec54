"""Small changes to sound files that know how the files are made, and some that do not."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from deploykit.transforms.ir.tfrecord import framed
from tests.hostile.corpus.keras_archives import archive
from tests.hostile.wire import fields, payload, varint

Mutate = Callable[[bytes, random.Random], bytes]

NUMBERS = (0, 1, 2, 3, 7, 127, 128, 255, 256, 1000, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 32,
           (1 << 40) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2)  # fmt: skip
TEXTS = (b"", b"\0", b"\xff", b"^x", b"x:1", b"x:99", b"out", b"../../etc/passwd", b"a" * 300,
         b"Relu", b"Const", b"While", b"ReadFile", b"T", b"dtype", b"value",
         b"\x1b[2J")  # fmt: skip
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1 << 40, 1 << 70, 1e400, float("nan"), "", "x", "\0",
                           "../..", [], {}, [[]], [None] * 3, {"": 0})  # fmt: skip
DEEPEST = 12


def message(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Change a protobuf message somewhere: a field is dropped, doubled, moved, or changed."""
    return _message(content, chance, others, DEEPEST)


def _message(content: bytes, chance: random.Random, others: Sequence[bytes], depth: int) -> bytes:
    try:
        parts = fields(content)
    except ValueError:
        return noise(content, chance)
    if not parts:
        return content + _field(chance)
    at = chance.randrange(len(parts))
    number, kind, whole = parts[at]
    raw = [each for _, _, each in parts]
    if kind == 2 and depth and chance.random() < 0.75:
        inner = payload(whole)
        raw[at] = _block(number, _content(inner, chance, others, depth - 1))
    elif (act := chance.randrange(6)) == 0:
        del raw[at]
    elif act == 1:
        raw.insert(chance.randrange(len(raw) + 1), whole)
    elif act == 2:
        other = chance.randrange(len(raw))
        raw[at], raw[other] = raw[other], raw[at]
    elif act == 3:
        raw.insert(at, _field(chance))
    elif act == 4 and others:
        raw[at] = _spliced(number, whole, chance.choice(others))
    else:
        raw[at] = _other_value(number, kind, whole, chance)
    return b"".join(raw)


def _content(inner: bytes, chance: random.Random, others: Sequence[bytes], depth: int) -> bytes:
    try:
        found = fields(inner)
    except ValueError:
        found = []
    is_text = inner.isascii() and inner.decode("ascii", "replace").isprintable()
    if found and not (is_text and chance.random() < 0.7):
        return _message(inner, chance, others, depth)
    return chance.choice(TEXTS) if chance.random() < 0.5 else noise(inner, chance)


def _block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _field(chance: random.Random) -> bytes:
    number = chance.randint(1, 16)
    if chance.random() < 0.5:
        return varint(number << 3) + varint(chance.choice(NUMBERS))
    return _block(number, chance.choice(TEXTS))


def _spliced(number: int, whole: bytes, other: bytes) -> bytes:
    found = [each for n, _, each in _deep(other) if n == number]
    return found[len(found) // 2] if found else whole


def _deep(content: bytes, depth: int = 4) -> list[tuple[int, int, bytes]]:
    try:
        found = fields(content)
    except ValueError:
        return []
    inner = [each for _, kind, whole in found if kind == 2 and depth
             for each in _deep(payload(whole), depth - 1)]  # fmt: skip
    return [*found, *inner]


def _other_value(number: int, kind: int, whole: bytes, chance: random.Random) -> bytes:
    if kind == 0:
        return varint(number << 3) + varint(chance.choice(NUMBERS))
    if kind == 2:
        return _block(number, chance.choice(TEXTS))
    size = 8 if kind == 1 else 4
    return whole[:-size] + chance.choice((b"\xff", b"\0", b"\x7f")) * size


def noise(content: bytes, chance: random.Random) -> bytes:
    """Flip bits, cut, or put bytes in, without any knowledge."""
    changed = bytearray(content)
    act = chance.randrange(4)
    if not changed or act == 0:
        at = chance.randint(0, len(changed))
        changed[at:at] = chance.randbytes(chance.choice((1, 4, 50)))
    elif act == 1:
        del changed[chance.randrange(len(changed)) :]
    elif act == 2:
        at = chance.randrange(len(changed))
        del changed[at : at + chance.choice((1, 4, 50))]
    else:
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def document(content: bytes, chance: random.Random) -> bytes:
    """Change a JSON document somewhere."""
    try:
        value = json.loads(content)
    except ValueError:
        return noise(content, chance)
    if chance.random() < 0.1:
        return noise(content, chance)
    return json.dumps(_value(value, chance)).encode()


def _value(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.9:
        changed, key = dict(value), chance.choice(list(value))
        act = chance.random()
        if act < 0.1:
            del changed[key]
        elif act < 0.2:
            changed[chance.choice(("", "x", "\0", key + key))] = changed.pop(key)
        else:
            changed[key] = _value(changed[key], chance)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.9:
        listed, at = list(value), chance.randrange(len(value))
        act = chance.random()
        if act < 0.1:
            del listed[at]
        elif act < 0.2:
            listed *= chance.choice((2, 50))
        else:
            listed[at] = _value(listed[at], chance)
        return listed
    return chance.choice(VALUES)


def records(content: bytes, chance: random.Random) -> bytes:
    """Change a record of a TFRecord file, with a right checksum, or the file itself."""
    if chance.random() < 0.4:
        return noise(content, chance)
    found, at = [], 0
    while at + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        found.append(content[at + 12 : at + 12 + size])
        at += 16 + size
    if not found:
        return noise(content, chance)
    one = chance.randrange(len(found))
    found[one] = message(found[one], chance)
    return b"".join(map(framed, found))


def zipped(content: bytes, chance: random.Random) -> bytes:
    """Change a part of an archive, with a right checksum, or the archive itself."""
    if chance.random() < 0.4:
        return noise(content, chance)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            parts = {info.filename: file.read(info) for info in file.infolist()}
    except Exception:  # an earlier change has damaged it
        parts = {}
    if not parts:
        return noise(content, chance)
    name = chance.choice(list(parts))
    change: Mutate = document if name.endswith(".json") else noise
    parts[name] = (
        _header(parts[name], chance) if name.endswith(".npy") else change(parts[name], chance)
    )
    return archive(parts)


def _header(content: bytes, chance: random.Random) -> bytes:
    """Change an array's header where it is text, or any byte."""
    end = content.find(b"\n", 10)
    if end < 0 or chance.random() < 0.3:
        return noise(content, chance)
    head = noise(content[10:end], chance)
    return content[:8] + struct.pack("<H", len(head) + 1) + head + content[end:]
