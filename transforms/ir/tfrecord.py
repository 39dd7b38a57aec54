"""TFRecord files: each record has its length, its bytes, and a masked CRC-32C of each.

Format: tensorflow/core/lib/io/record_writer.h. google-crc32c computes the checksum with a CPU
instruction, at memory speed.
"""

import contextlib
import gzip
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

import google_crc32c

from deploykit.transforms.common.errors import FileError, VerificationError
from deploykit.transforms.untrusted.files import MAX_RATIO, most_unpacked, opened, read_up_to

OVERHEAD = 16  # bytes that framing adds to a record
MAX_RECORD = 2 << 30  # protobuf reads no message above 2 GiB

_HEAD = 12  # bytes before a record: its length, and the checksum of that
_GZIP = b"\x1f\x8b\x08"


def masked_crc(content: bytes) -> int:
    """Return the stored checksum: rotated by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(content))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """Return a record with its framing, as stored in a file."""
    length = struct.pack("<Q", len(record))
    checks = (struct.pack("<I", masked_crc(part)) for part in (length, record))
    return b"".join((length, next(checks), record, next(checks)))


def is_gzip(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is compressed. FileError: it cannot be read."""
    try:
        with opened(path) as file:
            head = file.read(12)
    except OSError as error:
        raise FileError("file-error", source=path, reason=error.strerror or error) from None
    # A record of 559,903 bytes begins with the same three bytes; then a checksum follows.
    return head.startswith(_GZIP) and head[8:] != struct.pack("<I", masked_crc(head[:8]))


