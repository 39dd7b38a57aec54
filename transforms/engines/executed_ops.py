"""The ops that OpenVINO executes for a graph, with their precision, time and graph nodes.

OpenVINO's frontend adds Transposes around convolutions and moves them, so ops lose their node
names. So convolutions are named again before a model is compiled, in the order of the frontend,
which is that of the nodes.
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
"""Suffixes that OpenVINO's int8 passes add to the name of a rewritten op."""
_COMPUTING = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul", "Subgraph"})
"""Types of ops that run a layer; ops that move its values may have its name too."""
_ON_THE_WAY = frozenset({"Reshape", "Transpose"})
"""Ops that may be between a layer and its fused bias, and that name the fused op."""
_IDLE = frozenset({"Const", "Constant", "Input", "Output", "Parameter", "Result"})


@dataclass(frozen=True)
class Executed:
    """An op that OpenVINO executes, which may replace several nodes."""

    kind: str
    """OpenVINO's type of the op, such as Convolution, FullyConnected or Reorder."""
    precision: str
    """Type in which it computes: f32, bf16, or u8 and i8 for int8."""
    layer: str = ""
    """The layer of the graph that it runs; empty: none."""
    nodes: tuple[str, ...] = ()
    """The graph nodes that it is known to replace, the layer first."""
    nanoseconds: int | None = None
    """Its mean time over all calls; None: calls are not profiled, or it never ran."""


class NodeNames:
    """The nodes of a graph, and the ops of OpenVINO's model that represent them."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        """Index the nodes of a GraphDef."""
        self._ops = {node.name: node.op for node in nodes}
        self._first = {node.name: producer_name(node.input[0]) for node in nodes if node.input}
        self._biased: dict[str, str] = {}
        """The layer before each op that adds a bias, by OpenVINO's name of the op."""

    def give(self, nodes: Iterable[Any], model: Any) -> None:
        """Name the convolutions of a model after their nodes, if the match is unique."""
        order = [node.friendly_name for node in sorted(nodes, key=_number)]
        layers = [name for name in order if self._ops.get(name) in _KINDS]
        ops = [op for op in model.get_ops() if op.get_type_name() in _CONVOLUTIONS]
        ops.sort(key=_number)
        kinds = [op.get_type_name() for op in ops]
        if len(kinds) == len(layers) and all(  # loops and functions contain more of them
            kind in _KINDS[self._ops[name]] for kind, name in zip(kinds, layers, strict=True)
        ):
            for op, name in zip(ops, layers, strict=True):
                op.set_friendly_name(name)
        for op in model.get_ops():
            if self._ops.get(op.friendly_name) in LAYER_OPS:
                self._note_bias(op)

    def _note_bias(self, layer: Any) -> None:
        op = layer
        while len(readers := [i for out in op.outputs() for i in out.get_target_inputs()]) == 1:
            op = readers[0].get_node()
            if op.get_type_name() == "Add":
                self._biased[op.friendly_name] = layer.friendly_name
            if op.get_type_name() not in _ON_THE_WAY:
                return

    def executed(self, compiled: Any) -> tuple[Executed, ...]:
        """Return the ops that a compiled model executes, in order."""
        facts = [
            {key: value.astype(str) for key, value in op.get_rt_info().items()}
            for op in compiled.get_runtime_model().get_ops()
        ]
        facts.sort(key=lambda fact: int(fact["execOrder"]))
        results = [self._executed(fact) for fact in facts if fact["layerType"] not in _IDLE]
        reported = {result.layer for result in results}
        return tuple(self._with_layer(result, reported) for result in results)

    def _with_layer(self, executed: Executed, reported: Collection[str]) -> Executed:
        """Find the layer of an op that is named after a later node, such as a fused Neg."""
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
        """Return the node name at the start of OpenVINO's name of an op."""
        name = name.removesuffix(":0")
        for ending in _ENDINGS:
            if name not in self._ops:
                name = name.removesuffix(ending)
        return name


def _number(op: Any) -> int:
    """Return the number of an op, which increases in the order of creation."""
    return int(op.get_name().rpartition("_")[2])
