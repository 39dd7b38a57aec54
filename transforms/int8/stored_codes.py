"""How a graph that `quantize_codes` wrote says what is in 8 bits, and the way back to floats."""

from dataclasses import dataclass, field

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.affine_codes import CODES, Form, bytes_of
from deploykit.transforms.int8.fake_quant.planner import plan_fake_quants
from deploykit.transforms.int8.openvino_workarounds import taken_back
from deploykit.transforms.int8.plan import Plan, Planner
from deploykit.transforms.int8.ranges import Ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import LAYER_OPS, channel_axes, weights_of
from deploykit.transforms.shapes.sizes import Shape

ROUNDING = "FakeQuantWithMinMaxVars"
ROUNDS = "_rounds"
"""The attribute of nodes that came with 8-bit layers: models have roundings of their own."""
OF_A_LAYER, FROM_FLOATS, SHIFTED, WEIGHTS = "made", "read", "shifted", "weights"
"""Its values: what an 8-bit layer makes, what is made in float and read by one, the same where zero
has no code, and the weights that codes stand for."""
APART = "apart"
"""As well: what stands before and behind a rounding, so that it is not fused."""
SIGNED = "_signed"
"""The attribute of a rounding whose codes are -128 to 127, without an offset."""
_CLOSE = 1e-3  # of a step: numbers are stored as float32


def holds_codes(graph: Graph) -> bool:
    """Say whether layers of a graph compute in 8 bits by codes, as `quantize_codes` writes them."""
    return any(node.attr(ROUNDS) for node in graph if node.op in (ROUNDING, "Mul"))


@dataclass
class StoredCodes:
    """What the codes of a graph say. Tensors are named as in the float graph."""

    weights: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """By layer: codes and steps."""
    reads: dict[tuple[str, str], Form] = field(default_factory=dict)
    """By node and what it reads: in which form it does, where that is made in float."""
    made: dict[str, Form] = field(default_factory=dict)
    """By tensor that an 8-bit layer makes: in which form."""
    in_bias: dict[str, float] = field(default_factory=dict)
    """By layer: what of the form's offset its bias has already."""


def taken_out(graph: Graph) -> tuple[Plan, StoredCodes]:
    """Make a graph in codes a float graph again; return what was in 8 bits, and its codes.

    Its weights are what the codes stand for. GraphError: it is in no codes, or they say what
    `quantize_codes` does not write.
    """
    if not holds_codes(graph):
        raise GraphError("stored-codes-missing")
    is_stated = not any(node.op == ROUNDING and node.attr(ROUNDS) for node in graph)
    result = _Taking(graph).run()
    if is_stated:  # fake-quants of a quantization-aware model round its activations
        taken_back(graph)
        plan = plan_fake_quants(graph, result.weights, {})
        _check_layers(graph, plan, result)
        return plan, result
    plan = _StoredPlanner(graph, result).run()
    _check(graph, plan, result)
    return plan, result


class _Taking:
    """Takes the codes out of a graph and notes what they say."""

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
        """Let those that read a rounded tensor read what is made in float."""
        graph, form, source, gone = self._graph, self._form(node), node.data_inputs[0], node
        in_bias = 0.0
        if node.attr(ROUNDS) == SHIFTED:
            above = graph[source]
            readers = graph.readers(node.name)
            if len(readers) != 1 or {above.op, readers[0].op} != {"Sub"}:
                raise _unknown(node, "it stands between two differences")
            gone, source = readers[0], above.data_inputs[0]
            form = Form(False, form.peak, self._number(above))
            in_bias = form.offset + self._number(gone)
        used = {gone.name: None, node.name: None}
        if (before := graph.producer(source)).attr(ROUNDS) == APART:
            (gone,) = readers = graph.readers(gone.name)
            if before.op != "ExpandDims" or gone.op != "Squeeze" or len(readers) != 1:
                raise _unknown(node, "it stands between an ExpandDims and a Squeeze")
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
        """Give a layer's result its own name again."""
        graph, form = self._graph, self._form(node)
        made = graph[node.data_inputs[0]]
        if not graph.feeds_only(made, node):
            raise _unknown(node, f"nobody else reads '{made.name}'")
        waits = (*made.control_inputs, *node.control_inputs)
        graph.replace(node, made.with_name(node.name).with_control_inputs(*waits))
        graph.remove(graph[made.name])
        self._found.made[node.name] = form

    def _take_weights(self, layer: Node) -> None:
        """Give a layer the floats that its codes stand for."""
        graph = self._graph
        mul = graph.producer(layer.data_inputs[1])
        if mul.attr(ROUNDS) != WEIGHTS:
            return
        cast = graph.producer(mul.data_inputs[0])
        codes = graph.constant(cast.data_inputs[0]) if cast.op == "Cast" else None
        steps = graph.constant(mul.data_inputs[1])
        if codes is None or steps is None or codes.value.dtype != np.int8:
            raise _unknown(mul, "int8 constants are made floats and multiplied with steps")
        floats: Array = codes.value * steps.value
        const = graph.constant_beside(codes, floats, f"{layer.name}/weights/restored")
        graph.replace(layer, layer.with_data_inputs(layer.data_inputs[0], const.name))
        self._found.weights[layer.name] = (codes.value, steps.value.reshape(-1))

    def _form(self, node: Node) -> Form:
        ends = [self._graph.constant(tensor) for tensor in node.data_inputs[1:]]
        values = [float(end.value) for end in ends if end is not None and not end.shape]
        if len(values) != 2 or not values[0] < values[1] or node.attr("num_bits", 8) != 8:
            raise _unknown(node, "it rounds to 8 bits between two constants")
        low, high = values
        if node.attr(SIGNED, False) or node.attr("narrow_range", False):  # older files
            return Form(True, high)
        return Form(False, high - low, low)

    def _number(self, node: Node) -> float:
        const = self._graph.constant(node.data_inputs[1])
        if const is None or const.shape:
            raise _unknown(node, "it takes a constant number away")
        return float(const.value)


