"""The int8 plan of a graph: which layers are int8, and the range of each int8 tensor."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.affine_codes import CODES, Form, bytes_of, form_of, with_offset
from deploykit.transforms.int8.ranges import Ranges, TensorGroups, TensorRange
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.layers.fused_ops import ADD_OPS, Chain, chain, shape_comparison, unfit
from deploykit.transforms.layers.layers import LAYER_OPS, weights_of
from deploykit.transforms.layers.padding import ZerosByAxis, zeros_around
from deploykit.transforms.shapes.sizes import Shape, require
from deploykit.transforms.shapes.static_shapes import Shapes

OPS = {
    "Conv2D": "_FusedQuantizedConv2D",
    "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D",
    "MatMul": "_QuantizedMatMul",
}
# Activations that the kernel of each layer can include.
ACTIVATIONS = {
    "Conv2D": frozenset({"Relu", "Relu6"}),
    "DepthwiseConv2dNative": frozenset({"Relu", "Relu6"}),
    "MatMul": frozenset({"Gelu", "Relu"}),
}
PASSING_OPS = frozenset(
    {"ConcatV2", "ExpandDims", "Identity", "MaxPool", "Pad", "Reshape", "Squeeze"}
)
"""Ops whose result has the codes of their input.

QuantizedAvgPool is not included: without oneDNN it truncates, by 0.43 of a code on average, and
takes longer than a float pool between conversions.
"""
_RENAMING = frozenset({"ExpandDims", "Identity", "Reshape", "Squeeze"})
"""Ops that pass any codes on unchanged."""
_SAME_MEMORY = _RENAMING | {"Pad"}
"""Ops that may return the memory of their input; Pad does if it adds nothing."""

_NEAR = 1e-2  # of a limit: one code of rounding in ranges with an offset


@dataclass
class Plan:
    """The int8 layers and tensors of a graph."""

    chains: dict[str, Chain] = field(default_factory=dict)
    """For each layer: the nodes that its kernel replaces."""
    reads: dict[str, Form] = field(default_factory=dict)
    """For each layer: the form of its input."""
    zeros: dict[str, ZerosByAxis] = field(default_factory=dict)
    """For each layer: the zero padding of its input, if code 0 does not represent it."""
    bytes: dict[tuple[str, Form], str] = field(default_factory=dict)
    """The uint8 tensor for each float tensor computed from one, and the form of its codes."""
    sums: dict[str, Form] = field(default_factory=dict)
    """For each layer with a sum: the form of the summand."""
    forms: dict[str, Form] = field(default_factory=dict)
    """Forms of tensors that chains and passing ops return in int8."""
    passing: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    """For each layer that is kept in float32: the reason."""
    has_fake_quants: bool = False
    """Whether fake-quants of the graph itself round the inputs and outputs of layers."""


def plan(graph: Graph, ranges: Ranges, keep_float: Iterable[str] = ()) -> Plan:
    """Return the int8 plan of a graph.

    GraphError: the ranges belong to another graph, a layer's weights contain NaN or Inf, or
    `keep_float` names an unknown node.
    """
    listed = {graph[name].name for name in keep_float}
    known = set(map(producer_name, ranges.tensors))
    computed = {node.name for node in graph if node.op not in FEEDABLE_OPS}
    if known.isdisjoint(computed) and any(node.op in LAYER_OPS for node in graph):
        raise GraphError("ranges-of-other-graph")
    return Planner(graph, ranges, listed).run()


class Planner:
    """One pass in execution order; the decisions for a node's inputs are known by then."""

    keeps_offset = _RENAMING
    """Passing ops that support codes with an offset."""

    def __init__(self, graph: Graph, ranges: Ranges, listed: Collection[str]) -> None:
        self.plan = Plan()
        self.graph = graph
        self._ranges = ranges
        self._listed = listed
        self._same_shape: Callable[[str, str], bool] | None = None
        self._known: Shapes | None = None
        self._place = {name: place for place, name in enumerate(graph.order())}
        self._behind_layers = graph.descendants(n.name for n in graph if n.op in LAYER_OPS)
        self._behind: defaultdict[str, list[Node]] = defaultdict(list)
        """For each sum: the layers that may include it."""
        self._quantized: dict[str, Form] = {}
        """For each float tensor that an int8 layer reads: its form."""
        self._peaks = TensorGroups()
        """Tensors that share a peak."""

    def run(self) -> Plan:
        """Return the plan of the whole graph."""
        for name in self.graph.order():
            self._take(self.graph[name])
        self._share_peaks()
        return self.plan

    def _take(self, node: Node) -> None:
        """Plan a node. A layer whose result is added to another tensor is planned at the sum.

        The other tensor is planned by then, whichever of the two runs first.
        """
        if node.op in LAYER_OPS:
            if reason := self._unfit(node):
                self.plan.reasons[node.name] = reason
            elif add := self._sum_behind(node):
                self._behind[add].append(node)
            else:
                self._take_layer(node)
        elif node.op in PASSING_OPS:
            self._take_passing(node)
        elif node.name in self._behind:  # of two layers, the first one provides the summand
            for layer in sorted(self._behind[node.name], key=self._has_sign):
                self._take_layer(layer)

    def _sum_behind(self, layer: Node) -> str:
        """Return the sum that a layer's kernel may include, or an empty string."""
        result = self._chain(layer, lambda _, __: True)
        return _sum_of(result).name if result.summand else ""

    def _has_sign(self, layer: Node) -> bool:
        """Return whether a layer, without the sum after it, would need signed codes.

        A summand must be unsigned.
        """
        form = self.form_made(self._chain(layer).nodes[-1].name)
        return isinstance(form, str) or form.signed

    def _take_layer(self, layer: Node) -> None:
        if reason := self._planned(layer):
            self.plan.reasons[layer.name] = reason

    def _planned(self, layer: Node) -> str:
        """Plan an int8 layer, or return the reason why it is kept in float32."""
        source = layer.data_inputs[0]
        reads = self._form_of_codes(layer, source) or self.form_of_float(layer, source)
        if isinstance(reads, str):
            return reads
        value = self._chain(layer, self._is_eight_bit_summand)
        if layer.op == "MatMul":
            value = self._with_end(value)
            made: Form | str | None = self.form_of_product(value)
        else:
            made = self.form_made(value.nodes[-1].name)
            can_add = not isinstance(made, str) and not made.signed
            if value.summand and not (can_add and self._can_be_overwritten(value)):
                value = self._chain(layer)
                made = self.form_made(value.nodes[-1].name)
        if isinstance(made, str):
            return made
        if made is not None:
            self.plan.forms[value.nodes[-1].name] = made
            self._peaks.add(value.nodes[-1].name)
        self.plan.chains[layer.name], self.plan.reads[layer.name] = value, reads
        if source not in self.plan.forms and (source, reads) not in self.plan.bytes:
            self._quantized[source] = reads  # a sum must not overwrite the caller's bytes
        if summand := self._summand(value.summand):
            self.plan.sums[layer.name] = summand
        return ""

    def _take_passing(self, node: Node) -> None:
        """Plan an op that passes codes on, if all its inputs are int8."""
        tensors = node.data_inputs[:-1] if node.op == "ConcatV2" else node.data_inputs[:1]
        forms = [self.plan.forms[tensor] for tensor in tensors if tensor in self.plan.forms]
        is_whole = len(forms) == len(tensors) and not self.graph.is_input(node.name)
        if not is_whole or not _passes(self.graph, node):
            return
        signed = {form.signed for form in forms}
        if signed != {False} and (node.op not in _SAME_MEMORY or len(signed) > 1):
            return
        if node.op not in self.keeps_offset and any(form.offset for form in forms):
            return
        self.plan.passing.add(node.name)
        self.plan.forms[node.name] = forms[0]
        self._peaks.add(node.name)
        for tensor in tensors:
            self._peaks.join(tensor, node.name)

    def _share_peaks(self) -> None:
        """Give tensors that share codes a common peak: the largest of them."""
        plan, peaks = self.plan, dict[str, float]()
        for tensor, form in plan.forms.items():
            leader = self._peaks.leader(tensor)
            peaks[leader] = max(form.peak, peaks.get(leader, 0.0))
        for tensor, form in plan.forms.items():
            plan.forms[tensor] = replace(form, peak=peaks[self._peaks.leader(tensor)])
        for layer in plan.reads:
            node = self.graph[layer]
            read = self._form_of_codes(node, node.data_inputs[0])
            plan.reads[layer] = read or plan.reads[layer]
        for layer, form in plan.sums.items():
            plan.sums[layer] = plan.forms.get(plan.chains[layer].summand, form)

    def _unfit(self, layer: Node) -> str:
        if layer.name in self._listed:
            return "it is listed in keep_float"
        if layer.op not in ACTIVATIONS:
            return f"there is no 8-bit kernel for {layer.op}"
        op = OPS[layer.op]
        if reason := unfit(self.graph, op, layer) or limit(op, layer, self.shapes(layer)):
            return reason
        weights = weights_of(self.graph, layer)
        if weights is not None and not np.isfinite(weights.value).all():
            raise GraphError("weights-nan", node=layer.name, hint="")
        return ""

    def shapes(self, layer: Node) -> list[Shape | None]:
        """Return the shapes of a layer's inputs; the ranges may supply the number of channels."""
        source, weights = layer.data_inputs[0], weights_of(self.graph, layer)
        tensor = self._ranges.tensors.get(normal(source))
        if tensor is not None and tensor.channel_mean:
            image: Shape | None = (len(tensor.channel_mean),)
        else:
            image = self._shape(source)
        return [image, None if weights is None else weights.shape]

    def _shape(self, tensor: str) -> Shape | None:
        if self._known is None:
            self._known = Shapes(self.graph)
        return self._known.shape(tensor)

    def _form_of_codes(self, layer: Node, source: str) -> Form | None:
        """Return the form of codes that a layer can read."""
        form = self.plan.forms.get(source)
        if form is None or not form.offset:
            return form
        zeros = self.zeros_of(layer, source)
        if zeros is None:
            return None
        self.put_around(layer, zeros)
        return form

    def put_around(self, layer: Node, zeros: ZerosByAxis) -> None:
        """Record the zero padding of a layer's input, if there is any."""
        if any(map(any, zeros.values())):
            self.plan.zeros[layer.name] = zeros

    def form_of_product(self, value: Chain) -> Form | None:
        """Return the form of a MatMul's activation for its readers, or None for floats."""
        result = value.nodes[-1].name
        if value.activation is None or not self._is_multiplied(result):
            return None
        seen = self._range(result)
        return None if isinstance(seen, str) else with_offset(seen, zero_is_exact=True)

    def _with_end(self, result: Chain) -> Chain:
        """Return a product with the Minimum after its GELU, if the int8 range ends there too."""
        readers = self.graph.readers(result.nodes[-1].name) if result.gelu else []
        if len(readers) != 1 or not self.graph.feeds_only(result.nodes[-1], readers[0]):
            return result
        end = readers[0]
        constants = map(self.graph.constant, end.data_inputs)
        limits = [const for const in constants if const is not None and const.value.size == 1]
        if end.op != "Minimum" or len(limits) != 1 or self.graph.is_input(end.name):
            return result
        longer = replace(result, nodes=(*result.nodes, end), activation=end)
        made, limit = self.form_of_product(longer), float(limits[0].value.reshape(()))
        is_same = made is not None and made.peak + made.offset <= limit * (1 + _NEAR)
        return longer if is_same else result

    def _is_multiplied(self, name: str) -> bool:
        """Return whether a MatMul with constant weights reads a tensor."""
        waiting = [name]
        for item in waiting:  # the list grows in the loop
            for reader in self.graph.readers(item):
                if reader.op == "MatMul" and not self._unfit(reader):
                    return True
                if reader.op in _RENAMING and reader.data_inputs[0] == item:
                    waiting.append(reader.name)
        return False

    def form_of_float(self, layer: Node, source: str) -> Form | str:
        """Return the form in which a layer reads a float tensor, or why there is none."""
        result = self._range(source)
        if isinstance(result, str):
            return result
        form, zeros = form_of(result), self.zeros_of(layer, source)
        is_made = producer_name(source) in self._behind_layers
        pixels = bytes_of(self.graph, source)
        if pixels is not None and (zeros is not None or not pixels.offset):
            form = Form(False, CODES * pixels.scale, pixels.offset)
            if 0 <= form.zero <= CODES:
                self.plan.bytes[source, form] = pixels.tensor
            else:  # the zero padding has no code
                form = with_offset(result, is_made)
        elif form.signed and zeros is not None:
            form = with_offset(result, is_made)
        elif form.signed and not is_made:
            return ("the input is signed, which would cost one bit of its codes, and its size is "
                    "unknown")  # fmt: skip
        if form.offset and zeros is not None:
            self.put_around(layer, zeros)
        return form

    def zeros_of(self, layer: Node, source: str) -> ZerosByAxis | None:
        """Return the zero padding of a layer's input, or None if it is unknown."""
        if layer.op == "MatMul":
            return {}
        kernel = require(weights_of(self.graph, layer)).shape
        return zeros_around(layer, kernel, self._shape(source))

    def form_made(self, tensor: str) -> Form | str:
        """Return the form of a chain's result, or the reason why it has none."""
        result = self._range(tensor)
        return result if isinstance(result, str) else form_of(result)

    def _range(self, tensor: str) -> TensorRange | str:
        result = self._ranges.tensors.get(normal(tensor))
        if result is None:
            return f"the ranges do not contain '{tensor}'"
        if max(-result.min, result.max) <= 0:
            return f"'{tensor}' was never active when it was calibrated"
        return result

    def _chain(self, layer: Node, can_add: Callable[[str, str], bool] | None = None) -> Chain:
        """Return the nodes that a layer's kernel replaces: a sum only if `can_add` allows it."""
        return chain(self.graph, layer, ACTIVATIONS.get(layer.op, ()), can_add)

    def _is_eight_bit_summand(self, own: str, other: str) -> bool:
        form = self._summand(other)
        if form is None or form.signed:
            return False
        if self._same_shape is None:
            self._same_shape = shape_comparison(self.graph)
        return self._same_shape(own, other)

    def _summand(self, tensor: str) -> Form | None:
        """Return the form of a tensor that is int8 without an additional conversion, or None."""
        form = self.plan.forms.get(tensor) or self._quantized.get(tensor)
        return None if form is None or form.offset else form

    def _can_be_overwritten(self, result: Chain) -> bool:
        """Return whether the summand is not needed after the sum has overwritten its memory.

        Its other readers must run before, so the layer must wait for them. No other tensor may
        share its memory.
        """
        graph, (name, _) = self.graph, split(result.summand)
        others = {reader.name for reader in graph.readers(name)} - {_sum_of(result).name}
        if graph.is_output(name) or any(graph[n].op in _SAME_MEMORY for n in (name, *others)):
            return False
        waiting, seen = [result.nodes[0].name], set[str]()
        while waiting and not others <= seen:
            for tensor in graph[waiting.pop()].inputs:
                before = producer_name(tensor)
                if before not in seen and self._place[before] > self._place[name]:
                    seen.add(before)
                    waiting.append(before)
        return others <= seen


def _sum_of(result: Chain) -> Node:
    return next(n for n in result.nodes if n.op in ADD_OPS and result.summand in n.inputs)


def _passes(graph: Graph, node: Node) -> bool:
    """Return whether the int8 form of an op has the same effect as the op."""
    if node.op == "MaxPool":
        return not limit("QuantizedMaxPool", node)
    if node.op == "Pad":
        return graph.constant(node.data_inputs[1]) is not None
    return True
