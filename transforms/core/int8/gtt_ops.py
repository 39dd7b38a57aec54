"""TensorFlow's first 8-bit ops, and the float ops they stand for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.checks.kernel_limits import limit
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.gtt_codes import QINT32, QUINT8, EightBit
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.known_shapes import Shapes


@dataclass(frozen=True)
class Kernel:
    """The 8-bit op of a float op: the types of its inputs, of a wide result, and what it keeps."""

    op: str
    types: tuple[str, ...]
    wide: str = ""  # the attribute with the type of a result of 32 bits; 8 bits without one
    keeps: tuple[str, ...] = ()
    as_it_is: tuple[int, ...] = ()  # places of inputs that are no floats
    interleaved: bool = True  # the ranges of each input stand together, not all low ends first


KERNELS = {
    "Add": Kernel("QuantizedAdd", ("T1", "T2"), "Toutput"),
    "AddV2": Kernel("QuantizedAdd", ("T1", "T2"), "Toutput"),
    "AvgPool": Kernel("QuantizedAvgPool", ("T",), keeps=("ksize", "padding", "strides")),
    "BiasAdd": Kernel("QuantizedBiasAdd", ("T1", "T2"), "out_type"),
    "Concat": Kernel("QuantizedConcat", ("T",), keeps=("N",), as_it_is=(0,), interleaved=False),
    "ConcatV2": Kernel("QuantizedConcat", ("T",), keeps=("N",), as_it_is=(0,), interleaved=False),
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

# There are 8-bit ops for these that do not serve. Behind its conversions, the private
# _FusedQuantizedDepthwiseConv2D made MobileNetV2 15 % slower and 1 to 5 dB less exact.
UNFIT = {
    "DepthwiseConv2dNative": "QuantizedDepthwiseConv2D runs under oneDNN alone, and reads code 0 "
    "as zero",
}


def reason(graph: Graph, node: Node, shapes: Shapes) -> str | None:
    """Return why an op stays float, or None."""
    if graph.is_input(node.name):
        return "it is an input of the graph"
    known = [shapes.shape(tensor) for tensor in node.data_inputs]
    if found := limit(KERNELS[node.op].op, node, known):
        return found
    if KERNELS[node.op].op == "QuantizedConcat" and axis(graph, node, shapes) is None:
        return "its axis is not known"
    layer = graph.producer(node.data_inputs[0])
    if node.op == "BiasAdd" and layer.op in UNFIT:  # rounding twice costs 5 dB on Lite0
        return f"it follows a {layer.op}, which stays float"
    return None


def operands(node: Node) -> tuple[str, ...]:
    """Return what an op reads, in the order of its 8-bit op: a concatenation's axis comes first."""
    tensors = node.data_inputs
    return (tensors[-1], *tensors[:-1]) if node.op == "ConcatV2" else tensors


def float_operands(node: Node) -> list[str]:
    """Return the tensors that an op reads as floats."""
    plain = KERNELS[node.op].as_it_is
    return [tensor for place, tensor in enumerate(operands(node)) if place not in plain]


def eight_bit_op(graph: Graph, node: Node, forms: Mapping[str, EightBit], shapes: Shapes) -> Node:
    """Return the 8-bit op of a float op, named after it; `forms` are what it reads, in 8 bits."""
    kernel = KERNELS[node.op]
    read = [forms[tensor] for tensor in float_operands(node)]
    tensors = [each.codes for each in read]
    for place in kernel.as_it_is:
        tensors.insert(place, operands(node)[place])
    ends = [end for each in read for end in each[1:]]
    if not kernel.interleaved:
        ends = [each.low for each in read] + [each.high for each in read]
        tensors[0] = _axis_from_the_front(graph, node, shapes)
    attrs: dict[str, object] = dict.fromkeys(kernel.types, QUINT8)
    attrs |= {name: node.attrs[name] for name in kernel.keeps if name in node.attrs}
    if kernel.wide:
        attrs[kernel.wide] = QINT32
    name = graph.unique_name(f"{node.name}/eightbit")
    return Node(name, kernel.op, (*tensors, *ends)).with_attrs(**attrs)


def _axis_from_the_front(graph: Graph, node: Node, shapes: Shapes) -> str:
    """Return the axis of a concatenation as its 8-bit op takes it: int32, and not below zero."""
    tensor = operands(node)[0]
    const = graph.constant(tensor)
    place = axis(graph, node, shapes)
    if const is None or (const.attr("dtype") == "int32" and const.value == place):
        return tensor
    name = f"{node.name}/eightbit/axis"
    return graph.constant_beside(const, np.array(place, np.int32), name).name


def axis(graph: Graph, node: Node, shapes: Shapes) -> int | None:
    """Return the axis of a concatenation, counted from the front, or None if it is not known."""
    first, *tensors = operands(node)
    const = graph.constant(first)
    if const is None or const.shape:
        return None
    if const.value >= 0:
        return int(const.value)
    ranks = [len(shape) for shape in map(shapes.shape, tensors) if shape is not None]
    return ranks[0] + int(const.value) if ranks else None
