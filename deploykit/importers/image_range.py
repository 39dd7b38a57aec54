"""The range of pixel values that a graph expects, derived from its first nodes."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, split
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.constants import Constants

BESIDE = "from the model metadata file"
_WHOLE = frozenset({"uint8", "uint16", "int16", "int32", "uint32", "int64", "uint64"})
_FLOAT = frozenset({"float16", "bfloat16", "float32", "float64"})
_SHAPES = frozenset({"Shape", "ShapeN", "Rank", "Size"})  # they do not read values
_MOVING = frozenset(re.findall(r"\w+", """
    BroadcastTo Cast CheckNumerics ClipByValue CropAndResize EnsureShape ExpandDims
    FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel Gather
    GatherV2 Identity MirrorPad Pad PadV2 PlaceholderWithDefault PreventGradient Reshape
    ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor Reverse ReverseV2
    ScaleAndTranslate Slice Snapshot Squeeze StopGradient StridedSlice Tile Transpose
"""))  # fmt: skip
_LIMITING = frozenset({"Maximum", "Minimum"})
_PARTING = {"Split": 1, "SplitV": 0, "Unpack": 0}  # op -> index of the input that it splits
_TAKING = frozenset({"Gather", "GatherV2", "Slice", "StridedSlice"})
_JOINING = {"ConcatV2": slice(None, -1), "Concat": slice(1, None), "Pack": slice(None)}
_MAX_CHANNELS = 4096  # limit of evaluated channels
_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\.\.({_NUMBER})\s*", re.ASCII)
_LARGEST = 255.0  # largest value of a decoded image


class PhotoRange(NamedTuple):
    """The values that black and white are mapped to."""

    low: float
    high: float

    @property
    def scale(self) -> float:
        """Factor that each byte is multiplied by."""
        return (self.high - self.low) / _LARGEST

    @property
    def mean(self) -> tuple[float, ...]:
        """Value to subtract after scaling; empty if it is 0."""
        return (-self.low,) if self.low else ()

    def like(self, other: "PhotoRange") -> bool:
        """Return whether it is equal up to rounding, such as 1/255 instead of 1/256."""
        slack = 0.02 * abs(other.high - other.low)
        return all(abs(a - b) <= slack for a, b in zip(self, other, strict=True))

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


BYTES = PhotoRange(0.0, 255.0)
UNIT = PhotoRange(0.0, 1.0)
SIGNED = PhotoRange(-1.0, 1.0)


def range_from(text: str) -> PhotoRange | None:
    """Parse a range such as `0..1`; None if the text is not a range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    low, high = map(float, match.groups())
    return PhotoRange(low, high) if low < high else None


@dataclass(frozen=True)
class ExpectedRange:
    """An expected range and its source in words."""

    range: PhotoRange
    why: str

    def __str__(self) -> str:
        return f"{self.range} ({self.why})"


def expected_from(text: str) -> ExpectedRange | None:
    """Parse a text such as `0..255 (the model divides by 255 itself)`; None if it is invalid."""
    range_text, _, why = text.partition(" (")
    range_ = range_from(range_text)
    return None if range_ is None else ExpectedRange(range_, why.removesuffix(")") or BESIDE)


class _Arithmetic(NamedTuple):
    """The function x * factor + offset; both are float64 arrays [1] or [channels]."""

    factor: Array
    offset: Array


_NOTHING = _Arithmetic(np.ones(1), np.zeros(1))


def expected_ranges(graph: Graph, tensors: Iterable[str]) -> dict[str, str]:
    """Return the expected pixel range of each float image input as a text; "" if unknown."""
    results = {}
    for tensor in tensors:
        type_, shape = _declared(graph, tensor)
        if type_ in _FLOAT and (shape is None or len(shape) == 4):
            expected = expected_range(graph, tensor)
            results[tensor] = "" if expected is None else str(expected)
    return results


