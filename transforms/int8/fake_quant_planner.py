"""Int8 plan of a graph with fake-quant ops, and the placement of these ops."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from deploykit.transforms.int8.affine_codes import CODES, Form
from deploykit.transforms.int8.fake_quants import ARGS, OPS, VARS, form_of_tensor, grid_of
from deploykit.transforms.int8.plan import Planner
from deploykit.transforms.int8.ranges import Ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.pattern import needed_elsewhere
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import LAYER_OPS, weights_of

_MOVED_OVER = frozenset({"ConcatV2", "ExpandDims", "MaxPool", "Reshape", "Squeeze"})
"""Ops that pass values on: a fake-quant before them has the same effect as one after them."""
_IN_CHAINS = frozenset({"Add", "AddV2", "BiasAdd", "Relu", "Relu6"})


def place_fake_quants(graph: Graph) -> None:
    """Move fake-quants before ops that only move values, if their only source is a layer.

    TF-MOT places the fake-quant of a concatenation after it, and none at the layers before. Ranges
    in attributes become constants.
    """
    for node in tuple(graph):
        if node.op == ARGS:
            _with_constant_range(graph, node)
    waiting = [node.name for node in graph if node.op == VARS]
    for name in waiting:  # the list grows in the loop
        waiting += _raised(graph, graph[name])


def _with_constant_range(graph: Graph, node: Node) -> None:
    values = (("min", node.attr("min", -6.0)), ("max", node.attr("max", 6.0)))
    ends = [
        graph.constant_beside(node, np.array(value, np.float32), f"{node.name}/{end}").name
        for end, value in values
    ]
    inputs = (*node.data_inputs, *ends, *node.control_inputs)
    retained = {n: a for n, a in node.attrs.items() if n in ("num_bits", "narrow_range")}
    graph.replace(node, Node(node.name, VARS, inputs, retained, node.device))


def _raised(graph: Graph, node: Node) -> list[str]:
    """Move a fake-quant before its input op; return the names of the new fake-quants."""
    moves = graph.producer(node.data_inputs[0])
    if moves.op not in _MOVED_OVER or not graph.feeds_only(moves, node):
        return []
    if isinstance(grid_of(graph, node), str):
        return []
    tensors = moves.data_inputs[:-1] if moves.op == "ConcatV2" else moves.data_inputs[:1]
    if not any(_is_made_by_layer(graph, tensor, moves) for tensor in dict.fromkeys(tensors)):
        return []
    raised = dict[str, str]()
    for tensor in dict.fromkeys(tensors):
        name = graph.unique_name(f"{node.name}/{producer_name(tensor).rpartition('/')[2]}")
        before = node.with_name(name).with_data_inputs(tensor, *node.data_inputs[1:])
        raised[tensor] = graph.add(before).name
    rest = moves.data_inputs[len(tensors) :]
    new = moves.with_name(node.name).with_data_inputs(*map(raised.__getitem__, tensors), *rest)
    graph.absorb([moves, node], into=new)
    return list(raised.values())


def _is_made_by_layer(graph: Graph, tensor: str, reader: Node) -> bool:
    """Return whether a layer with its fused ops computes a tensor for this reader only."""
    while True:
        node = graph.producer(tensor)
        if not graph.feeds_only(node, reader):
            return False
        if node.op in LAYER_OPS:
            return True
        if node.op in _MOVED_OVER:
            inputs = node.data_inputs[:-1] if node.op == "ConcatV2" else node.data_inputs[:1]
            return any(_is_made_by_layer(graph, input_, node) for input_ in inputs)
        if node.op not in _IN_CHAINS:
            return False
        if node.op in ("Add", "AddV2"):
            return any(_is_made_by_layer(graph, input_, node) for input_ in node.data_inputs)
        tensor, reader = node.data_inputs[0], node


_MOVING_OPS = (
    "BatchToSpaceND DepthToSpace ExpandDims Gather GatherV2 Identity MaxPool MirrorPad Pad Relu "
    "Reshape ResizeNearestNeighbor Reverse ReverseV2 Slice SpaceToBatchND SpaceToDepth Squeeze "
    "StopGradient StridedSlice Tile Transpose"
)
_MOVING = frozenset(_MOVING_OPS.split())
"""Ops whose results are values of their first input, or zero."""


class FakeQuantPlanner(Planner):
    """Plans layers with the codes of their fake-quants."""

    keeps_offset = Planner.keeps_offset | {"ConcatV2", "MaxPool"}

    def __init__(
        self,
        graph: Graph,
        stated: Collection[str],
        reasons: Mapping[str, str],
        listed: Collection[str] = (),
    ) -> None:
        """Create a planner for a float32 graph with the fake-quants of activations.

        `stated` are the layers whose weights have int8 codes, `listed` those to keep in float32,
        and `reasons` those of `StatedWeights.refused`.
        """
        super().__init__(graph, Ranges("", 1, {}), listed)
        self.plan.has_fake_quants = True
        self._stated = stated
        self._reasons = reasons

    def missing(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return the tensors that layers need in int8 and that have no fake-quant.

        The first result maps tensors to their reading layers, the second lists results of
        convolutions.
        """
        read, made = defaultdict[str, list[str]](list), list[str]()
        for layer in map(self.graph.__getitem__, self.graph.order()):
            if layer.name not in self._stated or self._unfit(layer):
                continue
            source, last = layer.data_inputs[0], self._chain(layer).nodes[-1]
            if self._form_through(source) is None:
                read[source].append(layer.name)
            if layer.op != "MatMul" and last.op not in OPS:
                made.append(last.name)
        return dict(read), made

    def form_made(self, tensor: str) -> Form | str:
        """Return the codes of a convolution's result, or the reason why it has none.

        The kernel clips at code 0 and at code 255. So if a Relu clips above the lowest value of the
        fake-quant, code 0 is zero, and fewer codes are in use.
        """
        node = self.graph[tensor]
        if node.op not in OPS:
            return f"no fake-quant follows '{tensor}'"
        form = form_of_tensor(self.graph, node)
        if isinstance(form, str):
            return form
        activation = self.graph.producer(node.data_inputs[0]).op
        if activation not in ("Relu", "Relu6"):
            return form
        top = form.top - form.zero
        if activation == "Relu6":
            top = min(top, int(np.floor(6 / form.step + 0.5)))
        if top < 1:
            return f"the range of fake-quant '{tensor}' ends at zero"
        return replace(form, offset=0.0, top=top)

    def form_of_product(self, chain: Chain) -> Form | None:
        """Return the codes of a MatMul's result, or None for floats."""
        last = chain.nodes[-1]
        if last.op not in OPS or not self._is_multiplied(last.name):
            return None
        form = form_of_tensor(self.graph, last)
        return None if isinstance(form, str) or form.top < CODES else form

    def form_of_float(self, layer: Node, source: str) -> Form | str:
        """Return the codes of a float tensor that a layer reads, or the reason why it has none."""
        form = self._form_through(source)
        if form is None:
            return f"no fake-quant is between '{source}' and it"
        if isinstance(form, str):
            return form
        if form.offset:
            zeros = self.zeros_of(layer, source)
            if zeros is None:
                return "the size of its input is not known, and so are the zeros around it"
            self.put_around(layer, zeros)
        return form

    def _form_through(self, tensor: str) -> Form | str | None:
        """Return the codes of a tensor whose values come from one fake-quant, or from equal ones.

        None: they come from no fake-quant.
        """
        while not self.graph.is_input(tensor):
            name, _ = split(tensor)
            node = self.graph[name]
            if node.op in OPS:
                return form_of_tensor(self.graph, node)
            if node.op in ("ConcatV2", "Pack"):
                inputs = node.data_inputs[: -1 if node.op == "ConcatV2" else None]
                first, *others = map(self._form_through, inputs)
                return first if all(other == first for other in others) else None
            if node.op in ("Split", "SplitV"):
                tensor = node.data_inputs[1 if node.op == "Split" else 0]
            elif node.op in _MOVING:
                tensor = node.data_inputs[0]
            else:
                return None
        return None

    def _unfit(self, layer: Node) -> str:
        if layer.name not in self._listed and weights_of(self.graph, layer) is None:
            for tensor in layer.data_inputs[1:2]:
                above = self.graph.ancestors([split(tensor)[0]])
                if above.isdisjoint(map(producer_name, self.graph.inputs)):
                    for name in above & self._reasons.keys():
                        return self._reasons[name]
        if reason := super()._unfit(layer):
            return reason
        if layer.name in self._stated:
            return ""
        return self._reasons.get(layer.name, "its weights have no fake-quant")

    def _chain(self, layer: Node, can_add: Callable[[str, str], bool] | None = None) -> Chain:
        """Return the nodes that the kernel of a layer replaces, with the fake-quant after it."""
        result = super()._chain(layer, can_add)
        last = result.nodes[-1]
        readers = self.graph.readers(last.name)
        if len(readers) != 1 or readers[0].op not in OPS:
            return result
        if readers[0].data_inputs[0] != last.name or needed_elsewhere(self.graph, [last, *readers]):
            return result
        longer = replace(result, nodes=(*result.nodes, readers[0]))
        if layer.op == "MatMul" and self.form_of_product(longer) is None:
            return result
        return longer

    def _take_passing(self, node: Node) -> None:
        """Plan an op that passes codes on, if all its inputs have the same codes."""
        tensors = node.data_inputs[:-1] if node.op == "ConcatV2" else node.data_inputs[:1]
        if len({self.plan.forms.get(tensor) for tensor in tensors}) == 1:
            super()._take_passing(node)
