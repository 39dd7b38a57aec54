"""A float op can be an 8-bit op between QuantizeV2 of its inputs and Dequantize of its result."""

import math

import numpy as np

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.int8 import quantized_ops
from deploykit.transforms.int8.quantized_ops import KERNELS, QINT32, QUINT8, UNFIT, EightBit
from deploykit.transforms.int8.ranges import EVERYTHING, surviving_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.pattern import Any, Op
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.merge_duplicate_nodes import merge_duplicate_nodes
from deploykit.transforms.shapes.static_shapes import Shapes

FAKE_QUANT = "FakeQuantWithMinMaxVars"
LARGEST = 1e37  # the kernels compute the width of a range in float32

# These ops can be rounded at their input or at their output: they select values, and 8-bit codes
# represent zero and the ends of the range exactly.
_ROUNDING_PASSES = frozenset({"Identity", "MaxPool", "Relu", "Relu6", "Squeeze"})

_PAIR = Op(
    "QuantizeV2",
    Op("Dequantize", name="dequantize"),
    Op("Min", Op("Reshape", Op("Dequantize", name="low"), Any()), Any()),
    Op("Max", Op("Reshape", Op("Dequantize", name="high"), Any()), Any()),
)


def quantize_nodes(
    graph: Graph,
    *,
    input_min: float | None = None,
    input_max: float | None = None,
    fallback_min: float | None = None,
    fallback_max: float | None = None,
    ignore_op: tuple[str, ...] = (),
) -> None:
    """Write the first 8-bit ops of TensorFlow, for tools that need exactly these.

    On current CPUs they are five to eight times slower than float32, and one range serves a whole
    tensor, even if `quantize_weights` used one for each channel; `deploykit quantize` is fast and
    accurate. Weights become 8-bit constants immediately; each run measures all other ranges,
    limited to the values that pass a following Relu or Relu6. Ops that no 8-bit kernel supports
    correctly are kept in float32, with a reason: depthwise layers, NCHW, dilations, explicit
    padding, groups and most broadcasts.

    PipelineError: only one end of a range is given, or a range is empty.

    Args:
        input_min: float placeholders take 8-bit codes; code 0 represents this value.
        input_max: code 255 of such a placeholder represents this value.
        fallback_min: start of the range of every 32-bit result, instead of a measured value.
        fallback_max: end of the range of every 32-bit result.
        ignore_op: an op to keep in float32; may be given several times.
    """
    inputs = _range("input", input_min, input_max)
    fallback = _range("fallback", fallback_min, fallback_max)
    if fallback is not None and not fallback[0] <= 0 <= fallback[1]:
        raise PipelineError("fallback-range-without-zero", fallback=fallback)
    if inputs is not None:
        _quantize_placeholders(graph, *inputs)
    _drop_needless_pairs(graph)
    if FAKE_QUANT not in ignore_op:
        _hoist_fake_quants(graph)
    shapes = Shapes(graph)
    for name in graph.order():
        node = graph[name]
        if node.op in ignore_op:
            continue
        if node.op == FAKE_QUANT and _fake_quant_reason(graph, node) is None:
            _convert(graph, node)
        elif node.op in UNFIT:
            graph.skip(node, UNFIT[node.op])
        elif node.op in KERNELS and not _serves_codes(graph, node):
            reason = quantized_ops.reason(graph, node, shapes)
            constants = None if reason else _constants(graph, node)
            if constants is None:
                graph.skip(node, reason or "a constant that it reads has NaN, Inf or huge values")
            else:
                _quantize(graph, node, constants, fallback, shapes)
    _cut_ranges(graph)
    merge_duplicate_nodes(graph)


def _range(kind: str, low: float | None, high: float | None) -> tuple[float, float] | None:
    """Return a range of which both ends are given, or None if neither is."""
    names = f"{kind}_min", f"{kind}_max"
    if low is None and high is None:
        return None
    if low is None or high is None:
        raise PipelineError("fallback-range-half", names=names)
    if not low < high or not math.isfinite(high - low):
        message = f"{names[0]} ({low}) should be below {names[1]} ({high})"
        raise PipelineError("fallback-range-invalid", reason=message)
    return low, high


