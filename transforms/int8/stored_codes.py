"""The attributes with which `quantize_codes` marks int8 layers, and the conversion to floats."""

from dataclasses import dataclass, field

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.affine_codes import CODES, Form, bytes_of
from deploykit.transforms.int8.fake_quant_planner import FakeQuantPlanner
from deploykit.transforms.int8.openvino_workarounds import taken_back
from deploykit.transforms.int8.plan import Plan, Planner
from deploykit.transforms.int8.ranges import Ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import LAYER_OPS, channel_axes, weights_of
from deploykit.transforms.shapes.sizes import Shape, require

ROUNDING = "FakeQuantWithMinMaxVars"
ROUNDS = "_rounds"
"""Attribute of nodes that `quantize_codes` added, as models may contain other roundings."""
OF_A_LAYER, FROM_FLOATS, SHIFTED, WEIGHTS = "made", "read", "shifted", "weights"
"""Its values: the result of an int8 layer; a float tensor that one reads; the same if zero has no
code; and the weights that codes represent."""
APART = "apart"
"""A further value: the nodes around a rounding that prevent fusing it."""
SIGNED = "_signed"
"""Attribute of a rounding whose codes are -128 to 127, without an offset."""
_CLOSE = 1e-3  # of a step: numbers are stored as float32


def holds_codes(graph: Graph) -> bool:
    """Return whether a graph has int8 layers with codes as `quantize_codes` writes them."""
    return any(node.attr(ROUNDS) for node in graph if node.op in (ROUNDING, "Mul"))


@dataclass
class StoredCodes:
    """The codes of a graph. Tensors have their names in the float graph."""

    weights: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """For each layer: codes and steps."""
    reads: dict[tuple[str, str], Form] = field(default_factory=dict)
    """For each node and float input of it: the form in which it reads the input."""
    made: dict[str, Form] = field(default_factory=dict)
    """For each result of an int8 layer: its form."""
    in_bias: dict[str, float] = field(default_factory=dict)
    """For each layer: the part of the form's offset that its bias contains already."""


def taken_out(graph: Graph) -> tuple[Plan, StoredCodes]:
    """Convert a graph of codes to a float graph; return the int8 plan, and the codes.

    The weights become the values of their codes. GraphError: the graph contains no codes, or codes
    that `quantize_codes` does not write.
    """
    if not holds_codes(graph):
        raise GraphError("stored-codes-missing")
    is_stated = not any(node.op == ROUNDING and node.attr(ROUNDS) for node in graph)
    result = _Taking(graph).run()
    if is_stated:  # fake-quants of a quantization-aware model round its activations
        taken_back(graph)
        plan = FakeQuantPlanner(graph, result.weights, {}).run()
        _check_layers(graph, plan, result)
        return plan, result
    plan = _StoredPlanner(graph, result).run()
    _check(graph, plan, result)
    return plan, result


class _Taking:
    """Removes the codes from a graph and records them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found = StoredCodes()

    def run(self) -> StoredCodes:
        roundings = [node for node in self._graph if node.op == ROUNDING and node.attr(ROUNDS)]
        for node in roundings:
            if node.attr(ROUNDS) != OF_A_LAYER:
                self._take_read(node)
        for node in roundings:
            if node.attr(ROUNDS) == OF_A_LAYER:
                self._take_made(node)
        for node in tuple(self._graph):
            if node.op in LAYER_OPS:
                self._take_weights(node)
        return self._found

    def _take_read(self, node: Node) -> None:
        """Connect the readers of a rounded tensor to the float tensor."""
        graph, form, source, gone = self._graph, self._form(node), node.data_inputs[0], node
        in_bias = 0.0
        if node.attr(ROUNDS) == SHIFTED:
            above = graph[source]
            readers = graph.readers(node.name)
            if len(readers) != 1 or {above.op, readers[0].op} != {"Sub"}:
                raise _unknown(node, "it is between two Sub nodes")
            gone, source = readers[0], above.data_inputs[0]
            form = Form(False, form.peak, self._number(above))
            in_bias = form.offset + self._number(gone)
        used = {gone.name: None, node.name: None}
        if (before := graph.producer(source)).attr(ROUNDS) == APART:
            (gone,) = readers = graph.readers(gone.name)
            if before.op != "ExpandDims" or gone.op != "Squeeze" or len(readers) != 1:
                raise _unknown(node, "it is between an ExpandDims and a Squeeze")
            source = before.data_inputs[0]
            used = {gone.name: None, **used}
        for reader in graph.readers(gone.name):
            self._found.reads[reader.name, source] = form
            if in_bias:
                self._found.in_bias[reader.name] = in_bias
        graph.redirect({gone.name: source})
        for item in used:
            graph.remove(graph[item])

    def _take_made(self, node: Node) -> None:
        """Give a layer's result its original name."""
        graph, form = self._graph, self._form(node)
        made = graph[node.data_inputs[0]]
        if not graph.feeds_only(made, node):
            raise _unknown(node, f"'{made.name}' has no other reader")
        waits = (*made.control_inputs, *node.control_inputs)
        graph.replace(node, made.with_name(node.name).with_control_inputs(*waits))
        graph.remove(graph[made.name])
        self._found.made[node.name] = form

    def _take_weights(self, layer: Node) -> None:
        """Give a layer the floats that its codes represent."""
        graph = self._graph
        mul = graph.producer(layer.data_inputs[1])
        if mul.attr(ROUNDS) != WEIGHTS:
            return
        cast = graph.producer(mul.data_inputs[0])
        codes = graph.constant(cast.data_inputs[0]) if cast.op == "Cast" else None
        steps = graph.constant(mul.data_inputs[1])
        if codes is None or steps is None or codes.value.dtype != np.int8:
            raise _unknown(mul, "int8 constants are cast to floats and multiplied by steps")
        floats: Array = codes.value * steps.value
        const = graph.constant_beside(codes, floats, f"{layer.name}/weights/restored")
        graph.replace(layer, layer.with_data_inputs(layer.data_inputs[0], const.name))
        self._found.weights[layer.name] = (codes.value, steps.value.reshape(-1))

    def _form(self, node: Node) -> Form:
        ends = [self._graph.constant(tensor) for tensor in node.data_inputs[1:]]
        values = [float(end.value) for end in ends if end is not None and not end.shape]
        if len(values) != 2 or not values[0] < values[1] or node.attr("num_bits", 8) != 8:
            raise _unknown(node, "it rounds to int8 between two constants")
        low, high = values
        if node.attr(SIGNED, False) or node.attr("narrow_range", False):  # older files
            return Form(True, high)
        return Form(False, high - low, low)

    def _number(self, node: Node) -> float:
        const = self._graph.constant(node.data_inputs[1])
        if const is None or const.shape:
            raise _unknown(node, "it subtracts a constant number")
        return float(const.value)


