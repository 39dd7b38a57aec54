"""Reading `.npy` and `.npz` files, with headers validated before memory is allocated.

numpy.load trusts the header and raises any exception of its parser.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from deploykit.storage.archives import check_room, open_archive
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.data_files import NUMPY_END, format_of, unknown_end
from deploykit.storage.tables import load_table
from deploykit.transforms.common.errors import GraphError, LimitError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import cannot_be_read, opened, read_up_to, readable_size

T = TypeVar("T")

MAGIC = b"\x93NUMPY"
_ZIP, _NAME_AT = b"PK\x03\x04", 30
MAX_AXES = 32  # the limit of NumPy 1; no tensor has as many
# An array without values takes no bytes, but a loop over its rows would never end.
MAX_EMPTY = 1 << 20

_PIECE = 1 << 22  # bytes unpacked at a time
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def load_data(path: str | os.PathLike[str], rule: HeaderRule = "auto") -> dict[str, Array]:
    """Read arrays by name from a `.npz` file or a table. Pickled arrays are refused.

    `rule` is that for the header of a CSV file.

    FileError: it cannot be read. GraphError: it is damaged or of another format. LimitError: its
    arrays do not fit into memory.
    """
    if format_of(path):
        return load_table(path, rule)
    return _each(path, _read)


def load_forms(path: str | os.PathLike[str]) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return the dtype and shape of each array by name; values of a `.npz` file are not read.

    It raises the errors of `load_data`.
    """
    if format_of(path):
        return {name: (item.dtype, item.shape) for name, item in load_table(path).items()}
    return {name: (item.dtype, item.shape) for name, item in _each(path, read_header).items()}


def _each(path: str | os.PathLike[str], read: Callable[[IO[bytes], int, str], T]) -> dict[str, T]:
    """Apply `read` to each array of a `.npz` file and return the results by name."""
    if _begins_with(path, MAGIC):
        raise GraphError("single-array-given", source=path)
    if Path(path).suffix.lower() != NUMPY_END and not _is_npz(path):
        raise unknown_end(path)
    results = {}
    with open_archive(path, ".npz file of plain arrays") as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                name = entry.filename.removesuffix(".npy")
                results[name] = read(file, entry.file_size, f"{path}: array '{name[:100]}'")
    return results


def load_array(path: str | os.PathLike[str]) -> Array:
    """Read the array of a `.npy` file; it raises the errors of `load_data`."""
    if _begins_with(path, _ZIP):
        raise GraphError("npz-given", source=path)
    with opened(path) as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size, f"{path}: this")
        except OSError as error:
            raise cannot_be_read(path, error) from None


def _is_npz(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a zip archive that begins with an array."""
    with opened(path) as file:
        head = read_up_to(file, _NAME_AT + 0xFFFF)
    size = int.from_bytes(head[26:28], "little")  # of the first name
    return head.startswith(_ZIP) and head[_NAME_AT : _NAME_AT + size].endswith(b".npy")


def _begins_with(path: str | os.PathLike[str], magic: bytes) -> bool:
    with opened(path) as file:
        try:
            return file.read(len(magic)) == magic
        except OSError as error:
            raise cannot_be_read(path, error) from None


@dataclass(frozen=True)
class ArrayHeader:
    """A validated header of an array in NumPy's file format."""

    shape: tuple[int, ...]
    by_column: bool
    """Whether the first axis varies fastest, as in Fortran."""
    dtype: Any
    begin: int
    """Offset of the first value in the file, in bytes."""

    @property
    def size(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


def read_header(file: IO[bytes], size: int, where: str) -> ArrayHeader:
    """Read and validate the header of an array; `size` is the size of its file in bytes.

    GraphError: the array is not of plain numbers or strings, or does not fit the size.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"format version {version} is for records")
        shape, by_column, dtype = _HEADERS[version](file)
    except Exception as error:  # the parser raises even MemoryError for deep nesting
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise GraphError("array-not-plain", what=where, reason=reason) from None
    if problem := _problem(shape, dtype):
        raise GraphError("array-problem", what=where, reason=problem)
    header = ArrayHeader(shape, by_column, dtype, file.tell())
    if header.size != size - header.begin:
        raise GraphError("truncated", what=where, size=size - header.begin, expected=header.size)
    return header


def _read(file: IO[bytes], size: int, where: str) -> Array:
    """Return the array of an open file; `size` is the size of the file in bytes."""
    header = read_header(file, size, where)
    expected, dtype = header.size, header.dtype
    check_room(expected, where)
    try:
        array: Array = np.empty(math.prod(header.shape), dtype)
    except MemoryError:
        raise LimitError("array-too-large", what=where, size=readable_size(expected)) from None
    read_values(file, array, where)
    file.read(1)  # zipfile compares the checksum after the last byte
    return array.reshape(header.shape, order="F" if header.by_column else "C")


def read_values(file: IO[bytes], array: Array, where: str) -> None:
    """Fill a flat array with the next bytes of a file. GraphError: the file is too short."""
    expected = array.nbytes
    view = array.view(np.uint8) if expected else array
    place = 0
    while place < expected:
        piece = file.read(min(_PIECE, expected - place))
        if not piece:
            raise GraphError("truncated", what=where, size=place, expected=expected)
        view[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
        place += len(piece)


def _problem(shape: tuple[int, ...], dtype: Any) -> str:
    """Return what is wrong with the array that a header describes, or an empty string."""
    if dtype.hasobject:
        return (
            "contains Python objects, which may run code and are never loaded. "
            "Save texts with array.astype(str), and numbers with their dtype"
        )
    if dtype.names is not None or dtype.subdtype is not None:
        return f"contains records ({str(dtype)[:60]}), expected plain numbers or strings"
    sizes = [size for size in shape if size]
    if len(shape) > MAX_AXES or any(type(n) is not int or n < 0 for n in shape):
        return f"has the shape {str(list(shape))[:60]}, which is invalid"
    is_empty = not dtype.itemsize or len(sizes) < len(shape)
    if is_empty and math.prod(sizes) > MAX_EMPTY:
        return f"has no values, but a too large shape {str(list(shape))[:60]}"
    return ""