def expected_range(graph: Graph, tensor: str) -> ExpectedRange | None:
    """Return the range of pixel values that an input expects; None if it is unknown.

    It is unknown if several nodes read the input, or if their arithmetic fits no range.
    """
    type_ = _declared(graph, tensor)[0]
    if type_ in _WHOLE:
        return ExpectedRange(BYTES, f"{type_} input")
    if type_ not in _FLOAT:
        return None
    result = _Reading(graph).behind(tensor)
    range_ = _range_for(result)
    if range_ is None:
        return None
    divides = np.allclose(result.factor, 1 / 255, rtol=2e-3) and not result.offset.any()
    return ExpectedRange(
        range_, f"the model {'divides by 255' if divides else 'normalises them'} itself"
    )


def _declared(graph: Graph, tensor: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the dtype and shape of an input; "" and None if they are unknown."""
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    type_ = types[port] if types is not None and port < len(types) else ""
    return type_, node.attr("shape") if node.op.startswith("Placeholder") else None


class _Reading:
    """A walk through a graph from an input; constants are only evaluated when needed."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants: Constants | None = None

    def behind(self, tensor: str) -> _Arithmetic:
        """Return the arithmetic that the graph applies to a tensor first."""
        at, done = self._chain(normal(tensor), _NOTHING)
        while (joined := self._joined(at, done)) is not None:
            at, done = self._chain(*joined)
        return done

    def _chain(self, at: str, done: _Arithmetic) -> tuple[str, _Arithmetic]:
        """Follow a tensor while it has a single reader that is arithmetic."""
        while len(readers := self._readers(at)) == 1:
            step = self._step(readers[0], at, done)
            if step is None:
                break
            at, done = step
        return at, done

    def _readers(self, tensor: str) -> list[Node]:
        return [
            node
            for node in self._graph.readers(split(tensor)[0])
            if node.op not in _SHAPES and tensor in map(normal, node.data_inputs)
        ]

    def _step(self, node: Node, at: str, done: _Arithmetic) -> tuple[str, _Arithmetic] | None:
        """Return a node's output and the arithmetic so far; None if the node is a layer."""
        reads = [normal(tensor) for tensor in node.data_inputs]
        if node.op == "IdentityN":
            return normal(f"{node.name}:{reads.index(at)}"), done
        if node.op in _MOVING and reads[0] == at:
            return node.name, done
        if node.op == "Neg":
            return node.name, _Arithmetic(-done.factor, -done.offset)
        if len(reads) != 2 or reads[0] == reads[1]:
            return None
        first = reads[0] == at
        value = self._number(reads[1] if first else reads[0])
        if value is None:
            return None
        if node.op in _LIMITING:
            return node.name, done
        result = _applied(node.op, done, value, first)
        return None if result is None else (node.name, result)

    def _number(self, tensor: str) -> Array | None:
        """Return a constant as float64 [1] or [channels], or None."""
        if self._constants is None:
            self._constants = Constants(self._graph)
        value = self._constants.value(tensor)
        if value is None or value.dtype.kind not in "fiuV" or not value.size:
            return None
        value = value.astype(np.float64)
        channels = max(value.shape, default=1)
        if value.size > channels:  # a whole image, such as the mean of all images
            channels = value.shape[-1]
        return np.asarray(value.reshape(-1, channels).mean(0))

    def _joined(self, at: str, done: _Arithmetic) -> tuple[str, _Arithmetic] | None:
        """Return the node that joins the channels of a tensor again, with their arithmetic."""
        ends = [self._chain(*start) for start in self._parts(at, done)]
        joins = {node.name: node for end, _ in ends for node in self._readers(end)}
        if len(joins) != 1:
            return None
        (join,) = joins.values()
        parts = dict(ends)
        if join.op not in _JOINING:
            return None
        reads = [normal(tensor) for tensor in join.data_inputs[_JOINING[join.op]]]
        if not reads or any(tensor not in parts for tensor in reads):
            return None
        results = [np.broadcast_arrays(*parts[tensor]) for tensor in reads]
        return join.name, _Arithmetic(
            *(np.concatenate(side) for side in zip(*results, strict=True))
        )

    def _parts(self, at: str, done: _Arithmetic) -> list[tuple[str, _Arithmetic]]:
        """Return the tensors that contain subsets of a tensor's channels."""
        readers = self._readers(at)
        if len(readers) != 1:
            return [(node.name, done) for node in readers if node.op in _TAKING]
        (node,) = readers
        if node.op not in _PARTING or normal(node.data_inputs[_PARTING[node.op]]) != at:
            return [(at, done)] if node.op in _JOINING else []
        count = int(node.attr("num_split") or node.attr("num") or 0)
        tensors = [normal(f"{node.name}:{number}") for number in range(count)]
        if count not in (len(done.factor), len(done.offset)):
            return [(tensor, done) for tensor in tensors]
        sides = zip(*(np.broadcast_to(item, count) for item in done), strict=True)
        own = [_Arithmetic(factor.reshape(1), offset.reshape(1)) for factor, offset in sides]
        return list(zip(tensors, own, strict=True))


def _applied(op: str, done: _Arithmetic, value: Array, first: bool) -> _Arithmetic | None:
    """Return the arithmetic extended by an op; `first`: the tensor is its first operand."""
    factor, offset = done
    if len({factor.size, offset.size, value.size} - {1}) > 1:
        return None
    if op == "Mul":
        return _Arithmetic(factor * value, offset * value)
    if op in ("Div", "RealDiv", "DivNoNan") and first and value.all():
        return _Arithmetic(factor / value, offset / value)
    if op in ("Add", "AddV2", "BiasAdd"):
        return _Arithmetic(factor, offset + value)
    if op == "Sub":
        sign = 1 if first else -1
        return _Arithmetic(sign * factor, sign * (offset - value))
    return None


def _range_for(arithmetic: _Arithmetic) -> PhotoRange | None:
    """Return the range on which all channels with a known range agree, or None."""
    sides = zip(*(side[:_MAX_CHANNELS] for side in np.broadcast_arrays(*arithmetic)), strict=True)
    ranges = {_range_of(float(factor), float(offset)) for factor, offset in sides} - {None}
    return ranges.pop() if len(ranges) == 1 else None


def _range_of(factor: float, offset: float) -> PhotoRange | None:
    """Return the input range for which x * factor + offset is a plausible normalization.

    The mean m and standard deviation s of values in a range are bounded: 0 to 1 allows
    s * s <= m * (1 - m), and s is not much smaller than the range for diverse images.
    """
    if not (math.isfinite(factor) and math.isfinite(offset) and factor):
        return None
    m, s = -offset / factor, 1 / abs(factor)
    if (
        (100 <= s <= 300 and -5 <= m <= 260)  # x / 255, x / 127.5 - 1
        or (10 <= s <= 100 and 0.5 <= m <= 254.5)  # (x - mean) / deviation
        or (_near(s, 1) and 5 <= m <= 256)  # x - mean
    ):
        return BYTES
    if (
        (0 < m < 1 and 0.03 <= s <= 1.02 * math.sqrt(m * (1 - m)))  # x * 2 - 1, (x - mean) / ...
        or (_near(s, 1) and (0.05 <= m <= 0.95 or (_near(m, 1) and factor < 0)))  # x - mean, 1 - x
        or (_near(s, 1 / 255) and -0.02 <= m <= 1.02)  # x * 255, x * 255 - mean
    ):
        return UNIT
    if (
        (-1 < m < -0.02 and 0.06 <= s <= 1.02 * math.sqrt(1 - m * m))  # (x - mean) / deviation
        or (_near(m, -1) and _near(s, 2))  # (x + 1) / 2
        or (_near(s, 1 / 127.5) and 0.005 <= abs(m) <= 1.02)  # (x + 1) * 127.5
    ):
        return SIGNED
    return None


def _near(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=0.02)
