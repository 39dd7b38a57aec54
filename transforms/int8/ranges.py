"""Ranges of a model's tensors, the part of a range that its readers use, and groups of tensors
that share a scale.
"""

import functools
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.transforms.common.documents import converted
from deploykit.transforms.common.errors import GraphError, MismatchError, nearest
from deploykit.transforms.int8 import quantized_ops
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal
from deploykit.transforms.untrusted.files import check_regular, read_json


class TensorGroups:
    """Groups of tensors, each represented by one of its members: the leader."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self._next: dict[str, str] = {}
        """Maps each tensor to another one of its group, the leader to itself."""

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._next

    def __iter__(self) -> Iterator[str]:
        return iter(self._next)

    def add(self, tensor: str) -> None:
        """Add a tensor as a new group, unless it is in one."""
        self._next.setdefault(tensor, tensor)

    def join(self, tensor: str, other: str) -> None:
        """Merge the groups of two tensors."""
        self._next[self.leader(tensor)] = self.leader(other)

    def leader(self, tensor: str) -> str:
        """Return the tensor that represents a tensor's group."""
        while (after := self._next[tensor]) != tensor:
            self._next[tensor] = self._next[after]
            tensor = self._next[tensor]
        return tensor


Range = tuple[float, float]  # includes zero

EVERYTHING = (-math.inf, math.inf)

_CUT_AT = {"Relu": math.inf, "Relu6": 6.0}
_PASS_ON = frozenset({"Dequantize", "Identity", "MaxPool", "Requantize", "Reshape", "Squeeze"})


def surviving_ranges(graph: Graph) -> dict[str, Range]:
    """Return a range for each tensor: values outside have the same effect as the nearest end.

    One pass from the outputs to the inputs; an 8-bit op clips and passes values on like its float
    op.
    """
    result = dict.fromkeys(graph.outputs, EVERYTHING)
    for name in reversed(graph.order()):
        node = graph[name]
        if node.op == "RequantizationRange":  # no node computes with the range that it returns
            continue
        for place, tensor in enumerate(node.data_inputs):
            own = result.get(name, EVERYTHING)
            low, high = EVERYTHING if place else _before(graph, node, own)
            if tensor in result:
                low, high = min(low, result[tensor][0]), max(high, result[tensor][1])
            result[tensor] = min(low, 0.0), max(high, 0.0)
    return result


def _before(graph: Graph, node: Node, own: Range) -> Range:
    """Return the surviving range of a node's first input, given that of its result."""
    op = node.op.removeprefix("Quantized")
    if op in _CUT_AT:
        return 0.0, min(own[1], _CUT_AT[op])
    if op in _PASS_ON:
        return own
    # Clipping one end before a bias loses accuracy: InceptionV3 ends at 25 dB, not 32.
    bias = _bias(graph, node) if op == "BiasAdd" and math.isfinite(own[1]) else None
    return EVERYTHING if bias is None else (own[0] - bias[1], own[1] - bias[0])


def _bias(graph: Graph, node: Node) -> Range | None:
    if node.op == "BiasAdd":
        constant = quantized_ops.float_constant(graph, node.data_inputs[1])
        ends = [] if constant is None else [constant[1].min(initial=0), constant[1].max(initial=0)]
    else:
        results = [graph.constant(tensor) for tensor in node.data_inputs[4:]]
        ends = [end.value for end in results if end is not None and not end.shape]
    return (float(ends[0]), float(ends[1])) if len(ends) == 2 and np.isfinite(ends).all() else None


logger = logging.getLogger("deploykit")

FORMAT = 1
_LARGEST = float(np.finfo(np.float32).max)
Float32 = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
"""A finite number of type float32."""
MAX_BYTES = 512 << 20  # two numbers of 20 bytes for each of ten million channels
_KEYS = ("format", "model_sha256", "samples", "tensors")
_TENSOR_KEYS = ("min", "max", "channel_mean", "channel_min", "channel_max")


@dataclass(frozen=True)
class TensorRange:
    """The minimum and maximum of a tensor, and the minimum, maximum and mean of each channel."""

    min: Float32
    max: Float32
    channel_mean: tuple[Float32, ...] = ()
    channel_min: tuple[Float32, ...] = ()
    channel_max: tuple[Float32, ...] = ()
    """Empty if the file does not contain it."""


