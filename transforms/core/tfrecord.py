"""TFRecord files: each record is its length, its bytes, and a masked CRC-32C of either.

Format: tensorflow/core/lib/io/record_writer.h. google-crc32c computes the checksum with the
processor's own instruction, at the speed of memory.
"""

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from typing import IO, cast

import google_crc32c

from deploykit.transforms.core.errors import FileError, VerificationError
from deploykit.transforms.core.files.reading import (
    MOST_RATIO,
    MOST_UNPACKED,
    opened,
    read_up_to,
)

OVERHEAD = 16  # bytes that framing adds to a record
MAX_RECORD = 2 << 30  # protobuf reads no message above 2 GiB

_GZIP = b"\x1f\x8b\x08"


def masked_crc(content: bytes) -> int:
    """Return the checksum as it is stored: rotated by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(content))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """Return a record as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc(length)),
            record,
            struct.pack("<I", masked_crc(record)),
        )
    )


def is_gzip(path: str | os.PathLike[str]) -> bool:
    """Say whether a file is compressed. FileError: it cannot be read."""
    try:
        with opened(path) as file:
            head = file.read(12)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    # A record of 559,903 bytes begins with the same three bytes; then a checksum follows.
    return head.startswith(_GZIP) and head[8:] != struct.pack("<I", masked_crc(head[:8]))


def read_records(path: str | os.PathLike[str], compressed: bool) -> Iterator[bytes]:
    """Yield the records of a file.

    FileError: it cannot be read. VerificationError: it is damaged; the message names the record.
    """
    number = 0
    try:
        with opened(path) as raw:
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if compressed else raw)
            size = os.fstat(raw.fileno()).st_size
            most = max(MOST_UNPACKED, MOST_RATIO * size) if compressed else MAX_RECORD
            while True:
                record = _next(file, f"{path}: record {number}", most)
                if record is None:
                    return
                yield record
                number += 1
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise VerificationError(f"{path}: record {number}: gzip: {error}") from None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


def _next(file: IO[bytes], where: str, most: int) -> bytes | None:
    head = file.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise VerificationError(f"{where} is cut short: {len(head)} of the 12 bytes before it")
    length, crc = struct.unpack("<QI", head)
    if crc != masked_crc(head[:8]):
        raise VerificationError(f"{where}: the checksum of its length is wrong")
    if length > MAX_RECORD:
        raise VerificationError(f"{where}: {length} bytes, more than protobuf reads")
    if length > most:
        raise VerificationError(
            f"{where}: {length} bytes, more than {MOST_RATIO} times its file, which no record has"
        )
    body = read_up_to(file, length + 4)
    if len(body) < length + 4:
        raise VerificationError(
            f"{where} is cut short: {len(body)} of {length + 4} bytes, checksum included"
        )
    if struct.unpack_from("<I", body, length)[0] != masked_crc(body[:length]):
        raise VerificationError(f"{where}: the checksum of its bytes is wrong")
    return body[:length]
