"""int8 codes of a tensor's values, and float inputs computed from uint8 values."""

from dataclasses import dataclass

from deploykit.transforms.int8.ranges import TensorRange
from deploykit.transforms.int8.weights import LARGEST
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split

CODES = 255  # largest unsigned code; 127 with a sign
_NOTHING = 1e-3  # of a step: rounding error of numbers that are stored as float32


@dataclass(frozen=True)
class Form:
    """Affine codes of a tensor: value = code * step + offset."""

    signed: bool
    peak: float
    """Value of the largest code, without the offset."""
    offset: float = 0.0
    top: int = CODES
    """The largest unsigned code in use: smaller than 255 if fake-quants require it."""

    @property
    def type(self) -> str:
        """TensorFlow type of the codes."""
        return "qint8" if self.signed else "quint8"

    @property
    def step(self) -> float:
        """Difference between the values of two adjacent unsigned codes."""
        return self.peak / CODES

    @property
    def zero(self) -> int:
        """The code nearest to zero, which may be outside of the 8-bit codes."""
        return round(-self.offset / self.step)

    @property
    def of_zero(self) -> float:
        """Value of the code nearest to zero; 0.0 if zero has an exact code."""
        stands_for = self.zero * self.step + self.offset
        return 0.0 if abs(stands_for) < _NOTHING * self.step else stands_for

    @property
    def low(self) -> float:
        """The lower end of the range, without the offset; signed ranges are symmetric."""
        return -self.peak if self.signed else 0.0

    @property
    def lowest(self) -> float:
        """Value of the lowest code; with a sign that code is -128, and the largest is 127."""
        return -self.peak * (LARGEST + 1) / LARGEST if self.signed else self.offset


def form_of(tensor_range: TensorRange) -> Form:
    """Return the form of a range; values below zero by less than half a code count as rounding."""
    signed = tensor_range.min < -tensor_range.max / CODES / 2
    return Form(signed, max(-tensor_range.min, tensor_range.max) if signed else tensor_range.max)


def with_offset(tensor_range: TensorRange, zero_is_exact: bool) -> Form:
    """Return the unsigned form of a range below zero.

    With `zero_is_exact`, zero has an exact code. Otherwise the lowest value has one: the pixels of
    an image scaled to -1..1 are then codes, except for rounding.
    """
    high, low = max(tensor_range.max, 0.0), min(tensor_range.min, 0.0)
    step = (high - low) / CODES
    return Form(False, high - low, -round(-low / step) * step if zero_is_exact else low)


_LINEAR = frozenset({"Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Sub"})


@dataclass(frozen=True)
class Bytes:
    """A uint8 tensor from which another one is computed as `scale * byte + offset`."""

    tensor: str
    scale: float
    offset: float


def bytes_of(graph: Graph, tensor: str) -> Bytes | None:
    """Return the uint8 tensor that a float tensor is computed from; None: there is none.

    It follows Cast, Identity, and sums and products with a constant that is a single number.
    """
    scale, offset = 1.0, 0.0  # of the current tensor
    while not graph.is_input(tensor):
        name, port = split(tensor)
        node = graph[name]
        if port or not node.data_inputs:
            return None
        first = node.data_inputs[0]
        if node.op == "Cast" and node.attr("SrcT") == "uint8" and node.attr("DstT") == "float32":
            return Bytes(first, scale, offset) if scale > 0 else None
        if node.op == "Identity":
            tensor = first
            continue
        step = _step(graph, node)
        if step is None:
            return None
        tensor, factor, term = step
        scale, offset = scale * factor, offset + scale * term
    return None


def _step(graph: Graph, node: Node) -> tuple[str, float, float] | None:
    """Return the input of a node, and the factor and the term that the node applies to it."""
    if node.op not in _LINEAR:
        return None
    left, right = node.data_inputs
    number = _number(graph, right)
    is_left = number is not None
    if number is None:
        number = _number(graph, left)
    if number is None:
        return None
    tensor = left if is_left else right
    if node.op == "Mul":
        return tensor, number, 0.0
    if node.op == "RealDiv":
        return (tensor, 1 / number, 0.0) if is_left and number else None
    if node.op == "Sub":
        return (tensor, 1.0, -number) if is_left else (tensor, -1.0, number)
    return tensor, 1.0, number


def _number(graph: Graph, tensor: str) -> float | None:
    """Return the single number of a constant that changes no shape, or None."""
    const = graph.constant(tensor)
    if const is None or len(const.shape) > 1 or const.value.size != 1:
        return None
    return float(const.value.reshape(()))
