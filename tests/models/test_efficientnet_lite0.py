"""Weights files are read without running what they name."""

import io
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from models.efficientnet_lite0 import weights
from models.efficientnet_lite0.weights import MAGIC, PROTOCOL, Storage, Tensor, read_weights

VALUES = np.arange(24, dtype="<f4")


class TorchName:
    """What pickles as a name in a module of torch, which is not installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self):
        raise AssertionError("a name is only written")  # pickle wants it to be callable


class Writer(pickle._Pickler):
    """Writes tensors the way of torch, names of torch included."""

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        return ("storage", TorchName("torch", "FloatStorage"), value.key, "cpu", value.size, None)

    def reducer_override(self, value):
        if not isinstance(value, Tensor):
            return NotImplemented
        arguments = (value.storage, value.offset, value.shape, value.strides, False, OrderedDict())
        return TorchName("torch._utils", "_rebuild_tensor_v2"), arguments

    def save(self, value, save_persistent_id=True):
        if isinstance(value, TorchName):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        else:
            super().save(value, save_persistent_id)


def write(path: Path, tensors: object, values: np.ndarray = VALUES) -> Path:
    """Write a file as old PyTorch did, with one storage."""
    file = io.BytesIO()
    for part in (MAGIC, PROTOCOL, {"little_endian": True}, tensors, ["7"]):
        Writer(file, protocol=2).dump(part)
    path.write_bytes(file.getvalue() + struct.pack("<q", len(values)) + values.tobytes())
    return path


def tensor(offset=0, shape=(2, 3, 4), strides=(12, 4, 1)) -> OrderedDict:
    return OrderedDict(w=Tensor(Storage("7", "<f4", VALUES.size), offset, shape, strides))


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(0, (2, 3, 4), (12, 4, 1)), (0, (3, 4, 2), (1, 3, 12)), (5, (2, 2), (7, 3)), (3, (), ())],
)
def test_offsets_and_strides(offset, shape, strides, tmp_path):
    found = read_weights(write(tmp_path / "w.pth", tensor(offset, shape, strides)))["w"]
    assert found.shape == shape
    for index in np.ndindex(*shape):
        assert found[index] == offset + np.dot(index, strides)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(1, (2, 3, 4), (12, 4, 1)), (0, (25,), (1,)), (-1, (2,), (1,)), (9, (2,), (-9,))],
)
def test_a_tensor_beyond_its_storage_is_refused(offset, shape, strides, tmp_path):
    path = write(tmp_path / "w.pth", tensor(offset, shape, strides))
    with pytest.raises(pickle.UnpicklingError, match="beyond storage 7"):
        read_weights(path)


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "w.pth", OrderedDict(w=Harm()))
    with pytest.raises(pickle.UnpicklingError, match=r"asks for posix\.mkdir"):
        read_weights(path)
    assert not Path("harm").exists()
    # the writer does write what would run
    monkeypatch.setattr(weights.WeightsUnpickler, "find_class", pickle.Unpickler.find_class)
    with pytest.raises(Exception):  # noqa: B017, PT011 - what it made is no tensor
        read_weights(path)
    assert Path("harm").exists()


def test_another_file_and_half_a_file_are_refused(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(pickle.dumps(1) * 3)
    with pytest.raises(pickle.UnpicklingError, match="no weights file"):
        read_weights(path)
    write(path, tensor())
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(pickle.UnpicklingError, match="cut short"):
        read_weights(path)
