"""TensorFlow's first quantized ops, whose tensors are codes with a minimum and a maximum, as the
Graph Transform Tool writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.shapes.static_shapes import Shapes

FLOAT, QUINT8, QINT32 = DType("float32"), DType("quint8"), DType("qint32")
SMALLEST_RANGE = np.float32(1e-6)  # of a constant: all zeros would have an empty range
TINY = np.finfo(np.float32).tiny  # TensorFlow's kernels treat smaller steps as zero


class EightBit(NamedTuple):
    """The names of the three tensors."""

    codes: str
    low: str
    high: str

    @classmethod
    def made_by(cls, name: str) -> "EightBit":
        """Return the three outputs of a node."""
        return cls(name, f"{name}:1", f"{name}:2")


def source(graph: Graph, tensor: str) -> EightBit | None:
    """Return the quint8 tensor in mode MIN_FIRST that a float tensor was dequantized from."""
    node = graph.producer(tensor)
    if node.op != "Dequantize" or graph.is_input(node.name) or node.attr("axis", -1) != -1:
        return None
    if (node.attr("T"), node.attr("mode")) != (QUINT8, "MIN_FIRST"):
        return None
    ends = [graph.constant(tensor) for tensor in node.data_inputs[1:]]
    if any(end is not None and end.shape for end in ends):  # the kernels take scalars
        return None
    return EightBit(*node.data_inputs)


def float_constant(graph: Graph, tensor: str) -> tuple[Node, Array] | None:
    """Return the value of a constant as floats, and its Const, which may contain qint8 codes.

    The codes are those of `quantize_weights`: symmetric, with a range for each index of an axis,
    and a Reshape if the channels span two axes.
    """
    const = graph.constant(tensor)
    if const is not None:
        return (const, const.value) if const.attr("dtype") == "float32" else None
    node = graph.producer(tensor)
    reshape = node if node.op == "Reshape" else None
    if reshape is not None:
        node = graph.producer(reshape.data_inputs[0])
    if node.op != "Dequantize" or graph.is_input(node.name):
        return None
    shape = () if reshape is None else reshape.data_inputs[1:]
    parts = [part for t in (*node.data_inputs, *shape) if (part := graph.constant(t)) is not None]
    if len(parts) < len(node.data_inputs) + len(shape):
        return None
    known = [part.value for part in parts]
    if (node.attr("T"), node.attr("mode")) != ("qint8", "SCALED"):
        return None
    codes, low, high = known[:3]
    step = np.maximum(low / (-127 if node.attr("narrow_range", False) else -128), high / 127)
    if step.ndim:
        axis = node.attr("axis", -1)
        step = step.reshape([-1 if axis == place else 1 for place in range(codes.ndim)])
    value = codes * step.astype(np.float32)
    waits = [wait for part in (node, *parts) for wait in part.control_inputs]
    if reshape is not None:
        value, waits = value.reshape(known[3]), [*waits, *reshape.control_inputs]
    return parts[0].with_control_inputs(*waits), value


def quantize(graph: Graph, name: str, tensor: str) -> EightBit:
    """Add nodes that measure a tensor's range and quantize it; their names start with `name`."""

    def add(part: str, op: str, *inputs: str, **attrs: object) -> str:
        return graph.put(f"{name}/{part}", op, *inputs, like=None, **attrs)

    def number(part: str, value: int) -> str:
        # it waits for the tensor, and so belongs to the same loop or branch
        const = Node.constant(graph.unique_name(f"{name}/{part}"), np.array([value], np.int32))
        return graph.add(const.with_control_inputs(f"^{producer_name(tensor)}")).name

    flat = add("reshape", "Reshape", tensor, number("reshape_dims", -1), T=FLOAT)
    axes = number("reduction_dims", 0)
    low = add("min", "Min", flat, axes, T=FLOAT, keep_dims=False)
    high = add("max", "Max", flat, axes, T=FLOAT, keep_dims=False)
    codes = add("quantize", "QuantizeV2", tensor, low, high, T=QUINT8, mode="MIN_FIRST")
    return EightBit.made_by(codes)


def quantize_constant(graph: Graph, name: str, const: Node, value: Array) -> EightBit:
    """Add the 8-bit form of a constant; its names are those of the nodes of `quantize`."""
    low, high = (np.asarray(end) for end in (value.min(initial=0), value.max(initial=0)))
    if high - low < SMALLEST_RANGE:
        high = np.asarray(low + SMALLEST_RANGE)
    if value.size and value.min() == value.max():  # a broadcast value may declare gigabytes
        codes = np.broadcast_to(min_first(np.asarray(value.flat[0]), low, high)[0], value.shape)
    else:
        codes = min_first(value, low, high)[0]
    parts = (("quantize", codes, QUINT8), ("min", low, None), ("max", high, None))
    nodes = [graph.constant_beside(const, array, f"{name}/{p}", t) for p, array, t in parts]
    return EightBit(*(node.name for node in nodes))