class _StoredPlanner(Planner):
    """Plans what is in codes, in the forms that they have."""

    def __init__(self, graph: Graph, stored_codes: StoredCodes) -> None:
        others = {node.name for node in graph if node.op in LAYER_OPS} - stored_codes.weights.keys()
        super().__init__(graph, Ranges("", 1, {}), others)
        self._found = stored_codes

    def shapes(self, layer: Node) -> list[Shape | None]:
        """Return the shapes of what a layer reads: it has been there, so has no groups."""
        weights = weights_of(self.graph, layer)
        assert weights is not None
        axis = 1 if channel_axes(layer) == (0,) else -2
        return [(weights.shape[axis],), weights.shape]

    def form_made(self, tensor: str) -> Form | str:
        """Return the form that a layer's result has."""
        return self._found.made.get(tensor, f"'{tensor}' has no codes")

    def form_of_product(self, chain: Chain) -> Form | None:
        """Return the form of a MatMul's result, or None for floats."""
        return self._found.made.get(chain.nodes[-1].name)

    def form_of_float(self, layer: Node, source: str) -> Form | str:
        """Return the form in which a layer reads what is made in float."""
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
    """Raise GraphError where the plan is not what the codes said."""
    _check_layers(graph, plan, stored_codes)
    for layer in stored_codes.weights:
        source = graph[layer].data_inputs[0]
        said = stored_codes.reads.get((layer, source))
        if said is not None and not _are_close(said, plan.reads[layer]):
            raise _unknown(graph[layer], f"'{source}' has the same codes for all that read it")
    ends = {chain.nodes[-1].name for chain in plan.chains.values()}
    for tensor, form in plan.forms.items():
        said = stored_codes.made.get(tensor)
        if tensor in ends and (said is None or not _are_close(said, form)):
            raise _unknown(graph[tensor], "what is handed on has the same codes as what it is from")
    for tensor in stored_codes.made.keys() - (ends & plan.forms.keys()):
        raise _unknown(graph[tensor], "a layer in 8 bits ends there")
    sums = {(node.name, chain.summand) for chain in plan.chains.values() for node in chain.nodes}
    for reader, source in stored_codes.reads:
        if reader not in plan.chains and (reader, source) not in sums:
            raise _unknown(graph[reader], f"a layer in 8 bits reads the codes of '{source}'")


def _check_layers(graph: Graph, plan: Plan, stored_codes: StoredCodes) -> None:
    """Raise GraphError where a layer in codes has no kernel."""
    for layer in stored_codes.weights:
        if layer not in plan.chains:
            why = plan.reasons.get(layer, "it is not reached")
            raise _unknown(graph[layer], f"a layer in codes has a kernel, but {why}")


def _are_close(one: Form, other: Form) -> bool:
    differences = one.peak - other.peak, one.offset - other.offset
    return one.signed == other.signed and max(map(abs, differences)) <= _CLOSE * other.step


def _unknown(node: Node, expected: str) -> GraphError:
    return GraphError("stored-codes-unknown", node=node.name, expected=expected)
