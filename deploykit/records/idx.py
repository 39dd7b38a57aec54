"""IDX files, as MNIST comes in, plain or gzipped -> arrays."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from deploykit.records.arrays import Arrays
from deploykit.storage.arrays import MOST_AXES
from deploykit.storage.room import check_unpacked
from deploykit.transforms.core.errors import FileError, GraphError
from deploykit.transforms.core.files.reading import opened, read_up_to
from deploykit.transforms.core.tensors import Array
from deploykit.transforms.core.tfrecord import is_gzip

TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def idx(files: Sequence[Path]) -> Arrays:
    """Return samples and labels: the file of one dimension holds the labels.

    Grey images get an axis for their one channel. GraphError: there is more than one of either.
    """
    arrays: dict[str, Array] = {}
    for path in files:
        array = read_idx(path)
        name = "label" if array.ndim == 1 else "pixels" if array.dtype == np.uint8 else "x"
        if name in arrays:
            raise GraphError("idx-several-files", source=path, name=name)
        arrays[name] = array[..., np.newaxis] if name == "pixels" and array.ndim == 3 else array
    return Arrays(arrays, files)


def read_idx(path: Path) -> Array:
    """Return the array of an IDX file. FileError: it cannot be read. GraphError: it is damaged."""
    try:
        with opened(path) as raw:
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw)
            magic = file.read(4)
            if (
                len(magic) < 4
                or magic[:2] != b"\0\0"
                or magic[2] not in TYPES
                or not 0 < magic[3] <= MOST_AXES
            ):
                raise GraphError(
                    "not-a",
                    source=path,
                    what="an IDX file",
                    reason=f"it begins with {magic.hex(' ')}",
                )
            sizes = file.read(4 * magic[3])
            if len(sizes) < 4 * magic[3]:
                raise GraphError("idx-header-truncated", source=path)
            shape = struct.unpack(f">{magic[3]}I", sizes)
            dtype = np.dtype(TYPES[magic[2]])
            expected = dtype.itemsize
            for size in shape:
                expected *= size
            if file is not raw:
                check_unpacked(expected, path.stat().st_size, str(path))
            content = read_up_to(file, expected + 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise GraphError("not-a", source=path, what="a gzip file", reason=error) from None
    except OSError as error:
        raise FileError("file-error", source=path, reason=error.strerror or error) from None
    if len(content) != expected:
        more = "more" if len(content) > expected else f"{len(content)}"
        raise GraphError("idx-size", source=path, size=more, shape=shape, expected=expected)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
