"""A layer with its bias, sum and activation can be one op on int8 codes of known ranges."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.affine_codes import CODES, Form
from deploykit.transforms.int8.fake_quants import OPS as FAKE_QUANTS
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.plan import OPS, Plan, plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.stored_codes import taken_out
from deploykit.transforms.int8.weights import LARGEST, Rounded, codes_of, restored, saturates
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import channel_axes, weights_of
from deploykit.transforms.layers.padding import ZerosByAxis
from deploykit.transforms.shapes.sizes import require

FLOAT, QINT8, UINT8 = DType("float32"), DType("qint8"), DType("uint8")
_KEPT = ("data_format", "dilations", "explicit_paddings", "padding", "strides")


def quantize_static(
    graph: Graph, *, ranges: str = "", isa: str = "auto", keep_float: tuple[str, ...] = ()
) -> None:
    """Run layers in int8 on oneDNN's kernels, with ranges from `deploykit calibrate`.

    Conv2D, DepthwiseConv2dNative and MatMul with constant weights become private ops of TensorFlow.
    They run on x86 CPUs in builds with oneDNN, as pip installs them, with and without its flag.
    Like all convolutions of oneDNN, they give an empty batch the sizes of their input, so a later
    op may refuse it; `deploykit serve` handles an empty batch without them. Max pools, joins,
    paddings and reshapes between the layers pass codes on, and a GELU is fused into the MatMul
    before it. Fold batch norms and shift activations first, and calibrate the resulting graph.

    For a graph that `quantize_codes` wrote, omit `ranges`: its layers get these kernels with its
    codes, ranges and biases. GraphError: the ranges belong to another graph, weights contain NaN or
    Inf, or `keep_float` names an unknown node. Also if, without ranges, the graph has no codes, or
    codes for another `isa`.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph; none for a graph of codes.
        isa: avx2 uses fewer weight levels where sums of pairs would saturate, vnni all 127; auto
            detects this machine. A graph for vnni gives wrong sums on older CPUs.
        keep_float: name of a layer to keep in float32; may be given several times.
    """
    exact_sums = sums_exactly(isa)
    if not ranges:
        _from_codes(graph, exact_sums, keep_float)
        return
    result = plan(graph, load_ranges(ranges), keep_float)
    for layer, reason in result.reasons.items():
        graph.skip(graph[layer], reason)

    write_kernels(graph, result, {}, exact_sums)


def write_kernels(graph: Graph, result: Plan, rounded: Rounded, exact_sums: bool) -> None:
    """Replace the layers of a plan by oneDNN's int8 ops; weights are `rounded`, or to nearest."""

    def codes(chain: Chain, floats: Array) -> tuple[Array, Array]:
        signed = result.reads[chain.nodes[0].name].signed
        return codes_of(rounded, chain, floats, exact_sums, signed)

    _Rewriting(graph, result, codes).run()


def _from_codes(graph: Graph, exact_sums: bool, keep_float: Iterable[str]) -> None:
    if any(keep_float):
        raise GraphError("keep-float-needs-ranges")
    result, stored = taken_out(graph)
    for layer, (codes, _) in stored.weights.items():
        if not exact_sums and saturates(graph[layer], codes):
            raise GraphError("codes-other-isa", node=layer)

    def stored_codes(chain: Chain, _: Array) -> tuple[Array, Array]:
        return stored.weights[chain.nodes[0].name]

    _Rewriting(graph, result, stored_codes, stored.in_bias).run()


