"""Which layers compute in 8 bits, and the range of each 8-bit tensor: decided before any edit."""

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
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes

OPS = {
    "Conv2D": "_FusedQuantizedConv2D",
    "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D",
    "MatMul": "_QuantizedMatMul",
}
# What the kernel of a layer computes behind it.
ACTIVATIONS = {
    "Conv2D": frozenset({"Relu", "Relu6"}),
    "DepthwiseConv2dNative": frozenset({"Relu", "Relu6"}),
    "MatMul": frozenset({"Gelu", "Relu"}),
}
PASSING_OPS = frozenset(
    {"ConcatV2", "ExpandDims", "Identity", "MaxPool", "Pad", "Reshape", "Squeeze"}
)
"""Ops whose result has the codes of what they read.

QuantizedAvgPool is none: without oneDNN it cuts fractions off, 0.43 of a code on average, and takes
longer than a float pool between conversions.
"""
_RENAMING = frozenset({"ExpandDims", "Identity", "Reshape", "Squeeze"})
"""Ops whose codes are those that they read, whatever these stand for."""
_SAME_MEMORY = _RENAMING | {"Pad"}
"""Ops that may give on the memory that they read; Pad does where it adds nothing."""

_NEAR = 1e-2  # of a limit: one code of rounding where ranges have an offset


@dataclass
class Plan:
    """What becomes 8 bits."""

    chains: dict[str, Chain] = field(default_factory=dict)
    """By layer: the nodes that its kernel computes."""
    reads: dict[str, Form] = field(default_factory=dict)
    """By layer: how it takes its input."""
    zeros: dict[str, ZerosByAxis] = field(default_factory=dict)
    """By layer: the zeros around its input, where code 0 does not stand for them."""
    bytes: dict[tuple[str, Form], str] = field(default_factory=dict)
    """By float tensor that is made of bytes, and the form of which they are codes: the bytes."""
    sums: dict[str, Form] = field(default_factory=dict)
    """By layer with a sum: how it takes the summand."""
    forms: dict[str, Form] = field(default_factory=dict)
    """Tensors that chains and passing ops make in 8 bits."""
    passing: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    """By layer that stays float: why."""
    has_fake_quants: bool = False
    """Whether fake-quants of the graph itself round what layers read and give."""


def plan(graph: Graph, ranges: Ranges, keep_float: Iterable[str] = ()) -> Plan:
    """Return what can become 8 bits. GraphError: the ranges are those of another graph.

    GraphError as well: a layer's weights hold NaN or Inf, or `keep_float` names no node.
    """
    listed = {graph[name].name for name in keep_float}
    known = set(map(producer_name, ranges.tensors))
    computed = {node.name for node in graph if node.op not in FEEDABLE_OPS}
    if known.isdisjoint(computed) and any(node.op in LAYER_OPS for node in graph):
        raise GraphError("ranges-of-other-graph")
    return Planner(graph, ranges, listed).run()