def _quantize_placeholders(graph: Graph, low: float, high: float) -> None:
    """Make float placeholders take codes; their readers read a Dequantize."""
    moved: dict[str, Node] = {}
    for node in graph:
        if node.op != "Placeholder":
            continue
        if graph.is_output(node.name) or node.attr("dtype") != "float32":
            kind = "an output" if graph.is_output(node.name) else f"of type {node.attr('dtype')}"
            graph.skip(node, f"it is {kind}, so it takes no codes of floats")
            continue
        graph.replace(node, node.with_attrs(dtype=QUINT8))
        ends = quantized_ops.number_range(graph, node, f"{node.name}_eightbit/", low, high)
        name = graph.unique_name(f"{node.name}_eightbit/dequantize")
        moved[node.name] = quantized_ops.dequantize(name, EightBit(node.name, *ends))
    graph.redirect({name: node.name for name, node in moved.items()})
    for node in moved.values():
        graph.add(node)


def _cut_ranges(graph: Graph) -> None:
    """Limit ranges to the values that pass a following Relu or Relu6."""
    if not any(node.op == "RequantizationRange" for node in graph):
        return
    graph.prune()  # unused nodes must not widen a range
    survives = surviving_ranges(graph)
    for node in graph:
        if node.op != "Requantize" or survives.get(node.name, EVERYTHING) == EVERYTHING:
            continue
        measured = node.data_inputs[3], node.data_inputs[4]
        if graph.producer(measured[0]).op == "RequantizationRange":
            ends = quantized_ops.cut_range(graph, node, measured, *survives[node.name])
            graph.replace(node, node.with_data_inputs(*node.data_inputs[:3], *ends))


def _drop_needless_pairs(graph: Graph) -> None:
    """Connect readers of codes that were dequantized and quantized again to the first codes."""
    moves: dict[str, str] = {}
    for match in graph.match(_PAIR):
        result = quantized_ops.source(graph, match["dequantize"].name)
        same = match["dequantize"] == match["low"] == match["high"]
        codes = (match.root.attr("T"), match.root.attr("mode"), match.root.attr("axis", -1))
        if result is not None and same and codes == (QUINT8, "MIN_FIRST", -1):
            moves |= dict(zip(EightBit.made_by(match.root.name), result, strict=True))
    graph.redirect(moves)


def _hoist_fake_quants(graph: Graph) -> None:
    """Move fake quantizations before the ops that pass their values on."""
    for name in [node.name for node in graph if node.op == FAKE_QUANT]:
        if not graph.skip(graph[name], _fake_quant_reason(graph, graph[name])):
            _hoist(graph, graph[name])


def _fake_quant_reason(graph: Graph, node: Node) -> str | None:
    ends = [graph.constant(tensor) for tensor in node.data_inputs[1:3]]
    low, high = (None if end is None or end.shape else float(end.value) for end in ends)
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if node.attr("num_bits", 8) != 8 or node.attr("narrow_range", False):
        return "it rounds to other than the 256 codes of uint8"
    if low is None or high is None:
        return "its range is not constant"
    return None if low <= 0 <= high and low < high else f"its range {low}...{high} lacks zero"


def _hoist(graph: Graph, fake_quant: Node) -> None:
    """Move a fake quantization before the chain of passing ops that it alone reads."""
    last = first = None
    tensor = fake_quant.data_inputs[0]
    reader = fake_quant
    while split(tensor)[1] == 0:
        node = graph.producer(tensor)
        if node.op not in _ROUNDING_PASSES or not graph.feeds_only(node, reader):
            break
        last, first = last or node, node
        tensor, reader = node.data_inputs[0], node
    if first is None or last is None:
        return
    hoisted = fake_quant.with_data_inputs(tensor, *fake_quant.data_inputs[1:])
    hoisted = graph.add_copy(hoisted, f"{fake_quant.name}_hoisted")
    graph.replace(first, first.with_data_inputs(hoisted.name, *first.data_inputs[1:]))
    graph.replace(fake_quant, graph[last.name])  # under the name that others read
    graph.redirect({f"^{last.name}": f"^{fake_quant.name}"})
    graph.remove(graph[last.name])


