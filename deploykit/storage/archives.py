"""Validation of untrusted zip and HDF5 files before they are read, and the memory that reading
them may use.
"""

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from deploykit.transforms.common.errors import GraphError, LimitError, RefusedError
from deploykit.transforms.runtime import resident_memory
from deploykit.transforms.runtime.child_process import limits
from deploykit.transforms.untrusted.files import (
    MAX_RATIO,
    MAX_UNPACKED,
    cannot_be_read,
    opened,
    readable_size,
)


def room() -> int:
    """Return the memory limit in bytes: the cap of this process or the RAM of the machine."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    known = [machine, limits.memory, resident_memory.own_limit()]
    return min(item for item in known if item is not None)


def check_room(size: int, what: str) -> None:
    """Raise LimitError if `what` needs more than the available memory; `size` is in bytes."""
    if size > (most := room()):
        raise LimitError(
            "too-large-for-memory", what=what, size=readable_size(size), most=readable_size(most)
        )


def check_unpacked(unpacked: int, packed: int, where: str) -> None:
    """Check the sizes of an archive, in bytes, before it is unpacked.

    GraphError: the compression ratio is that of a zip bomb. LimitError: not enough memory.
    """
    if unpacked > MAX_UNPACKED and unpacked > MAX_RATIO * packed:
        raise GraphError(
            "archive-bomb",
            source=where,
            packed=readable_size(packed),
            unpacked=readable_size(unpacked),
        )
    check_room(unpacked, f"{where}: unpacked")


# An entry takes 46 bytes plus its name, so this is enough for 100,000 arrays with long names.
MAX_LISTED = 16 << 20
_END, _END_SIZE, _COMMENT = b"PK\x05\x06", 22, 1 << 16
_ENCRYPTED = 1
_HEADER = 30  # bytes before an entry's name and content
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# Which of these zipfile raises depends on the byte that is damaged.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, ValueError,
          NotImplementedError, RuntimeError, OverflowError, RecursionError)  # fmt: skip


@contextlib.contextmanager
def open_archive(path: str | os.PathLike[str], what: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive after checking all of its entries.

    `what` is the expected kind of file in error messages. FileError: it cannot be read. GraphError:
    it is damaged or malicious. LimitError: its unpacked contents do not fit into memory.
    """
    with opened(path) as file:
        try:
            _check_list(file)
            with zipfile.ZipFile(file) as archive:
                packed = os.fstat(file.fileno()).st_size
                _check_entries(archive, packed)
                unpacked = sum(item.file_size for item in archive.infolist())
                check_unpacked(unpacked, packed, str(path))
                yield archive
        except OSError as error:
            raise cannot_be_read(path, error) from None
        except GraphError as error:
            is_named = str(error).startswith(f"{path}:")
            raise (error if is_named else error.within(path)) from None
        except DAMAGE as error:
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise GraphError("damaged-or-not", source=path, what=what, reason=reason) from None


def _check_list(file: BinaryIO) -> None:
    """Raise GraphError if the central directory of the archive is too large to read."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - _COMMENT))
    tail = file.read()
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_SIZE:
        raise zipfile.BadZipFile("it has no list of entries; it may be truncated")
    length = struct.unpack_from("<I", tail, place + 12)[0]
    if length == 0xFFFFFFFF:  # Zip64: an earlier record holds the real size
        before = tail.rfind(b"PK\x06\x06", 0, place)
        length = struct.unpack_from("<Q", tail, before + 40)[0] if before >= 0 else length
    if length > MAX_LISTED:
        raise GraphError(
            "archive-list-too-long", size=readable_size(length), most=readable_size(MAX_LISTED)
        )


def _check_entries(archive: zipfile.ZipFile, size: int) -> None:
    """Raise GraphError for entries that no well-behaved program writes."""
    names: set[str] = set()
    end = 0
    for entry in sorted(archive.infolist(), key=lambda item: item.header_offset):
        name = entry.filename
        parts = name.replace("\\", "/").split("/")
        if name in names:
            raise GraphError("archive-entry-twice", name=name[:100])
        if name.startswith(("/", "\\")) or ".." in parts:
            raise GraphError("archive-entry-outside", name=name[:100])
        if entry.compress_type not in _PACKINGS or entry.flag_bits & _ENCRYPTED:
            raise GraphError("archive-entry-packed", name=name[:100])
        if entry.header_offset < end:
            raise GraphError("archive-entry-overlaps", name=name[:100])
        names.add(name)
        end = entry.header_offset + _HEADER + len(name) + entry.compress_size
    if end > size:
        raise zipfile.BadZipFile("it is truncated")


def check_hdf5(file: Any, size: int) -> None:
    """Check an open HDF5 file; `size` is its size in bytes.

    RefusedError: it refers to other files. GraphError: it declares far more data than it stores.
    LimitError: its values do not fit into memory.
    """
    import h5py

    waiting, seen, declared = [file], {h5py.h5o.get_info(file.id).addr}, 0
    while waiting:
        group = waiting.pop()
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise RefusedError("hdf5-link", group=group.name, name=name)
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    raise RefusedError("hdf5-external", name=item.name)
                declared += (item.size or 0) * item.dtype.itemsize
    check_unpacked(declared, size, "its HDF5 file")