def number_range(
    graph: Graph,
    node: Node,
    name: str,
    low: float,
    high: float,
    parts: tuple[str, str] = ("min", "max"),
) -> tuple[str, str]:
    """Add two numbers for a node to read, on no device; `name` is followed by min and max."""
    free = replace(node, device="")
    one, other = (
        graph.constant_beside(free, np.array(value, np.float32), f"{name}{part}").name
        for part, value in zip(parts, (low, high), strict=True)
    )
    return one, other


def measured_range(graph: Graph, name: str, wide: EightBit) -> tuple[str, str]:
    """Add nodes that measure the range of a 32-bit result.

    RequantizationRange returns an empty range if all values are equal and negative, as in a batch
    of one: the next 8-bit op would refuse it, or change the sign of the values.
    """
    low = graph.put(name, "RequantizationRange", *wide, Tinput=QINT32)
    least = Node.constant(graph.unique_name(f"{name}/least_max"), np.array(SMALLEST_RANGE))
    graph.add(least.with_control_inputs(f"^{low}"))  # it belongs to the same loop or branch
    high = graph.put(f"{name}/max", "Maximum", f"{low}:1", least.name, T=FLOAT)
    return low, high


def cut_range(
    graph: Graph, reader: Node, measured: tuple[str, str], low: float, high: float
) -> tuple[str, str]:
    """Add nodes that limit a measured range for a node; the range always includes zero."""
    name, ends = reader.name, []
    limited = (low, 0), (0, min(high, float(np.finfo(np.float32).max)))
    for part, end, limits in zip(("min", "max"), measured, limited, strict=True):
        bounds = number_range(graph, reader, f"{name}/{part}_within_", *limits)
        ends.append(graph.put(f"{name}/{part}", "ClipByValue", end, *bounds, T=FLOAT))
    return ends[0], ends[1]


def requantize(graph: Graph, name: str, wide: EightBit, low: str, high: str) -> EightBit:
    """Add a node that rounds a 32-bit result to the 8-bit codes of a range."""
    types = {"Tinput": QINT32, "out_type": QUINT8}
    return EightBit.made_by(graph.put(name, "Requantize", *wide, low, high, like=None, **types))


def dequantize(name: str, codes: EightBit, *control_inputs: str) -> Node:
    """Return a node that converts codes to floats."""
    node = Node(name, "Dequantize", codes).with_control_inputs(*control_inputs)
    return node.with_attrs(T=QUINT8, mode="MIN_FIRST")


def min_first(
    weights: Array, low: Array | None = None, high: Array | None = None
) -> tuple[Array, Array, Array, Array]:
    """Return codes 0...255, their range and the restored values, as TensorFlow's kernels do.

    The range includes all weights and zero, or is the given one (then it clips the codes).
    """
    if low is None or high is None:
        low, high = (np.asarray(end) for end in (weights.min(initial=0), weights.max(initial=0)))
    scale = 256 / (np.float64(high - low) * (256 / 255))
    steps = np.asarray(np.multiply(weights, scale, dtype=np.float64))  # a scalar is not an array
    steps += np.copysign(0.5, weights)  # halves round away from zero, as in C
    np.trunc(steps, out=steps)
    steps -= np.trunc(low * scale - 0.5)
    codes = np.clip(steps, 0, 255, out=steps).astype(np.uint8)
    del steps  # it is twice as large as the weights
    step = np.float32(high - low) / np.float32(255)
    if step < TINY:
        step = np.float32(0)
    restored = np.trunc(low / step - np.float32(0.5)) * step + codes * step
    return codes, low, high, np.asarray(restored)


@dataclass(frozen=True)
class Kernel:
    """The 8-bit op of a float op: the types of its inputs and wide result, and its attributes."""

    op: str
    types: tuple[str, ...]
    wide: str = ""  # the attribute with the type of an int32 result; '': the result is quint8
    keeps: tuple[str, ...] = ()
    as_it_is: tuple[int, ...] = ()  # indices of inputs that are not floats
    interleaved: bool = True  # min and max of each input are adjacent, not all minima first


