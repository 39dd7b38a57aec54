"""Ops that work on each token separately can run on a part of the tokens at a time."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import GraphError, unknown_name
from deploykit.transforms.convert_layout import ELEMENTWISE_OPS, REDUCTION_OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, split, tensor_name
from deploykit.transforms.ir.ops import output_types
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.shapes.sizes import Shape, require
from deploykit.transforms.shapes.static_shapes import Shapes

INT32 = DType("int32")
EACH_ALONE = ELEMENTWISE_OPS | {
    *("BiasAdd", "Cast", "Dequantize", "Equal", "Erf", "Erfc", "FloorMod", "Greater"),
    *("GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual"),
    *("Pow", "QuantizeV2", "SelectV2", "SquaredDifference", "StopGradient"),
}
ALONG_THE_LAST = frozenset({"LogSoftmax", "Softmax", "_MklLayerNorm"})
PRODUCTS = frozenset({"MatMul", "_MklNativeFusedMatMul", "_QuantizedMatMul"})


@dataclass(frozen=True)
class _Split:
    """The axis along which a tensor is split."""

    axis: int
    mixed: bool = False
    """Whether the axis indexes the tokens of all samples, one sample after the other."""
    sizes: bool = False
    """Whether the tensor contains the sizes of a tensor that is split along the axis."""


@dataclass(frozen=True)
class _Plan:
    """How a node is split into parts."""

    result: _Split
    split: tuple[int, ...]
    """The inputs that are read in parts."""
    sizes: tuple[int, ...] = ()
    """Sizes for a Reshape of one part."""


def split_tokens(graph: Graph, *, tensor: str, parts: int = 2) -> None:
    """Run the tokens of an encoder in parallel parts, starting from one input.

    With two inter-op threads and one intra-op thread (`--threads 1x2`), the parts run in parallel.
    Within a layer they synchronize only where attention reads all keys and values, while two
    intra-op threads synchronize at every op. This lowers the latency of a single request; many
    concurrent requests use all cores without it. Run it last; the graph may be int8. GraphError:
    the input does not exist, or its number of tokens is unknown or not a multiple of `parts`.

    Args:
        tensor: an input [batch, tokens, ...], such as `input_ids`.
        parts: number of parts.
    """
    shapes = Shapes(graph)
    shape, name = shapes.shape(tensor), normal(tensor)
    if not graph.is_input(name):
        raise unknown_name("input", tensor, graph.inputs)
    if shape is None or len(shape) < 2 or shape[1] < 1 or parts < 2 or shape[1] % parts:
        raise GraphError(
            "split-tokens-shape",
            name=tensor,
            parts=parts,
            got="of unknown rank" if shape is None else list(shape),
        )
    _Splitting(graph, shapes, name, parts).run()


class _Splitting:
    """One pass in execution order; a node that is split remains until it has no readers."""

    def __init__(self, graph: Graph, shapes: Shapes, start: str, parts: int) -> None:
        self._graph, self._shapes, self._count = graph, shapes, parts
        self._start = start
        self._tokens = require(shapes.shape(start))[1]
        self._splits: dict[str, _Split] = {}
        self._parts: dict[str, list[str]] = {}
        self._cuts: dict[tuple[str, int], list[str]] = {}

    def run(self) -> None:
        graph, order = self._graph, self._graph.order()
        first = graph[self._start]
        self._parts[first.name] = self._cut(first.name, 1)
        self._splits[first.name] = _Split(1)
        done = [node for node in order if node != first.name and self._take(graph[node])]
        for item in reversed(done):
            self._join(graph[item])
        if not done:
            graph.skip(first, "none of its readers processes each token separately")
            cut = graph.producer(self._parts[first.name][0])
            graph.remove(cut)
            graph.remove(graph.producer(cut.inputs[0]))

    def _take(self, node: Node) -> bool:
        if self._graph.is_input(node.name) or node.op not in RULES:
            return False
        if not any(tensor in self._splits for tensor in node.data_inputs):
            return False
        plan = RULES[node.op](self, node)
        if plan is None:
            return False
        names = []
        for part in range(self._count):
            inputs = [
                self._part(node, tensor, part, plan) if place in plan.split else tensor
                for place, tensor in enumerate(node.data_inputs)
            ]
            if plan.sizes:
                sizes = np.array(plan.sizes, np.int32)
                const = self._graph.constant_beside(node, sizes, f"{node.name}/part_shape")
                inputs[1] = const.name
            new = node.with_data_inputs(*inputs)
            new = new.with_attrs(Tshape=INT32) if plan.sizes else new
            names.append(self._graph.add_copy(new, f"{node.name}/part_{part}").name)
        self._parts[node.name], self._splits[node.name] = names, plan.result
        return True

    def _part(self, node: Node, tensor: str, part: int, plan: _Plan) -> str:
        if tensor in self._parts:
            return self._parts[tensor][part]
        const, shape = self._graph.constant(tensor), require(self.shape(node.name))
        axis = len(require(self.shape(tensor))) - (len(shape) - plan.result.axis)
        if const is None:
            return self._cut(tensor, axis)[part]
        piece = np.split(const.value, self._count, axis)[part]
        name = f"{const.name}/part_{part}"
        return self._graph.constant_beside(const, piece, name, const.attr("dtype")).name

    def _cut(self, tensor: str, axis: int) -> list[str]:
        """Return the parts of a tensor that is not split yet, along an axis."""
        if (tensor, axis) not in self._cuts:
            graph, node = self._graph, self._graph.producer(tensor)
            place = graph.constant_beside(node, np.array(axis, np.int32), f"{node.name}/axis")
            attrs = {"T": _kind(node, split(tensor)[1]), "num_split": self._count}
            cut = graph.put(f"{node.name}/parts", "Split", place.name, tensor, like=node, **attrs)
            self._cuts[tensor, axis] = [tensor_name(cut, port) for port in range(self._count)]
        return self._cuts[tensor, axis]

    def _join(self, node: Node) -> None:
        """Join the parts of a node that still has other readers into one tensor."""
        graph, split = self._graph, self._splits[node.name]
        if not (graph.is_output(node.name) or graph.consumers(node.name)):
            graph.remove(node)
            return
        if split.sizes:
            return
        names: list[str] = self._parts[node.name]
        width: Shape = ()
        kind = _kind(node)
        last = node.name
        if split.mixed:
            width = require(self.shape(node.name))[1:2]
            names = [self._shaped(node, name, [-1, self._each, *width], kind) for name in names]
            last = graph.unique_name(f"{node.name}/joined")
        place = np.array(1 if split.mixed else split.axis, np.int32)
        axis = graph.constant_beside(node, place, f"{node.name}/axis").name
        whole = Node(last, "ConcatV2", (*names, axis), {}, node.device)
        whole = whole.with_attrs(T=kind, N=len(names), Tidx=INT32)
        if not split.mixed:
            graph.replace(node, whole)
            return
        graph.add(whole)
        sizes = np.array([-1, *width], np.int32)
        const = graph.constant_beside(node, sizes, f"{node.name}/shape").name
        flat = Node(node.name, "Reshape", (last, const), {}, node.device)
        graph.replace(node, flat.with_attrs(T=kind, Tshape=INT32))

    def _shaped(self, node: Node, name: str, sizes: list[int], kind: DType) -> str:
        sizes_, types = np.array(sizes, np.int32), {"T": kind, "Tshape": INT32}
        shape = self._graph.constant_beside(node, sizes_, f"{name}/shape").name
        return self._graph.put(f"{name}/tokens", "Reshape", name, shape, like=None, **types)

    # --------------------------------------------------------------- properties for the rules

    @property
    def _each(self) -> int:
        return self._tokens // self._count

    def shape(self, tensor: str) -> Shape | None:
        """Return the shape of a tensor of the original graph."""
        return self._shapes.shape(tensor)

    def split(self, tensor: str) -> _Split | None:
        """Return how a tensor is split; a tensor of sizes counts as not split."""
        result = self._splits.get(tensor)
        return None if result is None or result.sizes else result

    def each_alone(self, node: Node) -> _Plan | None:
        if node.attr("data_format") == "NCHW":
            return None
        ranks = [None if (s := self.shape(t)) is None else len(s) for t in node.data_inputs]
        if None in ranks:
            return None
        rank = max(rank for rank in ranks if rank is not None)
        splits = [self.split(tensor) for tensor in node.data_inputs]
        results = {place: split for place, split in enumerate(splits) if split is not None}
        behind = {(ranks[place] or 0) - item.axis for place, item in results.items()}
        mixed = {result.mixed for result in results.values()}
        if len(behind) != 1 or len(mixed) != 1:
            return None
        (end,) = behind
        read = list(results)
        for place, tensor in enumerate(node.data_inputs):
            sizes = self.shape(tensor) or ()
            if place in results or len(sizes) < end or sizes[len(sizes) - end] == 1:
                continue
            if sizes[len(sizes) - end] != self._tokens or mixed == {True}:
                return None
            read.append(place)
        return _Plan(_Split(rank - end, mixed.pop()), tuple(read))

    def along_the_last(self, node: Node) -> _Plan | None:
        """Plan an op that works on the whole last axis."""
        split, shape = self.split(node.data_inputs[0]), self.shape(node.data_inputs[0])
        if split is None or shape is None or split.axis == len(shape) - 1:
            return None
        return _Plan(split, (0,))

    def product(self, node: Node) -> _Plan | None:
        """Plan a product of rows with a tensor that is not split."""
        split = self.split(node.data_inputs[0])
        others = [self.split(tensor) for tensor in node.data_inputs[1:]]
        if split is None or split.axis or any(others) or node.attr("transpose_a", False):
            return None
        return _Plan(split, (0,))

    def batched(self, node: Node) -> _Plan | None:
        """Plan a product of matrices where the rows of the first operand are split."""
        first, shape = node.data_inputs[0], self.shape(node.data_inputs[0])
        split, made = self.split(first), self.shape(node.name)
        if split is None or shape is None or made is None or split.mixed:
            return None
        if split.axis != len(shape) - (1 if node.attr("adj_x", False) else 2):
            return None
        return _Plan(_Split(len(made) - 2), (0,))

    def einsum(self, node: Node) -> _Plan | None:
        """Plan an Einsum whose result keeps the split axis of one operand."""
        terms, _, result = str(node.attr("equation")).replace(" ", "").partition("->")
        labels = terms.split(",")
        if "." in terms or len(labels) != 2:
            return None
        results = []
        for place, tensor in enumerate(node.data_inputs):
            split = self.split(tensor)
            if split is None or split.mixed:
                continue
            label = labels[place][split.axis]
            if label in result[:-1] and label not in labels[1 - place]:
                results.append(_Plan(_Split(result.index(label)), (place,)))
        return results[0] if results else None

    def reduced(self, node: Node) -> _Plan | None:
        """Plan a reduction over other axes."""
        split, shape = self.split(node.data_inputs[0]), self.shape(node.data_inputs[0])
        axes = self._graph.constant(node.data_inputs[1])
        if split is None or shape is None or axes is None:
            return None
        gone = {int(axis) % len(shape) for axis in axes.value.ravel()}
        if split.axis in gone:
            return None
        keeps_dims = node.attr("keep_dims", False)
        fewer = 0 if keeps_dims else sum(axis < split.axis for axis in gone)
        return _Plan(_Split(split.axis - fewer, split.mixed), (0,))

    def transposed(self, node: Node) -> _Plan | None:
        split, order = self.split(node.data_inputs[0]), self._graph.constant(node.data_inputs[1])
        if split is None or order is None or split.mixed:
            return None
        return _Plan(_Split(order.value.tolist().index(split.axis)), (0,))

    def reshaped(self, node: Node) -> _Plan | None:
        """Plan a Reshape between tokens of samples and rows of tokens, or within a row."""
        split, shape = self.split(node.data_inputs[0]), self.shape(node.data_inputs[0])
        const = self._graph.constant(node.data_inputs[1])
        if split is None or shape is None or const is None or split.axis != (not split.mixed):
            return None
        width, sizes = math.prod(shape[1 if split.mixed else 2 :]), const.value.tolist()
        if -1 in shape[1:] or not width or sizes[:1] != [-1] or -1 in sizes[1:]:
            return None
        if len(sizes) == 2 and sizes[1] == width and len(shape) > 1 + (not split.mixed):
            return _Plan(_Split(0, mixed=True), (0,), tuple(sizes))
        if len(sizes) > 2 and sizes[1] == self._tokens and math.prod(sizes[2:]) == width:
            return _Plan(_Split(1), (0,), (-1, self._each, *sizes[2:]))
        return None

    def looked_up(self, node: Node) -> _Plan | None:
        """Plan a lookup of rows in a table."""
        axis = self._graph.constant(node.data_inputs[2])
        split = self.split(node.data_inputs[1])
        if split is None or axis is None or axis.value.any() or node.attr("batch_dims", 0):
            return None
        return None if split.mixed or self.split(node.data_inputs[0]) else _Plan(split, (1,))

    def measured(self, node: Node) -> _Plan | None:
        split = self.split(node.data_inputs[0])
        if split is None or split.mixed:
            return None
        return _Plan(_Split(split.axis, sizes=True), (0,))

    def filled(self, node: Node) -> _Plan | None:
        """Plan a Fill to the shape of a split tensor."""
        split = self._splits.get(node.data_inputs[0])
        return _Plan(_Split(split.axis), (0,)) if split is not None and split.sizes else None


def _kind(node: Node, port: int = 0) -> DType:
    types = output_types(node)
    assert types
    return DType(types[port])


Rule = Callable[[_Splitting, Node], _Plan | None]
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(EACH_ALONE, _Splitting.each_alone),
    **dict.fromkeys(ALONG_THE_LAST, _Splitting.along_the_last),
    **dict.fromkeys(PRODUCTS, _Splitting.product),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _Splitting.batched),
    **dict.fromkeys(REDUCTION_OPS, _Splitting.reduced),
    "Einsum": _Splitting.einsum,
    "Fill": _Splitting.filled,
    "GatherV2": _Splitting.looked_up,
    "Reshape": _Splitting.reshaped,
    "Shape": _Splitting.measured,
    "Transpose": _Splitting.transposed,
}
