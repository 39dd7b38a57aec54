"""What deploykit means to do otherwise: each is a rewrite of the original's graph, with its reason.

A case names those that it needs; after them both graphs must be equal. The numeric proof is that
the case also runs the original's graph as it came and deploykit's, and compares what they compute.
A rewrite that changes nothing fails its case, so no deviation is named without need.

Wherever deploykit goes on where the original stopped, its own transform does the rest of the way:
from the original's graph it must arrive where it arrives from the source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.int8.quantized_ops import KERNELS, QUINT8, SMALLEST_RANGE
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import with_op
from deploykit.transforms.ir.tensors import DType
from tests.support import run, transform

# What the original writes without some of their attributes; those that it has are complete.
ATTRIBUTES_ARE_KEPT = {
    "Conv2D", "DepthwiseConv2dNative", "QuantizedReshape", "QuantizedResizeBilinear"
}  # fmt: skip


@dataclass(frozen=True)
class Deviation:
    """Why deploykit differs, and the original's graph brought to the form of deploykit's.

    With `renames` the names of inner nodes differ too, in ways that no rule brings together; with
    `rounds` the values of constants do, by no more than the tolerance of the case.
    """

    reason: str
    rewrite: Callable[[Graph], Graph] | None = None
    renames: bool = False
    rounds: bool = False


def _pruned(graph: Graph) -> Graph:
    return transform(graph, "sort_by_execution_order")


def _named_as_before(graph: Graph) -> Graph:
    """Return the graph with `<node>/_3__cf__3` under the name of the node that was folded."""
    names = {n.name: n.name.rsplit("/_", 1)[0] for n in graph if "__cf__" in n.name}
    result = graph.copy()
    for old, new in names.items():
        if new not in result:
            result.add(graph[old].with_name(new))
            result.redirect({old: new, f"^{old}": f"^{new}"})
            result.remove(result[old])
    return result


def _with_constants_that_wait_for_nothing(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        if node.op == "Const":
            result.replace(node, replace(node, inputs=()))
    return result


def _without_recorded_shapes(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        result.replace(node, node.with_attrs(_output_shapes=None))
    return result


def _with_ranges_up_to_zero(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        if node.name.endswith("_quantized_max") and 0 < node.value < 1e-37:
            result.replace(node, node.with_attrs(value=np.array(0, np.float32)))
    return result


def _with_attributes_of_its_op(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        result.replace(node, with_op(node, node.op))
    return result


def _without_prints_of_resources(graph: Graph) -> Graph:
    result = graph.copy()
    prints = [node for node in graph if node.op == "Print" and node.attr("T") == "resource"]
    result.redirect({node.name: node.inputs[0] for node in prints})
    for node in prints:
        result.remove(node)
    return result


def _with_lookups_that_wait(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        if node.op == "LookupTableFind":
            table = graph.readers(node.inputs[0])
            filling = [f"^{reader.name}" for reader in table if reader.op == "InitializeTable"]
            result.replace(node, node.with_control_inputs(*filling))
    return result


def _restored(graph: Graph) -> Graph:
    """Return the graph with what TensorFlow computes of each Dequantize in its place."""
    names = [node.name for node in graph if node.op == "Dequantize"]
    values = run(Graph(graph, graph.inputs, names), {})
    result = graph.copy()
    for name, value in zip(names, values, strict=True):
        result.replace(graph[name], Node.constant(name, value))
    return result


def _with_constants_in_8_bits(graph: Graph) -> Graph:
    """Return the graph with what TensorFlow computes of each constant's QuantizeV2 in its place."""
    found = [n for n in graph if n.op == "QuantizeV2" and graph.constant(n.inputs[0]) is not None]
    made = [f"{node.name}:{port}" for node in found for port in range(3)]
    # the range goes under the names of Min and Max
    names = [name for node in found for name in (node.name, *node.data_inputs[1:])]
    values = run(Graph(graph, graph.inputs, made), {})
    result = graph.copy()
    for name, value in zip(names, values, strict=True):
        dtype = QUINT8 if value.dtype == np.uint8 else None
        result.replace(result[name], Node.constant(name, value, dtype))
    result.redirect({a: b for a, b in zip(made, names, strict=True) if not a.endswith(":0")})
    return _pruned(result)


def _with_the_range_of_zeros(graph: Graph) -> Graph:
    result = graph.copy()
    for node in graph:
        if node.op == "Const" and node.name.endswith("/max") and node.value == np.float32(0.01):
            result.replace(node, node.with_attrs(value=np.array(SMALLEST_RANGE)))
    return result


def _with_ranges_that_survive(graph: Graph) -> Graph:
    ignored = ", ".join(f"ignore_op={op}" for op in KERNELS)  # what was left float stays so
    return transform(graph, f"quantize_nodes({ignored})")


def _with_attributes_that_are_kept(graph: Graph) -> Graph:
    complete = transform(graph, "add_default_attributes")
    result = graph.copy()
    for node in graph:
        if node.op in ATTRIBUTES_ARE_KEPT:
            result.replace(node, complete[node.name])
    return result


