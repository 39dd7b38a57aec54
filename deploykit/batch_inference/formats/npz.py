"""Writes columns as a `.npz` file, which NumPy reads without pickles."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from deploykit.batch_inference.formats.part_table import STRINGS, readable_texts_of, texts_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import readable_size

LENGTH = "_length"
"""The suffix of a column with the length of each text in another column."""

_MAX_FILLED = 1 << 30  # maximum bytes of the texts of a column, padded to the longest
_PIECE = 1 << 22  # bytes of padded texts that are written at a time
_LONG = 1 << 31  # bytes from which on an entry uses ZIP64


def pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a zip archive with an `.npy` entry for each column; texts are compressed.

    Files and labels are strings; texts from a graph are bytes. NumPy pads texts with NUL and strips
    NUL at the end. If a text ends with NUL, a column `X_length` contains the length of each text.
    GraphError: the padded texts of a column exceed 1 GiB.
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
                while names[-1] in names[:-1]:  # an output has this name
                    names[-1] += "_"
                lengths = np.array(list(map(len, texts)), np.int64).reshape(array.shape)
                yield from _array(archive, sink, names[-1], lengths)
    yield from sink.drain()


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
    yield from sink.drain()


def _texts(
    archive: zipfile.ZipFile,
    sink: "_Sink",
    name: str,
    texts: Sequence[bytes],
    shape: tuple[int, ...],
) -> Iterator[bytes]:
    width = max(1, max(map(len, texts), default=0))
    if len(texts) * width > _MAX_FILLED:
        raise GraphError(
            "npz-texts-too-large", name=name, width=width, size=readable_size(len(texts) * width)
        )
    count = max(1, _PIECE // width)
    with archive.open(_entry(name, zipfile.ZIP_DEFLATED), "w") as file:
        _write_header(file, width, shape)
        for start in range(0, len(texts), count):
            file.write(np.array(texts[start : start + count], f"S{width}").tobytes())
            yield from sink.drain()
    yield from sink.drain()


def _write_header(file: IO[bytes], width: int, shape: tuple[int, ...]) -> None:
    header = {"descr": f"|S{width}", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _entry(name: str, packing: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that results are reproducible
    entry.compress_type = packing
    return entry


class _Sink:
    """A write-only file without seek, from which written bytes are consumed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        """Store a piece."""
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Do nothing."""

    def drain(self) -> Iterator[bytes]:
        """Yield the pieces written since the last call."""
        pieces, self._pieces = self._pieces, []
        yield from pieces
