"""Columns as a `.npz` file, which plain NumPy reads."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from deploykit.batch_inference.formats.part_table import STRINGS, readable_texts_of, texts_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import said

LENGTH = "_length"
"""Ends the name of the column that says how long each text of another one is."""

_MOST_FILLED = 1 << 30  # bytes of the texts of a column, all as long as the longest
_PIECE = 1 << 22  # of those, that are made at once
_LONG = 1 << 31  # bytes of an entry that is written as a long one


def pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a zip archive with an `.npy` entry for each column; texts are deflated.

    Files and labels are strings, the texts of a graph are bytes.
    NumPy fills texts up with NUL to the longest and forgets those at their ends, so where a text
    ends with one, a column `X_length` says how long each is. GraphError: the texts of a column take
    more than 1 GiB so.
    """
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]
        names = list(columns)
        for name, array in columns.items():
            if array.dtype != object:
                yield from _array(archive, sink, name, array)
                continue
            if name in STRINGS:
                strings = np.array(readable_texts_of(array), str).reshape(array.shape)
                yield from _array(archive, sink, name, strings, zipfile.ZIP_DEFLATED)
                continue
            texts = texts_of(array)
            yield from _texts(archive, sink, name, texts, array.shape)
            if any(text.endswith(b"\0") for text in texts):
                names.append(f"{name}{LENGTH}")
                while names[-1] in names[:-1]:  # an output is called so
                    names[-1] += "_"
                lengths = np.array(list(map(len, texts)), np.int64).reshape(array.shape)
                yield from _array(archive, sink, names[-1], lengths)
    yield from sink.taken()


def _array(
    archive: zipfile.ZipFile,
    sink: "_Sink",
    name: str,
    array: Array,
    packing: int = zipfile.ZIP_STORED,
) -> Iterator[bytes]:
    is_long = array.nbytes >= _LONG - (1 << 20)
    with archive.open(_entry(name, packing), "w", force_zip64=is_long) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)
    yield from sink.taken()


def _texts(
    archive: zipfile.ZipFile,
    sink: "_Sink",
    name: str,
    texts: Sequence[bytes],
    shape: tuple[int, ...],
) -> Iterator[bytes]:
    width = max(1, max(map(len, texts), default=0))
    if len(texts) * width > _MOST_FILLED:
        raise GraphError(
            "npz-texts-too-large", name=name, width=width, size=said(len(texts) * width)
        )
    count = max(1, _PIECE // width)
    with archive.open(_entry(name, zipfile.ZIP_DEFLATED), "w") as file:
        _write_header(file, width, shape)
        for start in range(0, len(texts), count):
            file.write(np.array(texts[start : start + count], f"S{width}").tobytes())
            yield from sink.taken()
    yield from sink.taken()


def _write_header(file: IO[bytes], width: int, shape: tuple[int, ...]) -> None:
    header = {"descr": f"|S{width}", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _entry(name: str, packing: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{name}.npy")  # of 1980: no time is told
    entry.compress_type = packing
    return entry


class _Sink:
    """A file that cannot be gone back in: what is written to it is taken from it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        """Keep a piece."""
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Do nothing."""

    def taken(self) -> Iterator[bytes]:
        """Yield what was written since."""
        pieces, self._pieces = self._pieces, []
        yield from pieces