KERNELS = {
    **dict.fromkeys(("Add", "AddV2"), Kernel("QuantizedAdd", ("T1", "T2"), "Toutput")),
    "AvgPool": Kernel("QuantizedAvgPool", ("T",), keeps=("ksize", "padding", "strides")),
    "BiasAdd": Kernel("QuantizedBiasAdd", ("T1", "T2"), "out_type"),
    **dict.fromkeys(
        ("Concat", "ConcatV2"),
        Kernel("QuantizedConcat", ("T",), keeps=("N",), as_it_is=(0,), interleaved=False),
    ),
    "Conv2D": Kernel(
        "QuantizedConv2D", ("Tinput", "Tfilter"), "out_type", keeps=("padding", "strides")
    ),
    "MatMul": Kernel(
        "QuantizedMatMul", ("T1", "T2"), "Toutput", keeps=("transpose_a", "transpose_b")
    ),
    "MaxPool": Kernel("QuantizedMaxPool", ("T",), keeps=("ksize", "padding", "strides")),
    "Mul": Kernel("QuantizedMul", ("T1", "T2"), "Toutput"),
    "Relu": Kernel("QuantizedRelu", ("Tinput",)),
    "Relu6": Kernel("QuantizedRelu6", ("Tinput",)),
    "Reshape": Kernel("QuantizedReshape", ("T",), keeps=("Tshape",), as_it_is=(1,)),
    "ResizeBilinear": Kernel(
        "QuantizedResizeBilinear",
        ("T",),
        keeps=("align_corners", "half_pixel_centers"),
        as_it_is=(1,),
    ),
}

# The 8-bit ops of these ops are not useful. With its conversions, the private
# _FusedQuantizedDepthwiseConv2D made MobileNetV2 15 % slower and 1 to 5 dB less accurate.
UNFIT = {
    "DepthwiseConv2dNative": "QuantizedDepthwiseConv2D runs only under oneDNN, and reads code 0 "
    "as zero",
}


def reason(graph: Graph, node: Node, shapes: Shapes) -> str | None:
    """Return the reason why an op is kept in float32, or None."""
    if graph.is_input(node.name):
        return "it is an input of the graph"
    known = [shapes.shape(tensor) for tensor in node.data_inputs]
    if result := limit(KERNELS[node.op].op, node, known):
        return result
    if KERNELS[node.op].op == "QuantizedConcat" and axis(graph, node, shapes) is None:
        return "its axis is not known"
    layer = graph.producer(node.data_inputs[0])
    if node.op == "BiasAdd" and layer.op in UNFIT:  # rounding twice costs 5 dB on Lite0
        return f"it follows a {layer.op}, which is kept in float32"
    return None


def operands(node: Node) -> tuple[str, ...]:
    """Return the inputs of an op in the order of its 8-bit op: a concatenation's axis is first."""
    tensors = node.data_inputs
    return (tensors[-1], *tensors[:-1]) if node.op == "ConcatV2" else tensors


def float_operands(node: Node) -> list[str]:
    """Return the tensors that an op reads as floats."""
    plain = KERNELS[node.op].as_it_is
    return [tensor for place, tensor in enumerate(operands(node)) if place not in plain]


def eight_bit_op(graph: Graph, node: Node, forms: Mapping[str, EightBit], shapes: Shapes) -> Node:
    """Return the 8-bit op of a float op, with the same name; `forms` are its 8-bit inputs."""
    kernel = KERNELS[node.op]
    read = [forms[tensor] for tensor in float_operands(node)]
    tensors = [item.codes for item in read]
    for place in kernel.as_it_is:
        tensors.insert(place, operands(node)[place])
    ends = [end for item in read for end in item[1:]]
    if not kernel.interleaved:
        ends = [item.low for item in read] + [item.high for item in read]
        tensors[0] = _axis_from_the_front(graph, node, shapes)
    attrs: dict[str, object] = dict.fromkeys(kernel.types, QUINT8)
    attrs |= {name: node.attrs[name] for name in kernel.keeps if name in node.attrs}
    if kernel.wide:
        attrs[kernel.wide] = QINT32
    name = graph.unique_name(f"{node.name}/eightbit")
    return Node(name, kernel.op, (*tensors, *ends)).with_attrs(**attrs)


def _axis_from_the_front(graph: Graph, node: Node, shapes: Shapes) -> str:
    """Return the axis of a concatenation for its 8-bit op: int32, not negative."""
    tensor = operands(node)[0]
    const = graph.constant(tensor)
    place = axis(graph, node, shapes)
    if const is None or (const.attr("dtype") == "int32" and const.value == place):
        return tensor
    name = f"{node.name}/eightbit/axis"
    return graph.constant_beside(const, np.array(place, np.int32), name).name


def axis(graph: Graph, node: Node, shapes: Shapes) -> int | None:
    """Return the axis of a concatenation, counted from the front, or None if it is unknown."""
    first, *tensors = operands(node)
    const = graph.constant(first)
    if const is None or const.shape:
        return None
    if const.value >= 0:
        return int(const.value)
    ranks = [len(shape) for shape in map(shapes.shape, tensors) if shape is not None]
    return ranks[0] + int(const.value) if ranks else None
