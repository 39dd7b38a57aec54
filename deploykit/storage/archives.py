"""Zip and HDF5 files from unknown sources, checked before they are read, and the memory that
reading them may take.
"""

import contextlib
import os
import resource
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from deploykit.transforms.common.errors import GraphError, LimitError, RefusedError
from deploykit.transforms.runtime.child_process import limits
from deploykit.transforms.untrusted.files import (
    MOST_RATIO,
    MOST_UNPACKED,
    cannot_be_read,
    opened,
    said,
)


def room() -> int:
    """Return how many bytes there are at most: the cap that was set, or what the machine has."""
    cap = resource.getrlimit(resource.RLIMIT_DATA)[0]  # of a child process
    known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), limits.memory, cap]
    return min(item for item in known if item is not None and item != resource.RLIM_INFINITY)


def check_room(size: int, what: str) -> None:
    """Raise LimitError for more bytes than there are; `what` takes them."""
    if size > (most := room()):
        raise LimitError("too-large-for-memory", what=what, size=said(size), most=said(most))


def check_unpacked(unpacked: int, packed: int, where: str) -> None:
    """Raise GraphError for a file that would unpack to what none does; LimitError: no room."""
    if unpacked > MOST_UNPACKED and unpacked > MOST_RATIO * packed:
        raise GraphError("archive-bomb", source=where, packed=said(packed), unpacked=said(unpacked))
    check_room(unpacked, f"{where}: unpacked")


# An entry takes 46 bytes and its name: as many as a hundred thousand arrays of long names need.
MOST_LISTED = 16 << 20
_END, _END_SIZE, _COMMENT = b"PK\x05\x06", 22, 1 << 16
_ENCRYPTED = 1
_HEADER = 30  # bytes in front of an entry's name and content
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# What zipfile raises for one that is damaged depends on the byte that is wrong.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, ValueError,
          NotImplementedError, RuntimeError, OverflowError, RecursionError)  # fmt: skip


@contextlib.contextmanager
def open_archive(path: str | os.PathLike[str], what: str) -> Iterator[zipfile.ZipFile]:
    """Yield an archive of which all entries can be read.

    `what` is said to be expected. FileError: it cannot be read. GraphError: it is damaged, or made
    to do harm. LimitError: it unpacks to more than there is memory.
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
    """Raise GraphError for a list of entries that is too long to be read."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - _COMMENT))
    tail = file.read()
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_SIZE:
        raise zipfile.BadZipFile("it has no list of entries; it may be cut short")
    length = struct.unpack_from("<I", tail, place + 12)[0]
    if length == 0xFFFFFFFF:  # a list of 4 GiB; a record in front of this one tells which
        before = tail.rfind(b"PK\x06\x06", 0, place)
        length = struct.unpack_from("<Q", tail, before + 40)[0] if before >= 0 else length
    if length > MOST_LISTED:
        raise GraphError("archive-list-too-long", size=said(length), most=said(MOST_LISTED))


def _check_entries(archive: zipfile.ZipFile, size: int) -> None:
    """Raise GraphError for entries that would not be in an archive that was written honestly."""
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
        raise zipfile.BadZipFile("it is cut short")


def check_hdf5(file: Any, size: int) -> None:
    """Check an open HDF5 file of so many bytes.

    RefusedError: it shows what lies in other files. GraphError: it declares what no honest file
    does. LimitError: its values take more memory than there is.
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
