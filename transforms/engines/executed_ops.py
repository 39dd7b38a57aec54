"""What OpenVINO executes of a graph: each op with its precision, its time, and the nodes it is of.

Its reader puts Transposes around convolutions and moves them about, by which ops lose the names of
their nodes. So convolutions are named again before a model is compiled, in the order in which the
reader made them, which is that of the nodes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.layers.layers import LAYER_OPS

_KINDS = {
    "Conv2D": ("Convolution", "GroupConvolution"),
    "Conv2DBackpropInput": ("ConvolutionBackpropData",),
    "Conv3D": ("Convolution",),
    "DepthwiseConv2dNative": ("GroupConvolution",),
}
_CONVOLUTIONS = frozenset(kind for kinds in _KINDS.values() for kind in kinds)
_ENDINGS = ("/DequantizationMultiply", "/DequantizationSubtract", "_original")
"""What its 8-bit passes write behind the name of an op that they write anew."""
_COMPUTING = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul", "Subgraph"})
"""Its words for ops that compute a layer; what moves the numbers of one may bear its name too."""
_ON_THE_WAY = frozenset({"Reshape", "Transpose"})
"""What may lie between a layer and the bias that is computed with it, and after which it is named.
"""
_IDLE = frozenset({"Const", "Constant", "Input", "Output", "Parameter", "Result"})


@dataclass(frozen=True)
class Executed:
    """An op that OpenVINO executes, which may compute several nodes."""

    kind: str
    """OpenVINO's word for it, such as Convolution, FullyConnected or Reorder."""
    precision: str
    """In what it computes: f32, bf16, or u8 and i8, which are 8 bits."""
    layer: str = ""
    """The layer of the graph that it computes; empty: none."""
    nodes: tuple[str, ...] = ()
    """The nodes of the graph that are known to be computed by it, the layer first."""
    nanoseconds: int | None = None
    """Its time, the mean of all calls so far; None where calls are not profiled or it never ran."""


class NodeNames:
    """The nodes of a graph, and which op of OpenVINO's model is which of them."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        """Take note of the nodes of a GraphDef."""
        self._ops = {node.name: node.op for node in nodes}
        self._first = {node.name: producer_name(node.input[0]) for node in nodes if node.input}
        self._biased: dict[str, str] = {}
        """By OpenVINO's name of what adds a bias: the layer before it."""

    def give(self, nodes: Iterable[Any], model: Any) -> None:
        """Name the convolutions of a model by the nodes that it was made of, where that is sure."""
        order = [node.friendly_name for node in sorted(nodes, key=_number)]
        layers = [name for name in order if self._ops.get(name) in _KINDS]
        ops = [op for op in model.get_ops() if op.get_type_name() in _CONVOLUTIONS]
        ops.sort(key=_number)
        kinds = [op.get_type_name() for op in ops]
        if len(kinds) == len(layers) and all(  # loops and functions have more of them inside
            kind in _KINDS[self._ops[name]] for kind, name in zip(kinds, layers, strict=True)
        ):
            for op, name in zip(ops, layers, strict=True):
                op.set_friendly_name(name)
        for op in model.get_ops():
            if self._ops.get(op.friendly_name) in LAYER_OPS:
                self._note_bias(op)

    def _note_bias(self, layer: Any) -> None:
        op = layer
        while len(readers := _readers(op)) == 1:
            (op,) = readers
            if op.get_type_name() == "Add":
                self._biased[op.friendly_name] = layer.friendly_name
            if op.get_type_name() not in _ON_THE_WAY:
                return

    def executed(self, compiled: Any) -> tuple[Executed, ...]:
        """Return what a compiled model executes, in order."""
        facts = [
            {key: value.astype(str) for key, value in op.get_rt_info().items()}
            for op in compiled.get_runtime_model().get_ops()
        ]
        facts.sort(key=lambda fact: int(fact["execOrder"]))
        results = [self._executed(fact) for fact in facts if fact["layerType"] not in _IDLE]
        reported = {result.layer for result in results}
        return tuple(self._with_layer(result, reported) for result in results)

    def _with_layer(self, executed: Executed, reported: Collection[str]) -> Executed:
        """Find the layer before what an op is named after, as where a Neg became part of it."""
        if executed.layer or executed.kind not in _COMPUTING - {"Subgraph"}:
            return executed
        for name in executed.nodes:
            while self._ops.get(name) not in (None, *LAYER_OPS):
                name = self._first.get(name, "")
            if name in self._ops and name not in reported:
                return replace(executed, layer=name, nodes=(name, *executed.nodes))
        return executed

    def _executed(self, fact: dict[str, str]) -> Executed:
        names = fact["originalLayersNames"].split(",")
        names += [self._node(name) for name in names]
        named = [self._biased[name] for name in names if name in self._biased]
        named += [name for name in names if name in self._ops]
        named.sort(key=lambda name: self._ops[name] not in LAYER_OPS)
        nodes = tuple(dict.fromkeys(named))
        is_layer = bool(nodes) and self._ops[nodes[0]] in LAYER_OPS
        micros = fact["execTimeMcs"]
        return Executed(
            fact["layerType"],
            fact["runtimePrecision"],
            nodes[0] if is_layer and fact["layerType"] in _COMPUTING else "",
            nodes,
            1000 * int(micros) if micros.isdigit() else None,
        )

    def _node(self, name: str) -> str:
        """Return the node that OpenVINO's name of an op begins with."""
        name = name.removesuffix(":0")
        for ending in _ENDINGS:
            if name not in self._ops:
                name = name.removesuffix(ending)
        return name


def _number(op: Any) -> int:
    """Return the number of an op, which grows from each that is made to the next."""
    return int(op.get_name().rpartition("_")[2])


def _readers(op: Any) -> list[Any]:
    return [input_.get_node() for out in op.outputs() for input_ in out.get_target_inputs()]
