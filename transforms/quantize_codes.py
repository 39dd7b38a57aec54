"""The decisions of `quantize_static`, written in plain ops that other engines read."""

from dataclasses import replace

import numpy as np

from deploykit.transforms.int8.affine_codes import Form
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.openvino_workarounds import is_misfused, keep_apart, widen
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.quantized_ops import number_range
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.stored_codes import (
    APART,
    FROM_FLOATS,
    OF_A_LAYER,
    ROUNDING,
    ROUNDS,
    SHIFTED,
    SIGNED,
    WEIGHTS,
)
from deploykit.transforms.int8.weights import Rounded, add_to_bias, codes_of, restored
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import channel_axes, channel_shape, weights_of
from deploykit.transforms.shapes.sizes import require

FLOAT, INT8 = DType("float32"), DType("int8")


def quantize_codes(
    graph: Graph, *, ranges: str, isa: str = "auto", keep_float: tuple[str, ...] = ()
) -> None:
    """Quantize the inputs, outputs and weights of layers to int8, in ops of float numbers.

    It quantizes the same layers as `quantize_static`, with the same codes. Weights are int8
    constants that Cast and Mul convert to floats, and FakeQuantWithMinMaxVars rounds activations.
    Every TensorFlow build runs such a graph, slowly, with the results of the int8 kernels. OpenVINO
    converts it to its int8 kernels, and `quantize_static` without `ranges` converts it to those of
    oneDNN. GraphError: as in `quantize_static`.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
        isa: avx2, vnni or auto, as in `quantize_static`.
        keep_float: name of a layer to keep in float32; may be given several times.
    """
    result = plan(graph, load_ranges(ranges), keep_float)
    for layer, reason in result.reasons.items():
        graph.skip(graph[layer], reason)
    write_codes(graph, result, {}, sums_exactly(isa))


def write_codes(graph: Graph, result: Plan, rounded: Rounded, exact_sums: bool) -> None:
    """Round the layers of a plan in plain ops; weights are `rounded`, or rounded to nearest."""
    _Rounding(graph, result, rounded, exact_sums).run()