class Planner:
    """One pass in execution order; what was decided for a node's inputs is known by then."""

    keeps_offset = _RENAMING
    """Passing ops that hand on codes with an offset."""

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
        """By sum: layers that it might become part of."""
        self._quantized: dict[str, Form] = {}
        """By float tensor that a layer reads in 8 bits: how."""
        self._peaks = TensorGroups()
        """Tensors that have one peak."""

    def run(self) -> Plan:
        """Return the plan of the whole graph."""
        for name in self.graph.order():
            self._take(self.graph[name])
        self._share_peaks()
        return self.plan

    def _take(self, node: Node) -> None:
        """Plan a node. A layer whose result is added to another tensor is planned at the sum.

        By then that tensor is planned, whichever of the two runs first.
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
        elif node.name in self._behind:  # of two layers, the first one gives the summand
            for layer in sorted(self._behind[node.name], key=self._has_sign):
                self._take_layer(layer)

    def _sum_behind(self, layer: Node) -> str:
        """Return the sum that a layer's kernel might compute with it, or an empty string."""
        result = self._chain(layer, lambda _, __: True)
        return _sum_of(result).name if result.summand else ""

    def _has_sign(self, layer: Node) -> bool:
        """Say whether a layer, without the sum behind it, gives what would need codes with a sign.

        A summand must not.
        """
        form = self.form_made(self._chain(layer).nodes[-1].name)
        return isinstance(form, str) or form.signed

    def _take_layer(self, layer: Node) -> None:
        if reason := self._planned(layer):
            self.plan.reasons[layer.name] = reason

    def _planned(self, layer: Node) -> str:
        """Plan a layer in 8 bits, or return why it stays float."""
        source = layer.data_inputs[0]
        reads = self._form_of_codes(layer, source) or self.form_of_float(layer, source)
        if isinstance(reads, str):
            return reads
        value = self._chain(layer, self._is_eight_bit_summand)
        if layer.op == "MatMul":
            value = self._with_end(value)
            result = value.nodes[-1].name
            made = self.form_of_product(value)
            if made is not None:
                self.plan.forms[result] = made
                self._peaks.add(result)
        else:
            result = value.nodes[-1].name
            form = self.form_made(result)
            can_add = not isinstance(form, str) and not form.signed
            if value.summand and not (can_add and self._can_be_overwritten(value)):
                value = self._chain(layer)
                result = value.nodes[-1].name
                form = self.form_made(result)
            if isinstance(form, str):
                return form
            self.plan.forms[result] = form
            self._peaks.add(result)
        self.plan.chains[layer.name], self.plan.reads[layer.name] = value, reads
        if source not in self.plan.forms and (source, reads) not in self.plan.bytes:
            self._quantized[source] = reads  # a sum must not be written over the caller's bytes
        if summand := self._summand(value.summand):
            self.plan.sums[layer.name] = summand
        return ""

    def _take_passing(self, node: Node) -> None:
        """Plan an op that hands codes on, where all it reads is in 8 bits."""
        tensors = node.data_inputs[:-1] if node.op == "ConcatV2" else node.data_inputs[:1]
        forms = [self.plan.forms.get(tensor) for tensor in tensors]
        if None in forms or self.graph.is_input(node.name) or not _passes(self.graph, node):
            return
        signed = {form.signed for form in forms if form is not None}
        if signed != {False} and (node.op not in _SAME_MEMORY or len(signed) > 1):
            return
        form = forms[0]
        assert form is not None
        if node.op not in self.keeps_offset and any(form.offset for form in forms if form):
            return
        self.plan.passing.add(node.name)
        self.plan.forms[node.name] = form
        self._peaks.add(node.name)
        for tensor in tensors:
            self._peaks.join(tensor, node.name)

    def _share_peaks(self) -> None:
        """Give tensors whose codes are handed on one peak: the largest of them."""
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
        """Return what the kernels cannot do of a layer, or an empty string."""
        if layer.name in self._listed:
            return "it is to stay float"
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
        """Return the shapes of what a layer reads; the channels may be known from the ranges."""
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
        """Note the zeros around what a layer reads, if there are any."""
        if any(map(any, zeros.values())):
            self.plan.zeros[layer.name] = zeros

    def form_of_product(self, value: Chain) -> Form | None:
        """Return the form in which a MatMul gives an activation to others, or None for floats."""
        result = value.nodes[-1].name
        if value.activation is None or not self._is_multiplied(result):
            return None
        seen = self._range(result)
        return None if isinstance(seen, str) else with_offset(seen, zero_is_exact=True)

    def _with_end(self, result: Chain) -> Chain:
        """Return a product with the Minimum behind its GELU where the int8 range ends there too."""
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
        """Say whether a MatMul with constant weights reads a tensor."""
        waiting = [name]
        for item in waiting:  # it grows
            for reader in self.graph.readers(item):
                if reader.op == "MatMul" and not self._unfit(reader):
                    return True
                if reader.op in _RENAMING and reader.data_inputs[0] == item:
                    waiting.append(reader.name)
        return False

    def form_of_float(self, layer: Node, source: str) -> Form | str:
        """Return how a float tensor is to be quantized for a layer, or why it is not."""
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
            else:  # there is no code for the zeros around it
                form = with_offset(result, is_made)
        elif form.signed and zeros is not None:
            form = with_offset(result, is_made)
        elif form.signed and not is_made:
            return ("the input has a sign, which would cost one of the 8 bits, and its size is not "
                    "known")  # fmt: skip
        if form.offset and zeros is not None:
            self.put_around(layer, zeros)
        return form

    def zeros_of(self, layer: Node, source: str) -> ZerosByAxis | None:
        """Return the zeros that a layer sees around its input, or None where they are not known."""
        if layer.op == "MatMul":
            return {}
        weights = weights_of(self.graph, layer)
        assert weights is not None
        return zeros_around(layer, weights.shape, self._shape(source))

    def form_made(self, tensor: str) -> Form | str:
        """Return how a chain is to make a tensor, or why it cannot."""
        result = self._range(tensor)
        return result if isinstance(result, str) else form_of(result)

    def _range(self, tensor: str) -> TensorRange | str:
        result = self._ranges.tensors.get(normal(tensor))
        if result is None:
            return f"the ranges do not hold '{tensor}'"
        if max(-result.min, result.max) <= 0:
            return f"'{tensor}' was never active when it was calibrated"
        return result

    def _chain(self, layer: Node, can_add: Callable[[str, str], bool] | None = None) -> Chain:
        """Return what the kernel of a layer computes: a sum only where `can_add` says so of it."""
        activations = ACTIVATIONS.get(layer.op, ())
        return chain(self.graph, layer, activations, can_add or (lambda _, __: False))

    def _is_eight_bit_summand(self, own: str, other: str) -> bool:
        form = self._summand(other)
        if form is None or form.signed:
            return False
        if self._same_shape is None:
            self._same_shape = shape_comparison(self.graph)
        return self._same_shape(own, other)

    def _summand(self, tensor: str) -> Form | None:
        """Return how a tensor can be had in 8 bits without a conversion for a sum alone."""
        form = self.plan.forms.get(tensor) or self._quantized.get(tensor)
        return None if form is None or form.offset else form

    def _can_be_overwritten(self, result: Chain) -> bool:
        """Say whether nobody needs the summand any more when its sum is written to its memory.

        Who else reads it has to be done by then, so must be something that the layer waits for; the
        layer itself is not. Nor may another tensor lie in its memory.
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
    """Return the node of a chain that adds its summand."""
    return next(n for n in result.nodes if n.op in ADD_OPS and result.summand in n.inputs)


def _passes(graph: Graph, node: Node) -> bool:
    """Say whether the 8-bit form of an op does what the op does."""
    if node.op == "MaxPool":
        return not limit("QuantizedMaxPool", node)
    if node.op == "Pad":
        return graph.constant(node.data_inputs[1]) is not None
    return True