@dataclass(frozen=True)
class Ranges:
    """The result of a calibration, by tensor."""

    model_sha256: str
    samples: Annotated[int, Meta(ge=1)]
    tensors: Mapping[str, TensorRange]

    def of(self, tensor: str, channels: int | None = None) -> TensorRange:
        """Return the range of a tensor. GraphError: it has none, or another number of channels."""
        result = self.tensors.get(normal(tensor))
        if result is None:
            hint = nearest(normal(tensor), list(self.tensors))
            raise GraphError("missing", kind="range for tensor", name=tensor, hint=hint)
        for key in _TENSOR_KEYS[2:]:
            count = len(getattr(result, key))
            may_lack = key == "channel_max" and not count
            if channels is not None and count != channels and not may_lack:
                raise GraphError(
                    "ranges-channels", tensor=tensor, channels=channels, key=key, count=count
                )
        return result

    def text(self) -> str:
        """Return the file's text: deterministic, one line per key."""
        tensors = ",\n".join(
            f"    {json.dumps(name)}: {{\n{_lines(result)}\n    }}"
            for name, result in self.tensors.items()
        )
        head = {"format": FORMAT, "model_sha256": self.model_sha256, "samples": self.samples}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        body = f"{{\n{tensors}\n  }}" if tensors else "{}"
        return "\n".join(["{", *lines, f'  "tensors": {body}', "}", ""])


def _lines(tensor_range: TensorRange) -> str:
    keys = _TENSOR_KEYS if tensor_range.channel_max else _TENSOR_KEYS[:-1]
    return ",\n".join(
        f'      "{key}": {json.dumps(getattr(tensor_range, key), allow_nan=False)}' for key in keys
    )


def load_ranges(path: str | os.PathLike[str]) -> Ranges:
    """Read ranges from their file.

    FileError: it cannot be read. GraphError: it is not such a file, or its values are invalid.
    """
    status = check_regular(path)
    return _loaded(os.fspath(path), (status.st_mtime_ns, status.st_size, status.st_ino))


def check_ranges(path: str | os.PathLike[str], model: str, sha256: str) -> None:
    """Raise MismatchError if ranges were calibrated on other files than those with this SHA-256.

    `model` is the name of the model. FileError, GraphError: as `load_ranges`.
    """
    result = load_ranges(path).model_sha256
    if not result:
        logger.warning("%s contains no SHA-256 of a model, so it may belong to another model "
                       "than %s; run deploykit calibrate again", path, model)  # fmt: skip
    elif result != sha256:
        raise MismatchError("calibrated-on-other-model", file=path, model=model)


@functools.lru_cache(maxsize=1)  # dozens of graphs are built from one file
def _loaded(path: str, status: tuple[int, ...]) -> Ranges:
    try:
        return _ranges(read_json(path, "file of ranges", MAX_BYTES, _once))
    except GraphError as error:
        raise error if path in str(error) else error.within(path) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the file. GraphError: a key occurs twice, so an edit would be lost."""
    results = dict(pairs)
    if len(results) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise GraphError("json-key-twice", key=twice)
    return results


def _ranges(plain: Any) -> Ranges:
    if not isinstance(plain, dict) or "format" not in plain:
        raise GraphError("ranges-without-format")
    if plain["format"] != FORMAT:
        raise GraphError("format-unsupported", got=plain["format"], known=FORMAT)
    _check_keys(plain, _KEYS, "the file")
    tensors = plain.get("tensors")
    if isinstance(tensors, dict):  # so that an error names the tensor
        tensors = {normal(name): _tensor_range(name, item) for name, item in tensors.items()}
    result = converted({"model_sha256": "", **plain, "tensors": {}}, Ranges)
    return replace(result, tensors=converted(tensors, dict[str, TensorRange]))


def _tensor_range(name: str, plain: Any) -> TensorRange:
    where = f"tensor '{name}'"
    _check_keys(plain, _TENSOR_KEYS, where)
    try:
        result = converted(plain, TensorRange)
    except GraphError as error:
        raise error.within(where) from None
    if result.min > result.max:
        raise GraphError("ranges-order", source=where, low=result.min, high=result.max)
    return result


def _check_keys(plain: Any, keys: tuple[str, ...], where: str) -> None:
    for key in plain if isinstance(plain, dict) else ():
        if key not in keys:
            raise GraphError("ranges-unknown-key", what=where, key=key, hint=nearest(key, keys))
