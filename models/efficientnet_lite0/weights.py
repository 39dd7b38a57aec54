"""A weights file of old PyTorch as NumPy arrays by name: read without torch, no code of it run.

The file is five pickles and then the raw storages: a magic number, the protocol, what the machine
was like, the dictionary of tensors, and the keys of the storages in the order in which they follow.
A tensor is an offset, a shape and strides into a storage.
"""

import pickle
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


@dataclass(frozen=True)
class Storage:
    """A flat array of the file, before its values are read."""

    key: str
    dtype: str
    size: int


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self, values: np.ndarray) -> np.ndarray:
        """Return the tensor. UnpicklingError: it reaches beyond its storage."""
        steps = zip(self.shape, self.strides, strict=True)
        last = self.offset + sum((size - 1) * stride for size, stride in steps)
        if min(self.offset, *self.shape, *self.strides, 0) < 0 or last >= len(values):
            raise pickle.UnpicklingError(f"a tensor reaches beyond storage {self.storage.key}")
        strides = [stride * values.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, strides)


def _tensor(storage, offset, shape, strides, requires_grad, hooks) -> Tensor:
    return Tensor(storage, offset, shape, strides)


# All that a file of weights needs; whatever else a pickle names is refused.
ADMITTED = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class WeightsUnpickler(pickle.Unpickler):
    """An unpickler that knows four names."""

    def find_class(self, module, name):
        """Return what a name stands for. UnpicklingError: it is not one of the four."""
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which weights do not")
        return ADMITTED[module, name]

    def persistent_load(self, pid):
        """Return the storage that a tensor lies in."""
        kind, dtype, key, _, size, view = pid
        if kind != "storage" or view is not None:
            raise pickle.UnpicklingError("the file asks for something other than a whole storage")
        return Storage(key, dtype, size)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name, in torch's layout: [out, in, height, width].

    UnpicklingError: it is another kind of file, is cut short, or asks for more than tensors.
    """
    with path.open("rb") as file:
        magic, protocol, machine = (WeightsUnpickler(file).load() for _ in range(3))
        if magic != MAGIC or protocol != PROTOCOL or not machine["little_endian"]:
            raise pickle.UnpicklingError(f"{path}: this is no weights file of the old kind")
        tensors = WeightsUnpickler(file).load()
        keys = WeightsUnpickler(file).load()
        storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        values = {key: _values(file, storages[key]) for key in keys}
    return {name: tensor.view(values[tensor.storage.key]) for name, tensor in tensors.items()}


def _values(file: BinaryIO, storage: Storage) -> np.ndarray:
    size = int.from_bytes(file.read(8), "little")
    content = file.read(size * np.dtype(storage.dtype).itemsize)
    values = np.frombuffer(content, storage.dtype)
    if not len(values) == size == storage.size:
        raise pickle.UnpicklingError(f"storage {storage.key} is cut short")
    return values