def with_wide_ranges(graph: Graph) -> Graph:
    """Return the original's graph where each measured range has a width, as in all of deploykit's.

    The original's is without one where all values are equal and below zero, and its graph then
    gives other numbers or dies.
    """
    result = graph.copy()
    for node in graph:
        if node.op == "Requantize":
            found = graph.producer(node.data_inputs[4])
            if found.name.endswith("/requant_range"):
                ends = (found.name, f"{found.name}/max")
                least = Node.constant(f"{found.name}/least_max", np.array(SMALLEST_RANGE))
                result.add(least.with_control_inputs(f"^{found.name}"))
                high = Node(ends[1], "Maximum", (f"{found.name}:1", least.name))
                result.add(high.with_attrs(T=DType("float32")))
                result.replace(node, node.with_data_inputs(*node.data_inputs[:3], *ends))
    return result


DEVIATIONS = {
    "pruned": Deviation(
        "what no output needs is dropped after each step, and so are control edges from constants,"
        " which order nothing",
        _pruned,
    ),
    "names of folded nodes": Deviation(
        "a folded node keeps its name; the original numbers them in an order of its own",
        _named_as_before,
    ),
    "names behind Identity": Deviation(
        "what reads a constant through an Identity reads the constant itself, so that no weights"
        " are copied; the original writes them again under a new name",
        renames=True,
    ),
    "constants wait for nothing": Deviation(
        "a folded constant is the same at any time; the original lets it wait for its source",
        _with_constants_that_wait_for_nothing,
    ),
    "recorded shapes": Deviation(
        "clear_output_shapes clears them everywhere; the original leaves those of its inputs",
        _without_recorded_shapes,
    ),
    "constant outputs": Deviation(
        "an output that is constant is folded as well",
        lambda graph: transform(graph, "fold_constants"),
    ),
    "more batch norms": Deviation(
        "a shift after the scale becomes the bias of the layer, and so do batch norms of all forms;"
        " the original folds a scale alone",
        lambda graph: transform(graph, "fold_batch_norms"),
    ),
    "names of folded layers": Deviation(
        "of layer, scale and shift the layer keeps its name and the bias takes the last one; the"
        " original, which knows no shift, gave the layer the name of the scale",
        renames=True,
    ),
    "which of equals stays": Deviation(
        "the first of equal nodes stays; with the original it is up to the order of hash values",
        renames=True,
    ),
    "outputs stand for their equals": Deviation(
        "an output and a node that equals it are one too, under the name of the output",
        lambda graph: transform(graph, "merge_duplicate_nodes"),
    ),
    "range up to 0": Deviation(
        "the range of weights below zero ends at 0, not at the smallest float above it",
        _with_ranges_up_to_zero,
    ),
    "attributes that are kept": Deviation(
        "a layer keeps all its attributes; the original writes some, and leaves out the others even"
        " where they are not the defaults",
        _with_attributes_that_are_kept,
    ),
    "constants in 8 bits": Deviation(
        "constants are quantized once, by the transform; the original keeps them as floats, with"
        " the nodes that find their range and quantize them at each run",
        _with_constants_in_8_bits,
    ),
    "AddV2 and ConcatV2": Deviation(
        "these are what TensorFlow has written for Add and Concat since 1.15, and become 8-bit ops"
        " as well",
        lambda graph: transform(graph, "quantize_nodes"),
    ),
    "ranges that survive": Deviation(
        "a range ends where a Relu or Relu6 further on cuts all values off; the original spends"
        " codes on what is cut, and ends further from the floats",
        _with_ranges_that_survive,
    ),
    "range of zeros": Deviation(
        "constants near zero keep a range of their own; QuantizeV2, which the original runs on"
        " them, makes it 0.01 wide at least",
        _with_the_range_of_zeros,
    ),
    "zero and both ends stay": Deviation(
        "rounded weights are multiples of one step, as many as asked for, so that zero stays zero"
        " and the range stays as it was; the original's lie in the middle between two of its steps,"
        " one more of them, and the highest is above the maximum",
        rounds=True,
    ),
    "attributes of an op": Deviation(
        "a node that becomes another op loses the attributes that this one does not have",
        _with_attributes_of_its_op,
    ),
    "nothing to print": Deviation(
        "a resource is not printed, for it has no values", _without_prints_of_resources
    ),
    "lookups wait": Deviation(
        "a lookup waits until its table is filled, so that nothing has to be run before",
        _with_lookups_that_wait,
    ),
    "one value": Deviation(
        "a Const of one value stays one: a file stores that value once, in less than 8 bits each",
        _restored,
    ),
    "other roles": Deviation(
        "only weights of layers and tables of rows become 8 bits; the original stores whatever is"
        " large, and what is added or divided by has other errors",
        _restored,
        rounds=True,
    ),
}