class _StoredPlanner(Planner):
    """Plans layers with codes, in the forms of the codes."""

    def __init__(self, graph: Graph, stored_codes: StoredCodes) -> None:
        others = {node.name for node in graph if node.op in LAYER_OPS} - stored_codes.weights.keys()
        super().__init__(graph, Ranges("", 1, {}), others)
        self._found = stored_codes

    def shapes(self, layer: Node) -> list[Shape | None]:
        """Return the shapes of a layer's inputs; it had codes before, so it has no groups."""
        shape = require(weights_of(self.graph, layer)).shape
        return [(shape[1 if channel_axes(layer) == (0,) else -2],), shape]

    def form_made(self, tensor: str) -> Form | str:
        """Return the form of a layer's result."""
        return self._found.made.get(tensor, f"'{tensor}' has no codes")

    def form_of_product(self, chain: Chain) -> Form | None:
        """Return the form of a MatMul's result, or None for floats."""
        return self._found.made.get(chain.nodes[-1].name)

    def form_of_float(self, layer: Node, source: str) -> Form | str:
        """Return the form in which a layer reads a float tensor."""
        form = self._found.reads.get((layer.name, source))
        if form is None:
            return f"'{source}' has no codes"
        pixels = bytes_of(self.graph, source)
        if pixels is not None and not form.signed:
            exact = Form(False, CODES * pixels.scale, pixels.offset)
            if _are_close(exact, form):
                form = exact
                self.plan.bytes[source, form] = pixels.tensor
        zeros = self.zeros_of(layer, source)
        if form.offset and zeros is not None:
            self.put_around(layer, zeros)
        return form


def _check(graph: Graph, plan: Plan, stored_codes: StoredCodes) -> None:
    """Raise GraphError if the plan differs from the codes."""
    _check_layers(graph, plan, stored_codes)
    for layer in stored_codes.weights:
        source = graph[layer].data_inputs[0]
        stored = stored_codes.reads.get((layer, source))
        if stored is not None and not _are_close(stored, plan.reads[layer]):
            raise _unknown(graph[layer], f"'{source}' has the same codes for all its readers")
    ends = {chain.nodes[-1].name for chain in plan.chains.values()}
    for tensor, form in plan.forms.items():
        stored = stored_codes.made.get(tensor)
        if tensor in ends and (stored is None or not _are_close(stored, form)):
            raise _unknown(graph[tensor], "a tensor that is passed on has the codes of its source")
    for tensor in stored_codes.made.keys() - (ends & plan.forms.keys()):
        raise _unknown(graph[tensor], "an int8 layer ends there")
    sums = {(node.name, chain.summand) for chain in plan.chains.values() for node in chain.nodes}
    for reader, source in stored_codes.reads:
        if reader not in plan.chains and (reader, source) not in sums:
            raise _unknown(graph[reader], f"an int8 layer reads the codes of '{source}'")


def _check_layers(graph: Graph, plan: Plan, stored_codes: StoredCodes) -> None:
    for layer in stored_codes.weights:
        if layer not in plan.chains:
            why = plan.reasons.get(layer, "it is not reached")
            raise _unknown(graph[layer], f"a layer in codes has a kernel, but {why}")


def _are_close(one: Form, other: Form) -> bool:
    differences = one.peak - other.peak, one.offset - other.offset
    return one.signed == other.signed and max(map(abs, differences)) <= _CLOSE * other.step


def _unknown(node: Node, expected: str) -> GraphError:
    return GraphError("stored-codes-unknown", node=node.name, expected=expected)
