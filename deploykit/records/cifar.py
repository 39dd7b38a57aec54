"""Reads CIFAR-10 and CIFAR-100 as arrays, from binary files or pickles, without running code."""

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from deploykit.records.arrays import Arrays
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError, RefusedError, failed
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import MAX_TEXT, opened

# A CIFAR batch needs 200,000 steps; a step may turn one byte of the file into 64 bytes of memory.
MAX_STEPS = 10_000_000

_TYPES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")


class _Type:
    """A stand-in for numpy.dtype."""

    def __init__(self, name: object, *_: object) -> None:
        text = _text_or_something(name)
        if text not in _TYPES:
            raise RefusedError("pickle-array-type", type=text[:20])
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text_or_something(state[1])
        if order not in ("<", ">", "|", "="):
            raise RefusedError("pickle-array-order", order=order[:20])
        self.dtype = np.dtype(order + self.dtype.str[1:])


class _Array:
    """A stand-in for numpy.ndarray; `made` is the array."""

    def __init__(self, *_: object) -> None:
        self.made: Array | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, of, by_column, content = state
        if not (isinstance(of, _Type) and isinstance(content, bytes)):
            raise RefusedError("pickle-array-objects")
        array = np.frombuffer(content, of.dtype)
        self.made = array.reshape(shape, order="F" if by_column else "C")


def _text_or_something(value: object) -> str:
    """Return a string, which Python 2 wrote as bytes; for any other value, "something"."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else "something"


def _latin_bytes(text: object, encoding: object) -> bytes:
    """Replace _codecs.encode, with which protocol 2 encodes bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedError("pickle-encodes")
    return text.encode("latin1")


class _Steps(dict[int, Any]):
    """The dispatch table of the unpickler, with a limit on the number of steps."""

    left = MAX_STEPS

    def __getitem__(self, code: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise GraphError("pickle-too-long", most=MAX_STEPS)
        return super().__getitem__(code)


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python. Its memo is a dict, so an index in a file cannot allocate memory."""

    dispatch: ClassVar = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if code != pickle.BYTEARRAY8[0]  # it allocates the size that the file states
    }

    def __init__(self, content: IO[bytes]) -> None:
        """Read a pickle of Python 2 or 3."""
        super().__init__(content, encoding="bytes")
        self.dispatch = _Steps(type(self).dispatch)  # type: ignore[misc]

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            module = "numpy"
        stand_ins = {
            ("numpy", "_reconstruct"): _Array,
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Type,
            ("_codecs", "encode"): _latin_bytes,
        }
        if (module, name) not in stand_ins:
            raise RefusedError("pickle-names", module=module, name=name)
        return stand_ins[module, name]

    def get_extension(self, code: int) -> Any:
        raise RefusedError("pickle-extension")

    def persistent_load(self, pid: object) -> Any:
        raise RefusedError("pickle-outside")


def read_pickle(path: Path) -> Any:
    """Return the plain data of a pickle; strings from Python 2 are bytes.

    FileError: the file cannot be read. RefusedError: it contains other objects. GraphError: it is
    damaged.
    """
    content = io.BytesIO(read_bytes(path))
    try:
        data = _Unpickler(content).load()
        if isinstance(data, dict):  # arrays are in the top level only
            return {k: v.made if isinstance(v, _Array) else v for k, v in data.items()}
        return data.made if isinstance(data, _Array) else data
    except RefusedError as error:
        raise RefusedError("pickle-refused", source=path, reason=error) from None
    except GraphError as error:
        raise error.within(path) from None
    except MemoryError as error:
        raise failed("pickle-unreadable", error, source=path) from None
    except Exception as error:  # pickle raises many types for damaged files
        raise GraphError("pickle-damaged", source=path, reason=type(error).__name__) from None


PIXELS = 3 * 32 * 32
PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


def is_binary(size: int) -> bool:
    """Return whether the size of a file is a multiple of a binary record (labels and pixels)."""
    return size > 0 and (size % (PIXELS + 1) == 0 or size % (PIXELS + 2) == 0)


def cifar(files: Sequence[Path]) -> Arrays:
    """Return images, uint8 [32, 32, 3], and labels; CIFAR-100 also has coarse labels.

    Class names come from batches.meta, meta or the lists of names in the same folder, if present.
    """
    read = []
    for path in files:
        with opened(path) as file:
            is_pickle = file.read(2) in PICKLES
        read.append(_pickled(path) if is_pickle else _binary(path))
    if len({tuple(item) for item in read}) > 1:
        raise GraphError("cifar-mixed", files=files)
    arrays = {name: np.concatenate([item[name] for item in read]) for name in read[0]}
    return Arrays(arrays, files, _classes(files[0].parent, "coarse_label" in arrays))


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
    results = {_text(key): item for key, item in data.items()} if isinstance(data, Mapping) else {}
    pixels = results.get("data")
    labels = [
        results[name] for name in ("coarse_labels", "fine_labels", "labels") if name in results
    ]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not labels:
        raise GraphError("cifar-batch", source=path)
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise GraphError("cifar-shape", source=path, shape=pixels.shape, pixels=PIXELS)
    for item in labels:
        whole = isinstance(item, list) and all(type(label) is int for label in item)
        if not whole or len(item) != len(pixels) or not all(0 <= label < 100 for label in item):
            raise GraphError("cifar-labels", source=path, count=len(pixels))
    return _named(pixels, np.array(labels, np.int64).T)


def _named(pixels: Array, labels: Array) -> dict[str, Array]:
    """Return the features, with channels last; of two labels, the coarse one is first."""
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    coarse = {"coarse_label": labels[:, 0]} if labels.shape[1] == 2 else {}
    return {"pixels": images, "label": labels[:, -1], **coarse}


def _classes(folder: Path, hundred: bool) -> tuple[str, ...]:
    """Return the class names from a file next to the batches; empty without such a file."""
    lists, metas, key = (
        ("fine_label_names.txt", "meta", "fine_label_names")
        if hundred
        else ("batches.meta.txt", "batches.meta", "label_names")
    )
    if (folder / lists).is_file():
        text = read_bytes(folder / lists, MAX_TEXT, "list of names").decode(errors="replace")
        return tuple(filter(None, map(str.strip, text.splitlines())))
    if not (folder / metas).is_file():
        return ()
    data: Any = read_pickle(folder / metas)
    results = (
        {_text(name): item for name, item in data.items()} if isinstance(data, Mapping) else {}
    )
    names = results.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise GraphError("cifar-names", source=folder / metas, key=key)
    return tuple(map(_text, names))


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