class _Rewriting:
    """One pass in execution order: the inputs of a node have codes before the pass reaches it."""

    def __init__(
        self,
        graph: Graph,
        result: Plan,
        codes_of: Callable[[Chain, Array], tuple[Array, Array]],
        in_bias: Mapping[str, float] | None = None,
    ) -> None:
        """Store how to code a layer's weights, and the offset that is already in each bias."""
        self._graph = graph
        self._plan = result
        self._codes_of = codes_of
        self._in_bias = in_bias or {}
        self._codes: dict[str, str] = {}
        """The tensor of codes for each float tensor with a form in the plan."""
        self._quantized: dict[tuple[str, Form], str] = {}
        self._constants: dict[tuple[object, ...], Node] = {}
        """The ends of ranges: one for each value and loop."""

    def run(self) -> None:
        chains = {chain.nodes[-1].name: chain for chain in self._plan.chains.values()}
        for name in self._graph.order():  # at its last node, all inputs of a chain have codes
            if name in chains:
                layer = chains[name].nodes[0].name
                self._rewrite_layer(chains[name], self._plan.reads[layer])
            elif name in self._plan.passing:
                self._rewrite_passing(self._graph[name])

    def _rewrite_layer(self, chain: Chain, reads: Form) -> None:
        """Replace the last node of a chain by its int8 op and a Dequantize of the result."""
        layer, last = chain.nodes[0], chain.nodes[-1]
        weights, bias = self._parameters(layer, chain, reads)
        source = layer.data_inputs[0]
        form = self._plan.forms.get(last.name)
        is_there = self._plan.forms.get(source) == reads
        codes = self._codes[source] if is_there else self._quantize(source, reads, layer)
        zeros = self._plan.zeros.get(layer.name)
        if zeros is not None:
            codes = self._with_zeros(layer, codes, reads, zeros)
        device = [codes, weights[0], bias]
        types = [DType(reads.type), QINT8, FLOAT]
        host = [*self._ends(reads, layer), *weights[1:]]
        fused_ops = ["BiasAdd"]
        if chain.summand:
            summand = self._plan.sums[layer.name]
            codes = self._codes.get(chain.summand) or self._quantize(chain.summand, summand, layer)
            device.append(self._own_memory(codes, last))
            types.append(DType(summand.type))
            host += self._ends(summand, layer)
            fused_ops.append("Sum")
        if chain.activation is not None or chain.summand:
            # Relu6 ends at the end of the range, a sum without one at zero
            fused_ops.append(chain.gelu or "Relu")
        elif _is_moved(layer, form):
            fused_ops.append("Relu")
        out = FLOAT if form is None else DType(form.type)
        if form is None:
            fused_ops.append("Dequantize")
        else:
            host += self._ends(form, layer, 0.0 if _is_moved(layer, form) else form.offset)
            fused_ops.append("Requantize")
        attrs: dict[str, Any] = {
            "Tdevice_inputs": types,
            "Thost_inputs": [FLOAT] * len(host),
            "Tdevice_outputs": [out],
            "Thost_outputs": [] if form is None else [FLOAT] * 2,
            "Tbias": FLOAT,
            "fused_ops": fused_ops,
        }
        if layer.op == "MatMul":
            attrs |= {"T1": types[0], "T2": QINT8, "Tout": out, "U": FLOAT}
            if form is not None and form.offset:
                attrs["output_quant_mode"] = "MIN_FIRST"
        else:
            attrs |= {
                "Tinput": types[0],
                "Tfilter": QINT8,
                "out_type": out,
                "Tsummand": types[-1] if chain.summand else out,
            }
            attrs |= {name: layer.attr(name) for name in _KEPT if name in layer.attrs}
            if zeros is not None:
                attrs |= {"padding": "VALID", "explicit_paddings": None}
        node = Node(last.name, OPS[layer.op], (*device, *host), attrs={}, device=layer.device)
        node = self._graph.absorb(chain.nodes, into=node.with_attrs(**attrs))
        if form is not None:
            self._hand_out(node, form)

    def _rewrite_passing(self, node: Node) -> None:
        """Replace an op that passes floats on by one that passes codes on."""
        graph, form = self._graph, self._plan.forms[node.name]
        joined = node.op == "ConcatV2"
        tensors = node.data_inputs[:-1] if joined else node.data_inputs[:1]
        rest = node.data_inputs[len(tensors) :]
        codes = [self._codes[tensor] for tensor in tensors]
        if node.op == "MaxPool":
            retained = {name: node.attr(name) for name in ("ksize", "padding", "strides")}
            read = (*codes, *self._ends(form, node))
            new = Node(node.name, "QuantizedMaxPool", read, {}, node.device)
            new = new.with_attrs(T=DType(form.type), **retained)
        elif node.op == "Pad":  # it has no kernel for quint8, and zero is the code 0
            name = self._name(node.name, "codes")
            plain = self._bitcast(f"{name}/uint8_in", codes[0], DType(form.type), UINT8)
            padded = node.with_name(graph.unique_name(f"{name}/uint8")).with_attrs(T=UINT8)
            graph.add(padded.with_data_inputs(plain, *rest))
            new = Node(node.name, "Bitcast", (padded.name,), {}, node.device)
            new = new.with_attrs(T=UINT8, type=DType(form.type))
        else:
            new = node.with_attrs(T=DType(form.type))
            new = new.with_data_inputs(*codes, *rest)
        self._hand_out(graph.absorb([node], into=new), form)

    def _hand_out(self, node: Node, form: Form) -> None:
        """Rename a node that returns codes; its old name goes to the floats that they represent."""
        codes = self._graph.add(node.with_name(self._name(node.name, "codes")))
        if form.top < CODES and node.op in OPS.values():
            codes = self._cut_off(codes, form)
        self._codes[node.name] = codes.name
        # oneDNN's kernel for SCALED crashes on an empty batch
        low, high = form.lowest, form.peak + form.offset
        ends = self._number(low, node), self._number(high, node)
        floats = Node(node.name, "Dequantize", (codes.name, *ends), {}, node.device)
        floats = floats.with_attrs(T=DType(form.type), mode="MIN_COMBINED", dtype=FLOAT)
        self._graph.replace(node, floats)

    def _cut_off(self, codes: Node, form: Form) -> Node:
        """Return the node that limits codes to the largest code in use."""
        graph, type_ = self._graph, DType(form.type)
        name = f"{codes.name}/cut"
        plain = self._bitcast(f"{name}/uint8_in", codes.name, type_, UINT8)
        free = replace(codes, device="")
        top = graph.constant_beside(free, np.array(form.top, np.uint8), f"{name}/top").name
        cut = graph.put(f"{name}/uint8", "Minimum", plain, top, like=codes, T=UINT8)
        return graph[self._bitcast(name, cut, UINT8, type_)]

    def _parameters(
        self, layer: Node, chain: Chain, reads: Form
    ) -> tuple[tuple[str, str, str], str]:
        """Add codes and range of a layer's weights, and its bias; return their names."""
        graph = self._graph
        const = require(weights_of(graph, layer))
        codes, steps = self._codes_of(chain, const.value)
        bias = graph.constant(chain.bias) if chain.bias else None
        offsets = np.zeros(len(steps)) if bias is None else bias.value.astype(np.float64)
        if reads.offset:
            axes = tuple(axis for axis in range(codes.ndim) if axis not in channel_axes(layer))
            sums = restored(layer, codes, steps).sum(axes, dtype=np.float64).reshape(-1)
            offsets = offsets + (reads.offset - self._in_bias.get(layer.name, 0.0)) * sums
        made = self._plan.forms.get(chain.nodes[-1].name)
        if made is not None and _is_moved(layer, made):
            offsets = offsets - made.offset
        if layer.op == "MatMul" and channel_axes(layer) == (0,):
            codes = np.ascontiguousarray(codes.T)
        peaks = steps * np.float32(LARGEST)
        values = (("weights", codes, "qint8"), ("min", -peaks, None), ("max", peaks, None))
        names = [
            graph.constant_beside(const, array, f"{layer.name}/{part}", type_).name
            for part, array, type_ in values
        ]
        values_of_bias = offsets.astype(np.float32)
        bias_name = graph.constant_beside(layer, values_of_bias, f"{layer.name}/bias").name
        return (names[0], names[1], names[2]), bias_name

    def _quantize(self, tensor: str, form: Form, layer: Node) -> str:
        if self._plan.has_fake_quants:
            tensor = self._before_fake_quant(tensor, form)
        if (tensor, form) not in self._quantized:
            producer, port = split(tensor)
            name = self._name(f"{producer}_{port}" if port else producer, "quantized")
            if source := self._plan.bytes.get((tensor, form)):
                made = self._bitcast(name, source, UINT8, DType(form.type))
                self._quantized[tensor, form] = made
                return made
            high = form.peak + form.offset
            ends = self._number(form.low + form.offset, layer), self._number(high, layer)
            mode = "SCALED" if form.signed else "MIN_COMBINED"
            attrs = {"T": DType(form.type), "mode": mode, "ensure_minimum_range": 0.0}
            maker = self._graph.producer(tensor)
            self._graph.put(name, "QuantizeV2", tensor, *ends, like=maker, **attrs)
            self._quantized[tensor, form] = name
        return self._quantized[tensor, form]

    def _before_fake_quant(self, tensor: str, form: Form) -> str:
        """Return the input of a fake-quant, if quantizing that input has the same effect."""
        node = self._graph.producer(tensor)
        is_same = node.op in FAKE_QUANTS and form.top == CODES
        return node.data_inputs[0] if is_same else tensor

    def _own_memory(self, codes: str, reader: Node) -> str:
        """Mark the node of a summand, so that it is not merged with an equal node.

        The kernel writes the sum into its memory, and crashes if another node reads that memory.
        """
        graph = self._graph
        graph.replace(graph[codes], graph[codes].with_attrs(_overwritten_by=reader.name))
        return codes

    def _bitcast(self, name: str, tensor: str, old: DType, new: DType) -> str:
        return self._graph.put(name, "Bitcast", tensor, T=old, type=new)

    def _with_zeros(self, layer: Node, codes: str, reads: Form, zeros: ZerosByAxis) -> str:
        """Pad the codes of a layer's input with the code of zero, which is not the code 0."""
        graph, name, type_ = self._graph, self._name(layer.name, "zeros"), DType(reads.type)
        pairs = np.array([zeros.get(axis, (0, 0)) for axis in range(4)], np.int32)
        sizes = graph.constant_beside(layer, pairs, f"{name}/sizes").name
        zero = graph.constant_beside(layer, np.array(reads.zero, np.uint8), f"{name}/code").name
        plain = self._bitcast(f"{name}/uint8_in", codes, type_, UINT8)
        pad = graph.put(f"{name}/uint8", "PadV2", plain, sizes, zero, like=layer, T=UINT8)
        return self._bitcast(name, pad, UINT8, type_)

    def _ends(self, form: Form, node: Node, offset: float = 0.0) -> tuple[str, str]:
        """Return scalars for the values of the lowest and the highest code, next to a node."""
        return self._number(form.low + offset, node), self._number(form.peak + offset, node)

    def _number(self, value: float, node: Node) -> str:
        key = (value, *self._graph.waits_beside(node))
        if key not in self._constants:
            name = f"int8/{'zero' if not value else f'end_{len(self._constants)}'}"
            free, array = replace(node, device=""), np.array(value, np.float32)
            self._constants[key] = self._graph.constant_beside(free, array, name)
        const = self._constants[key]
        if const.name not in self._graph:  # it was removed with its only reader
            self._graph.add(const)
        return const.name

    def _name(self, name: str, part: str) -> str:
        return self._graph.unique_name(f"{name}/{part}")


def _is_moved(layer: Node, made: Form | None) -> bool:
    """Return whether a convolution's bias shifts its result by the offset of the result's codes.

    The kernel has no offset, but cuts off below zero, as the range does below its lowest value.
    """
    return layer.op != "MatMul" and made is not None and bool(made.offset)