class _Rounding:
    """One pass in execution order; a tensor is rounded once for each form in which it is read."""

    def __init__(self, graph: Graph, result: Plan, chosen: Rounded, exact_sums: bool) -> None:
        self._graph = graph
        self._plan = result
        self._chosen = chosen
        self._exact_sums = exact_sums
        self._rounded: dict[tuple[str, Form], str] = {}

    def run(self) -> None:
        chains = {chain.nodes[-1].name: chain for chain in self._plan.chains.values()}
        if self._plan.has_fake_quants:
            widen(self._graph)
        for name in self._graph.order():
            if name in chains:
                self._rewrite(chains[name])

    def _rewrite(self, chain: Chain) -> None:
        """Round the inputs and weights of a chain, and its result if int8 layers read it."""
        graph, plan, layer = self._graph, self._plan, chain.nodes[0]
        source = layer.data_inputs[0]
        reads = plan.reads[layer.name]
        if plan.forms.get(source) != reads and not plan.has_fake_quants:
            source = self._read_rounded(source, reads)
        const = require(weights_of(graph, layer))
        codes, steps = codes_of(self._chosen, chain, const.value, self._exact_sums, reads.signed)
        name = self._with_rest_of_zero(chain, reads, codes, steps)
        inputs = [source, self._weights(layer, const, codes, steps)]
        graph.replace(graph[name], graph[name].with_data_inputs(*inputs))
        if plan.has_fake_quants:
            keep_apart(graph, chain.nodes[-1].name)
            return
        if chain.summand and chain.summand not in plan.forms:
            rounded = self._read_rounded(chain.summand, plan.sums[layer.name])
            add = graph[next(n.name for n in chain.nodes if chain.summand in n.data_inputs)]
            graph.replace(add, add.reading({chain.summand: rounded}))
        last = chain.nodes[-1].name
        if form := plan.forms.get(last):
            node = graph[last]
            made = graph.add_copy(node, f"{last}/float")
            graph.replace(node, self._rounding(last, made.name, form, node, OF_A_LAYER))

    def _with_rest_of_zero(self, chain: Chain, reads: Form, codes: Array, steps: Array) -> str:
        """Add the value that `_shifted` subtracts to a layer's bias; return the layer's name."""
        graph, layer = self._graph, chain.nodes[0]
        if not reads.of_zero:
            return layer.name
        floats = restored(layer, codes, steps)
        axes = tuple(axis for axis in range(floats.ndim) if axis not in channel_axes(layer))
        sums = floats.sum(axes, dtype=np.float64).reshape(-1)
        add_to_bias(graph, chain, reads.of_zero * sums)
        return layer.name if chain.bias else graph[layer.name].data_inputs[0]

    def _weights(self, layer: Node, const: Node, codes: Array, steps: Array) -> str:
        """Return the floats that the codes of a layer's weights represent."""
        graph = self._graph
        steps = steps.reshape(channel_shape(layer, codes.shape))
        stored = graph.constant_beside(const, codes, f"{layer.name}/weights/codes")
        factor = graph.constant_beside(const, steps, f"{layer.name}/weights/steps")
        name, types = f"{layer.name}/weights/floats", {"SrcT": INT8, "DstT": FLOAT}
        cast = graph.put(name, "Cast", stored.name, like=layer, Truncate=False, **types)
        attrs = {"T": FLOAT, ROUNDS: WEIGHTS}
        return graph.put(f"{layer.name}/weights", "Mul", cast, factor.name, like=layer, **attrs)

    def _read_rounded(self, tensor: str, form: Form) -> str:
        """Return a float tensor, rounded for its int8 readers."""
        if (tensor, form) not in self._rounded:
            producer, port = split(tensor)
            base = f"{producer}_{port}" if port else producer
            name = self._graph.unique_name(f"{base}/rounded")
            maker = self._graph.producer(tensor)
            if is_misfused(self._graph, tensor):
                self._rounded_apart(name, tensor, form, maker)
            else:
                self._add_rounding(name, tensor, form, maker)
            self._rounded[tensor, form] = name
        return self._rounded[tensor, form]

    def _add_rounding(self, name: str, tensor: str, form: Form, maker: Node) -> str:
        if form.of_zero:
            return self._shifted(name, tensor, form, maker)
        return self._graph.add(self._rounding(name, tensor, form, maker, FROM_FLOATS)).name

    def _rounded_apart(self, name: str, tensor: str, form: Form, maker: Node) -> None:
        """Round a tensor with an additional axis, so that OpenVINO does not fuse the rounding."""
        graph, free = self._graph, replace(maker, device="")
        axis = graph.constant_beside(free, np.array(0, np.int32), f"{name}/axis").name
        attrs = {"T": FLOAT, ROUNDS: APART}
        types = {"Tdim": DType("int32"), **attrs}
        more = graph.put(f"{name}/more", "ExpandDims", tensor, axis, like=maker, **types)
        inner = self._add_rounding(graph.unique_name(f"{name}/inner"), more, form, maker)
        graph.put(name, "Squeeze", inner, like=maker, squeeze_dims=[0], **attrs)

    def _shifted(self, name: str, tensor: str, form: Form, maker: Node) -> str:
        """Round a tensor whose codes include none for zero; padding zeros then have a code again.

        FakeQuantWithMinMaxVars would shift its range until zero has a code, and each value with it.
        So it rounds the distance to the lowest value, and the value of the code nearest to zero is
        subtracted from the result: the bias of a layer adds it again.
        """
        graph, free = self._graph, replace(maker, device="")

        def less(made: str, source: str, number: float, part: str) -> str:
            end = graph.constant_beside(free, np.array(number, np.float32), f"{name}/{part}")
            return graph.put(made, "Sub", source, end.name, like=maker, T=FLOAT)

        above = less(f"{name}/above", tensor, form.offset, "lowest")
        whole = replace(form, offset=0.0)
        codes = self._rounding(graph.unique_name(f"{name}/codes"), above, whole, maker, SHIFTED)
        return less(name, graph.add(codes).name, form.zero * form.step, "zero")

    def _rounding(self, name: str, tensor: str, form: Form, beside: Node, what: str) -> Node:
        """Return the node that rounds a tensor to the values of its codes."""
        low, high = form.lowest, form.peak + form.offset
        ends = number_range(self._graph, beside, f"{name}/", low, high)
        node = Node(name, ROUNDING, (tensor, *ends), {}, beside.device)
        # OpenVINO shifts the values of 255 levels by half a step if a layer reads them.
        return node.with_attrs(num_bits=8, **{ROUNDS: what, SIGNED: form.signed})
