"""Writes columns as a `.npz` file, which NumPy reads without pickles."""

import io
import zipfile
from collections.abc import Iterator, Mapping

import numpy as np

from deploykit.batch_inference.formats.part_table import STRINGS, readable_texts_of, texts_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import readable_size

LENGTH = "_length"
"""The suffix of a column with the length of each text in another column."""

_MAX_FILLED = 1 << 30  # maximum bytes of the texts of a column, padded to the longest


def pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a zip archive with an `.npy` entry for each column; texts are compressed.

    Files and labels are strings; texts from a graph are bytes. NumPy pads texts with NUL and strips
    NUL at the end. If a text ends with NUL, a column `X_length` contains the length of each text.
    GraphError: the padded texts of a column exceed 1 GiB.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        names = list(columns)
        for name, array in columns.items():
            if array.dtype != object:
                _write(archive, name, array)
            elif name in STRINGS:
                _write(archive, name, np.array(readable_texts_of(array), str).reshape(array.shape))
            else:
                texts = texts_of(array)
                _write(archive, name, _padded(name, texts).reshape(array.shape))
                if any(text.endswith(b"\0") for text in texts):
                    names.append(f"{name}{LENGTH}")
                    while names[-1] in names[:-1]:  # an output has this name
                        names[-1] += "_"
                    lengths = np.array(list(map(len, texts)), np.int64).reshape(array.shape)
                    _write(archive, names[-1], lengths)
    yield content.getvalue()


def _write(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that results are reproducible
    entry.compress_type = zipfile.ZIP_DEFLATED if array.dtype.kind in "SU" else zipfile.ZIP_STORED
    with archive.open(entry, "w", force_zip64=array.nbytes >= 1 << 31) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _padded(name: str, texts: list[bytes]) -> Array:
    """Return texts as a NumPy array of bytes of one width. GraphError: it is too large."""
    width = max(1, max(map(len, texts), default=0))
    if len(texts) * width > _MAX_FILLED:
        raise GraphError(
            "npz-texts-too-large", name=name, width=width, size=readable_size(len(texts) * width)
        )
    return np.array(texts, f"S{width}")
