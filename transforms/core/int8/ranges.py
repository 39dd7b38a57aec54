"""Which values the tensors of a model take: a value with a file format that people may edit.

A file such as `model.ranges.json` holds

    {
      "format": 1,
      "model_sha256": "...",
      "samples": 92,
      "tensors": {
        "block_0/Relu6": {
          "min": 0.0,
          "max": 6.0,
          "channel_mean": [0.41, 1.7, ...],
          "channel_min": [0.0, 0.0, ...],
          "channel_max": [6.0, 5.2, ...]
        },
        ...
      }
    }

* `model_sha256` is that of the model's files. For another model, the ranges are refused; without
  it, they are used with a warning.
* `samples` says on how many of the user's samples the model was run.
* Tensors are named as in the graph, `node` or `node:port`, and stand in execution order.
* 8 bits are spread from `min` to `max`, in the tensor's own units. These two are what a person
  would edit: a smaller range is finer and cuts off what lies outside.
* `channel_mean`, `channel_min` and `channel_max` hold one value a channel, over all samples and
  positions. Channels lie along the last axis, or along axis 1 where the graph works with channels
  first (NCHW). The lists are empty where the number of channels differs from batch to batch. Files
  of earlier versions have no `channel_max`.
"""

import functools
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.transforms.core.display.documents import converted
from deploykit.transforms.core.errors import GraphError, MismatchError, nearest
from deploykit.transforms.core.files.reading import check_regular, read_json
from deploykit.transforms.core.node import normal

logger = logging.getLogger("deploykit")

FORMAT = 1
_LARGEST = float(np.finfo(np.float32).max)
Float32 = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
"""A finite number of type float32."""
MOST_BYTES = 512 << 20  # two numbers of 20 bytes for each of ten million channels
_KEYS = ("format", "model_sha256", "samples", "tensors")
_TENSOR_KEYS = ("min", "max", "channel_mean", "channel_min", "channel_max")


@dataclass(frozen=True)
class TensorRange:
    """The smallest and the largest value of a tensor, and of each channel; each channel's mean."""

    min: Float32
    max: Float32
    channel_mean: tuple[Float32, ...] = ()
    channel_min: tuple[Float32, ...] = ()
    channel_max: tuple[Float32, ...] = ()
    """Empty where the file does not contain it."""


@dataclass(frozen=True)
class Ranges:
    """What a calibration found, by tensor."""

    model_sha256: str
    samples: Annotated[int, Meta(ge=1)]
    tensors: Mapping[str, TensorRange]

    def of(self, tensor: str, channels: int | None = None) -> TensorRange:
        """Return the range of a tensor. GraphError: it has none, or not so many channels."""
        found = self.tensors.get(normal(tensor))
        if found is None:
            hint = nearest(normal(tensor), list(self.tensors))
            raise GraphError("missing", kind="range for tensor", name=tensor, hint=hint)
        for key in _TENSOR_KEYS[2:]:
            length = len(getattr(found, key))
            if key == "channel_max" and not length:
                continue
            if channels is not None and length != channels:
                raise GraphError(
                    "ranges-channels", tensor=tensor, channels=channels, key=key, count=length
                )
        return found

    def text(self) -> str:
        """Return the file's text: the same for the same ranges, one line a key."""
        tensors = ",\n".join(
            f"    {json.dumps(name)}: {{\n{_lines(found)}\n    }}"
            for name, found in self.tensors.items()
        )
        head = {"format": FORMAT, "model_sha256": self.model_sha256, "samples": self.samples}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        body = f"{{\n{tensors}\n  }}" if tensors else "{}"
        return "\n".join(["{", *lines, f'  "tensors": {body}', "}", ""])


def _lines(found: TensorRange) -> str:
    keys = _TENSOR_KEYS if found.channel_max else _TENSOR_KEYS[:-1]
    return ",\n".join(
        f'      "{key}": {json.dumps(getattr(found, key), allow_nan=False)}' for key in keys
    )


def load_ranges(path: str | os.PathLike[str]) -> Ranges:
    """Read ranges from their file.

    FileError: it cannot be read. GraphError: it is no such file, or what it says cannot be.
    """
    status = check_regular(path)
    return _loaded(os.fspath(path), (status.st_mtime_ns, status.st_size, status.st_ino))


def check_ranges(path: str | os.PathLike[str], model: str, sha256: str) -> None:
    """Raise MismatchError where ranges were calibrated on another model than this one.

    Args:
        path: the file of ranges.
        model: what the model is called.
        sha256: of its files.

    FileError, GraphError: as `load_ranges`.
    """
    found = load_ranges(path).model_sha256
    if not found:
        logger.warning("%s holds no SHA-256 of a model, so it may be of another one than %s; run "
                       "deploykit calibrate again", path, model)  # fmt: skip
    elif found != sha256:
        raise MismatchError("calibrated-on-other-model", file=path, model=model)


@functools.lru_cache(maxsize=1)  # graphs are built from one file by the dozen
def _loaded(path: str, status: tuple[int, ...]) -> Ranges:
    try:
        return _ranges(read_json(path, "file of ranges", MOST_BYTES, _once))
    except GraphError as error:
        raise error if path in str(error) else error.within(path) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the file. GraphError: a key occurs twice, so an edit would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise GraphError("json-key-twice", key=twice)
    return found


def _ranges(plain: Any) -> Ranges:
    if not isinstance(plain, dict) or "format" not in plain:
        raise GraphError("ranges-without-format")
    if plain["format"] != FORMAT:
        raise GraphError("format-unsupported", got=plain["format"], known=FORMAT)
    _check_keys(plain, _KEYS, "the file")
    tensors = plain.get("tensors")
    if isinstance(tensors, dict):  # so that an error names the tensor
        tensors = {normal(name): _tensor_range(name, each) for name, each in tensors.items()}
    found = converted({"model_sha256": "", **plain, "tensors": {}}, Ranges)
    return replace(found, tensors=converted(tensors, dict[str, TensorRange]))


def _tensor_range(name: str, plain: Any) -> TensorRange:
    where = f"tensor '{name}'"
    _check_keys(plain, _TENSOR_KEYS, where)
    try:
        found = converted(plain, TensorRange)
    except GraphError as error:
        raise error.within(where) from None
    if found.min > found.max:
        raise GraphError("ranges-order", source=where, low=found.min, high=found.max)
    return found


def _check_keys(plain: Any, keys: tuple[str, ...], where: str) -> None:
    """Raise GraphError for a key that nothing reads."""
    for key in plain if isinstance(plain, dict) else ():
        if key not in keys:
            raise GraphError("ranges-unknown-key", what=where, key=key, hint=nearest(key, keys))