def _convert(graph: Graph, node: Node) -> None:
    """Replace a fake quantization by a Requantize to its range and a Dequantize."""
    source, low, high = node.data_inputs[:3]
    name = graph.unique_name(f"{node.name}_eightbit/requantize")
    constant = quantized_ops.float_constant(graph, source)
    if constant is not None and np.isfinite(constant[1]).all():
        ends = [graph.constant(end) for end in (low, high)]
        values = [end.value for end in ends if end is not None]
        codes = quantized_ops.min_first(constant[1], *values)[0]
        result = EightBit(graph.constant_beside(constant[0], codes, name, QUINT8).name, low, high)
    else:
        wide = _wide_source(graph, node)
        if wide is None:
            attrs = {"T": QINT32, "mode": "MIN_FIRST"}
            base = f"{node.name}_eightbit/quantize"
            made = graph.put(base, "QuantizeV2", *node.data_inputs, like=None, **attrs)
            wide = EightBit.made_by(made)
        result = quantized_ops.requantize(graph, name, wide, low, high)
    graph.absorb([node], into=graph[result.codes])
    graph.replace(node, quantized_ops.dequantize(node.name, result))


def _wide_source(graph: Graph, fake_quant: Node) -> EightBit | None:
    """Return the 32-bit result that is rounded for this fake quantization only, or None."""
    dequantize = graph.producer(fake_quant.data_inputs[0])
    result = quantized_ops.source(graph, fake_quant.data_inputs[0])
    if result is None or not graph.feeds_only(dequantize, fake_quant):
        return None
    rounded = graph.producer(result.codes)
    if rounded.op != "Requantize" or not graph.feeds_only(rounded, dequantize):
        return None
    measured = graph.producer(rounded.data_inputs[3]).op == "RequantizationRange"
    return EightBit(*rounded.data_inputs[:3]) if measured else None


def _serves_codes(graph: Graph, node: Node) -> bool:
    """Return whether an op is part of converting floats to codes, or codes to floats."""
    if node.op != "Reshape":
        return False
    source = graph.producer(node.data_inputs[0])
    if source.op == "Dequantize" and source.attr("T") == "qint8":
        return graph.constant(source.data_inputs[0]) is not None  # weights, by channel
    finders = graph.readers(node.name)
    return bool(finders) and all(
        finder.op in ("Min", "Max")
        and all(reader.op == "QuantizeV2" for reader in graph.readers(finder.name))
        for finder in finders
    )


def _constants(graph: Graph, node: Node) -> dict[str, tuple[Node, Array]] | None:
    """Return the float constants that an op reads, or None if 8-bit codes cannot represent one."""
    results = {}
    for tensor in dict.fromkeys(quantized_ops.float_operands(node)):
        if quantized_ops.source(graph, tensor) is None:
            constant = quantized_ops.float_constant(graph, tensor)
            if constant is not None:
                ends = constant[1].min(initial=0), constant[1].max(initial=0)
                if not np.abs(ends).max() < LARGEST:
                    return None
                results[tensor] = constant
    return results


def _quantize(
    graph: Graph,
    node: Node,
    constants: dict[str, tuple[Node, Array]],
    fallback: tuple[float, float] | None,
    shapes: Shapes,
) -> None:
    """Replace a float op by an 8-bit op and a Dequantize."""
    kernel = KERNELS[node.op]
    forms: dict[str, EightBit] = {}
    for tensor in dict.fromkeys(quantized_ops.float_operands(node)):
        name = f"{node.name}_eightbit/{tensor.replace(':', '__port__')}"
        value = quantized_ops.source(graph, tensor)
        if value is None and tensor in constants:
            value = quantized_ops.quantize_constant(graph, name, *constants[tensor])
        forms[tensor] = value or quantized_ops.quantize(graph, name, tensor)
    main = quantized_ops.eight_bit_op(graph, node, forms, shapes)
    main = graph.add(graph.absorb([node], into=main.with_name(node.name)).with_name(main.name))
    result = EightBit.made_by(main.name)
    if kernel.wide:
        if fallback is None:
            ends = quantized_ops.measured_range(graph, f"{main.name}/requant_range", result)
        else:
            ends = quantized_ops.number_range(graph, main, f"{main.name}/fallback_", *fallback)
        result = quantized_ops.requantize(graph, f"{main.name}/requantize", result, *ends)
    graph.replace(node, quantized_ops.dequantize(node.name, result))