def is_framed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins with the length of a record. FileError: it cannot be read."""
    with _unpacked(path, is_gzip(path)) as (file, most):
        try:
            head = file.read(_HEAD)
            return len(head) == _HEAD and _length(file, head, most) >= 0
        except (_FramingError, gzip.BadGzipFile, zlib.error, EOFError):
            return False


@dataclass(frozen=True)
class DamagedRecord:
    """Placeholder for a record that cannot be read."""

    reason: str


def read_records(path: str | os.PathLike[str], compressed: bool) -> Iterator[bytes]:
    """Yield the records of a file.

    FileError: it cannot be read. VerificationError: it is damaged; the message names the record.
    """
    number = 0
    with _unpacked(path, compressed) as (file, most):
        try:
            while (record := _next(file, most)) is not None:
                if isinstance(record, DamagedRecord):
                    raise _FramingError(f": {record.reason}")
                yield record
                number += 1
        except _FramingError as error:
            raise VerificationError(
                "tfrecord-damaged", source=path, number=number, reason=error
            ) from None


def read_all_records(
    path: str | os.PathLike[str], compressed: bool, count: int
) -> Iterator[bytes | DamagedRecord]:
    """Yield the `count` records of a file, with a DamagedRecord for each unreadable one.

    A record with damaged bytes is skipped. After a damaged length, the next valid record is
    searched, and the missing records count as damaged; in a compressed file, all remaining records
    do. FileError: it cannot be read. VerificationError: the number of records differs, or the
    records missing in each of several gaps cannot be determined.
    """
    number = 0
    with _unpacked(path, compressed) as (file, most):
        while number < count:
            place = 0 if compressed else file.tell()
            try:
                record = _next(file, most)
            except _FramingError as error:
                lost = count - number
                if not compressed:
                    lost = _lost(file, place, most, lost)
                if lost < 1:
                    break
                yield from [DamagedRecord(str(error).lstrip(": "))] * lost
                number += lost
                continue
            if record is None:
                break
            yield record
            number += 1
        if number == count and _ends(file, most, compressed):
            return
    raise VerificationError("tfrecord-order", source=path, number=number, count=count)


def count_records(path: str | os.PathLike[str], compressed: bool) -> int:
    """Return the number of records in a file, of which only the lengths are checked.

    A last record that is truncated counts. FileError: it cannot be read. VerificationError: a
    length is damaged; the message names the record and the byte.
    """
    number = 0
    with _unpacked(path, compressed) as (file, most):
        try:
            end = None if compressed else os.fstat(file.fileno()).st_size
            while end is None or file.tell() < end:
                head = file.read(_HEAD)
                if not head:
                    break
                number += 1
                if len(head) < _HEAD:
                    break
                file.seek(_length(file, head, most) + 4, os.SEEK_CUR)
        except _FramingError as error:
            raise VerificationError(
                "tfrecord-damaged", source=path, number=number - 1, reason=error
            ) from None
        except (gzip.BadGzipFile, zlib.error, EOFError):
            return max(number, 1)  # reading it names the damage
    return number


class _FramingError(Exception):
    """The start of the next record is unknown; the message completes a sentence about this one."""


@contextlib.contextmanager
def _unpacked(path: str | os.PathLike[str], compressed: bool) -> Iterator[tuple[IO[bytes], int]]:
    """Open a file; yield it, and the maximum bytes of one of its records."""
    try:
        with opened(path) as raw:
            if not compressed:
                yield raw, MAX_RECORD
                return
            most = most_unpacked(os.fstat(raw.fileno()).st_size)
            yield cast(IO[bytes], gzip.GzipFile(fileobj=raw)), most
    except OSError as error:
        raise FileError("file-error", source=path, reason=error.strerror or error) from None


def _next(file: IO[bytes], most: int) -> bytes | DamagedRecord | None:
    """Return the next record; None: the end of the file."""
    try:
        return _framed(file, most)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise _FramingError(f": gzip: {error}") from None


def _framed(file: IO[bytes], most: int) -> bytes | DamagedRecord | None:
    head = file.read(_HEAD)
    if not head:
        return None
    if len(head) < _HEAD:
        at = file.tell() - len(head)
        raise _FramingError(
            f" is truncated: {len(head)} of the {_HEAD} bytes before it, at byte {at}"
        )
    length = _length(file, head, most)
    body = read_up_to(file, length + 4)
    if len(body) < length + 4:
        raise _FramingError(
            f" is truncated: {len(body)} of {length + 4} bytes, checksum included, "
            f"at byte {file.tell() - len(body) - _HEAD}"
        )
    if struct.unpack_from("<I", body, length)[0] != masked_crc(body[:length]):
        at = file.tell() - len(body) - _HEAD
        return DamagedRecord(f"the checksum of its bytes is wrong, at byte {at}")
    return body[:length]


def _length(file: IO[bytes], head: bytes, most: int) -> int:
    """Return the length of the record that a head begins; the file is behind it."""
    length, crc = struct.unpack("<QI", head)
    if crc != masked_crc(head[:8]):
        at = file.tell() - _HEAD
        raise _FramingError(f": the checksum of its length is wrong, at byte {at}")
    if length > MAX_RECORD:
        raise _FramingError(f": {length} bytes, more than protobuf reads")
    if length > most:
        raise _FramingError(
            f": {length} bytes, more than {MAX_RATIO} times its file, which no record has"
        )
    return int(length)


def _ends(file: IO[bytes], most: int, compressed: bool) -> bool:
    """Return whether the file ends here, or only the damaged end of a compressed file follows."""
    try:
        return _next(file, most) is None
    except _FramingError:
        return compressed


def _lost(file: IO[bytes], place: int, most: int, left: int) -> int:
    """Return the number of records lost before the next valid one, and move the file to it.

    `left` is the number of records from `place` on. 0: the number cannot be determined.
    """
    behind = _next_sound(file, place)
    sound, gaps = 0, 1
    file.seek(behind)
    while True:
        place = file.tell()
        try:
            if _next(file, most) is None:
                break
            sound += 1
        except _FramingError:
            gaps += 1
            file.seek(_next_sound(file, place))
    file.seek(behind)
    lost = left - sound
    return 1 if gaps == lost else lost if gaps == 1 else 0


def _next_sound(file: IO[bytes], place: int) -> int:
    """Return the start of the next valid record after a position, or the end of the file."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        zeros = place + 1  # the upper half of a length, which is at most 2 GiB
        while (zeros := content.find(bytes(4), zeros + 1)) >= 0:
            start = zeros - 4
            if start <= place:
                continue
            head = content[start : start + _HEAD]
            if len(head) < _HEAD or struct.unpack_from("<I", head, 8)[0] != masked_crc(head[:8]):
                continue
            (length,) = struct.unpack_from("<Q", head)
            end = start + _HEAD + length
            if end + 4 <= len(content) and struct.unpack_from("<I", content, end)[0] == masked_crc(
                content[start + _HEAD : end]
            ):
                return start
        return len(content)
