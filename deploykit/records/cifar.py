"""CIFAR-10 and CIFAR-100, the binary and the Python version -> arrays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.records.arrays import Arrays
from deploykit.records.pickles import read_pickle
from deploykit.storage.files import read_bytes
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import MOST_TEXT, opened
from deploykit.transforms.core.tensors import Array

PIXELS = 3 * 32 * 32
PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


def is_binary(size: int) -> bool:
    """Say whether a file may be of the binary version: each record is labels and pixels."""
    return size > 0 and (size % (PIXELS + 1) == 0 or size % (PIXELS + 2) == 0)


def cifar(files: Sequence[Path]) -> Arrays:
    """Return images, uint8 [32, 32, 3], and labels; CIFAR-100 has coarse ones as well.

    Names of classes come from batches.meta, meta, or the lists of names, where one lies beside.
    """
    read = [_pickled(path) if _is_pickle(path) else _binary(path) for path in files]
    if len({tuple(each) for each in read}) > 1:
        raise GraphError("cifar-mixed", files=files)
    arrays = {name: np.concatenate([each[name] for each in read]) for name in read[0]}
    return Arrays(arrays, files, _classes(files[0].parent, "coarse_label" in arrays))


def _is_pickle(path: Path) -> bool:
    with opened(path) as file:
        return file.read(2) in PICKLES


def _binary(path: Path) -> dict[str, Array]:
    content = np.frombuffer(read_bytes(path), np.uint8)
    for labels, most in ((1, 10), (2, 100)):
        if len(content) == 0 or len(content) % (PIXELS + labels):
            continue
        rows = content.reshape(-1, PIXELS + labels)
        if int(rows[:, labels - 1].max()) < most:
            return _named(rows[:, labels:], rows[:, :labels].astype(np.int64))
    raise GraphError(
        "cifar-size", source=path, size=len(content), size_10=PIXELS + 1, size_100=PIXELS + 2
    )


def _pickled(path: Path) -> dict[str, Array]:
    data = read_pickle(path)
    found = {_text(key): each for key, each in data.items()} if isinstance(data, Mapping) else {}
    pixels = found.get("data")
    labels = [found[each] for each in ("coarse_labels", "fine_labels", "labels") if each in found]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not labels:
        raise GraphError("cifar-batch", source=path)
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise GraphError("cifar-shape", source=path, shape=pixels.shape, pixels=PIXELS)
    for each in labels:
        whole = isinstance(each, list) and all(type(label) is int for label in each)
        if not whole or len(each) != len(pixels) or not all(0 <= label < 100 for label in each):
            raise GraphError("cifar-labels", source=path, count=len(pixels))
    return _named(pixels, np.array(labels, np.int64).T)


def _named(pixels: Array, labels: Array) -> dict[str, Array]:
    """Return the features: channels go last, and of two labels the coarse one is first."""
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    coarse = {"coarse_label": labels[:, 0]} if labels.shape[1] == 2 else {}
    return {"pixels": images, "label": labels[:, -1], **coarse}


def _classes(folder: Path, hundred: bool) -> tuple[str, ...]:
    """Return the names of the classes, or none where no file beside the batches says them."""
    lists, metas, key = (
        ("fine_label_names.txt", "meta", "fine_label_names")
        if hundred
        else ("batches.meta.txt", "batches.meta", "label_names")
    )
    if (folder / lists).is_file():
        text = read_bytes(folder / lists, MOST_TEXT, "list of names").decode(errors="replace")
        return tuple(filter(None, map(str.strip, text.splitlines())))
    if not (folder / metas).is_file():
        return ()
    data: Any = read_pickle(folder / metas)
    found = {_text(name): each for name, each in data.items()} if isinstance(data, Mapping) else {}
    names = found.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise GraphError("cifar-names", source=folder / metas, key=key)
    return tuple(map(_text, names))


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
