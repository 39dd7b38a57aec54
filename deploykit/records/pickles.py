"""Pickles that hold plain data, read without the code that they could name.

Lists, dicts, strings, bytes, numbers and arrays of numbers are admitted. What a pickle calls to
make an array is answered by stand-ins that check what they are given; all else ends the reading.
"""

import io
import pickle
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from deploykit.storage.files import read_bytes
from deploykit.transforms.core.errors import GraphError, RefusedError, failed
from deploykit.transforms.core.tensors import Array

# A batch of CIFAR takes 200,000; each step may make an object of 64 bytes of one byte of the file.
MOST_STEPS = 10_000_000

_TYPES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")


class _Type:
    """Stands for numpy.dtype."""

    def __init__(self, name: object, *_: object) -> None:
        text = _text(name)
        if text not in _TYPES:
            raise RefusedError("pickle-array-type", type=text[:20])
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise RefusedError("pickle-array-order", order=order[:20])
        self.dtype = np.dtype(order + self.dtype.str[1:])


class _Array:
    """Stands for numpy.ndarray; `made` is the array."""

    def __init__(self, *_: object) -> None:
        self.made: Array | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, of, by_column, content = state
        if not (isinstance(of, _Type) and isinstance(content, bytes)):
            raise RefusedError("pickle-array-objects")
        array = np.frombuffer(content, of.dtype)
        self.made = array.reshape(shape, order="F" if by_column else "C")


def _text(value: object) -> str:
    """Return a string, which Python 2 wrote as bytes; else something."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else "something"


def _latin_bytes(text: object, encoding: object) -> bytes:
    """Stand for _codecs.encode, which is how protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise RefusedError("pickle-encodes")
    return text.encode("latin1")


class _Steps(dict[int, Any]):
    """What each byte of a pickle does, as often as an honest one lets it be done."""

    left = MOST_STEPS

    def __getitem__(self, code: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise GraphError("pickle-too-long", most=MOST_STEPS)
        return super().__getitem__(code)


class _Unpickler(pickle._Unpickler):
    """The one in Python, whose memo is a dict, so that no number in a file can ask for memory."""

    dispatch: ClassVar = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if code != pickle.BYTEARRAY8[0]  # which makes room for as much as it says there is
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
    """Return the plain data of a pickle; the strings of Python 2 are bytes.

    FileError: it cannot be read. RefusedError: it holds something else. GraphError: it is damaged.
    """
    content = io.BytesIO(read_bytes(path))
    try:
        return _plain(_Unpickler(content).load())
    except RefusedError as error:
        raise RefusedError("pickle-refused", source=path, reason=error) from None
    except GraphError as error:
        raise error.within(path) from None
    except MemoryError as error:
        raise failed("pickle-unreadable", error, source=path) from None
    except Exception as error:  # what pickle raises depends on the byte that is wrong
        raise GraphError("pickle-damaged", source=path, reason=type(error).__name__) from None


def _plain(data: Any) -> Any:
    """Return a dict with the arrays of its stand-ins; a data set has no deeper ones."""
    if isinstance(data, dict):
        return {key: each.made if isinstance(each, _Array) else each for key, each in data.items()}
    return data.made if isinstance(data, _Array) else data
