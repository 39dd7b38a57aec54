"""What TensorFlow executed in one call: time, memory traffic and arithmetic of each node.

A node on a GPU has two parts: the host launches it, and its kernels run on a stream later.
TensorFlow traces the kernels with CUPTI, NVIDIA's library. It reports each of them twice: on its
own stream, and on one of all streams.

The executed graph differs from the model: Grappler and oneDNN fuse layers with the nodes after
them, under the name of the last node. So operations are counted only on the executed graph, once
per layer, from the tensor shapes of the call.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split, tensor_name
from deploykit.transforms.ir.ops import VARIABLE_OPS, op_defs, output_types
from deploykit.transforms.ir.tensors import numpy_type, type_name
from deploykit.transforms.layers.layers import PRIVATE_OPS, WEIGHTS
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes, variable_shape

GIVES_ON = frozenset(
    {"ExpandDims", "Identity", "PreventGradient", "Reshape", "Snapshot", "Squeeze", "StopGradient"}
)


def memory(graph: Graph, shapes: Shapes, top: int) -> dict[str, Any]:
    """Return the bytes of constants, variables and computed tensors, and the largest nodes.

    The bytes of a node are those of its first output. Computed tensors are added up as if no memory
    were reused. Nodes that pass on their input, such as Reshape, and nodes of unknown shape are
    skipped.
    """
    results: list[dict[str, Any]] = []
    sums = Counter({"constants": 0, "variables": 0, "computed": 0})
    for node in graph:
        type_ = _stored_type(node)
        is_variable = node.op in VARIABLE_OPS
        shape = variable_shape(node) if is_variable else shapes.full_shape(node.name)
        if type_ is None or shape is None or node.op in GIVES_ON:
            continue
        size = prod(shape) * item_bytes(type_)
        kind = "constants" if node.op == "Const" else "computed"
        sums["variables" if is_variable else kind] += size
        results.append({"node": node.name, "op": node.op, "type": type_, "shape": list(shape),
                      "bytes": size})  # fmt: skip
    results = [result for result in results if result["bytes"]]
    results.sort(key=lambda item: -item["bytes"])
    return {f"{kind}_bytes": size for kind, size in sums.items()} | {"nodes": results[:top]}


def _stored_type(node: Node) -> str | None:
    """Return the dtype of a node's first output, or of a variable's value."""
    if node.op in VARIABLE_OPS:
        type_ = node.attr("dtype")
        return None if type_ is None else str(type_)
    types = output_types(node) if node.op in op_defs() else None
    return str(types[0]) if types else None


def item_bytes(type_: str) -> int:
    """Return the bytes of an element; 0 for strings and handles, whose size is unknown."""
    if type_ == "string":
        return 0
    try:
        return numpy_type(type_).itemsize
    except GraphError:
        return 0


def flops(graph: Graph, shapes: Shapes) -> dict[str, Any]:
    """Return the floating-point operations of the layers; a multiply-add counts as two.

    `unknown` is the number of layers of unknown shape, which are skipped.
    """
    by_op: Counter[str] = Counter()
    unknown = 0
    for node in graph:
        if node.op not in FLOPS_OPS:
            continue
        sizes = operands(node, shapes)
        if sizes is None:
            unknown += 1
        else:
            by_op[node.op] += sizes.flops
    return {
        "total": sum(by_op.values()),
        "by_op": dict(by_op.most_common()),
        "unknown": unknown,
    }


@dataclass(frozen=True)
class Operands:
    """Shapes of a layer, and its floating-point operations."""

    result: Shape
    read: list[Shape]
    flops: int


def operands(node: Node, shapes: Shapes) -> Operands | None:
    """Return the shapes of a layer; None if one is unknown."""
    read = 2 if node.op in PRIVATE_OPS else len(node.data_inputs)  # the rest is not multiplied
    every = [shapes.full_shape(tensor) for tensor in node.data_inputs[:read]]
    known = [shape for shape in every if shape is not None]
    result = shapes.full_shape(node.name)
    if result is None or len(known) < len(every):
        return None
    return Operands(result, known, layer_flops(node, result, known))


def layer_flops(node: Node, result: Shape, shapes: list[Shape]) -> int:
    """Return the floating-point operations of a layer whose shapes are known."""
    return 2 * _FLOPS[node.op](node, result, shapes)


def _matmul(node: Node, result: Shape, shapes: list[Shape]) -> int:
    transposed = node.attr("transpose_a", False) or node.attr("adj_x", False)
    return prod(result) * shapes[0][-2 if transposed else -1]


_FLOPS: dict[str, Callable[[Node, Shape, list[Shape]], int]] = {
    "BatchMatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "BatchMatMulV3": _matmul,
    "Conv2D": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:-1]),
    # Each input value contributes to every position of the window and every channel.
    "Conv2DBackpropInput": lambda _, result, shapes: prod(shapes[2]) * prod(shapes[WEIGHTS][:3]),
    "Conv3D": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:-1]),
    "DepthwiseConv2dNative": lambda _, result, shapes: prod(result) * prod(shapes[WEIGHTS][:2]),
    "MatMul": _matmul,
}
_FLOPS |= {op: _FLOPS[layer] for op, layer in PRIVATE_OPS.items()}
FLOPS_OPS = frozenset(_FLOPS)


_LABEL = re.compile(r"^(?:\[.*?\] )?\S+ = (?P<op>\w+)\(")
_LAYER = re.compile(
    r"_{0,2}(?:Mkl)?(?:Native)?(?:PadWith)?(?:Fused)?(?:(?:ResizeAnd)?Pad)?(?:Quantized)?"
    rf"(?P<layer>{'|'.join(sorted(FLOPS_OPS, key=len, reverse=True))}|DepthwiseConv2D)"
    r"(?:(?:With|And|PerChannel)\w*)?"
)
_WEIGHTS_LAST = frozenset({"FusedPadConv2D", "FusedResizeAndPadConv2D"})
_MOVE_NOTHING = GIVES_ON | {"Const", "NoOp", "Rank", "Shape", "Size", "_Arg", "_Retval"}
_READ_A_PART = frozenset(
    {"Gather", "GatherNd", "GatherV2", "ResourceGather", "Slice", "StridedSlice"}
)
_CALLS = frozenset(
    {
        "Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf",
        "StatelessWhile", "While",
    }
)  # fmt: skip
_ENDS = ("_SOURCE", "_SINK")  # of the executor, not nodes of the graph
_STREAM = re.compile(
    r"/device:GPU:\d+/(?:stream:(?P<stream>\w*)(?:<(?P<copy>\w+)>)?|(?P<other>\w+))$"
)
_OF_NODE = re.compile(r"(?P<node>[^:\s]+):(?P<op>\w+)$")
_DETAILS = re.compile(r" (?=[a-z_]+:[^:\s])")
_SIZE = re.compile(r"\bsize:(\d+)")
_OTHER_CLOCK = 3600 * 10**9  # nanoseconds; no call lasts as long, so the clocks differ
_OF_HOST = ("node", "launch")


@dataclass(frozen=True)
class Event:
    """The run of a node, or its work on a GPU stream. Times are in nanoseconds."""

    node: str
    op: str
    device: str
    start: int
    end: int
    allocated: int = 0
    """Bytes allocated for results and temporary memory; 0 if a result reuses an input's memory."""
    moved: int = 0
    """Bytes read and written."""
    flops: int | None = 0
    """Floating-point operations of a layer; None if its shapes are unknown."""
    label: str = ""
    """Name of the work on a stream, for example of the kernel."""

    @property
    def kind(self) -> str:
        """Kind of the event, derived from its device.

        `node`: a node runs on the CPU. `launch`: the host launches a node on a GPU. `wait`: the
        host waits for a stream. On a GPU stream: `kernel`; `copy`, whose op is its direction, such
        as `MemcpyH2D`; or `again`, a duplicate of one of these.
        """
        match = _STREAM.search(self.device)
        if match is None:
            return "launch" if "/device:GPU:" in self.device else "node"
        if match["other"] is not None:
            return "again" if match["other"] == "memcpy" else "wait"
        if match["stream"] == "all":
            return "again"
        return "kernel" if match["copy"] is None else "copy"

    @property
    def ms(self) -> float:
        """Duration in milliseconds."""
        return (self.end - self.start) / 1e6


class ExecutedGraph:
    """The nodes of all devices, as TensorFlow ran them."""

    def __init__(self, partition_graphs: Iterable[Any]) -> None:
        """Read the partition graphs of a call's RunMetadata."""
        nodes = [Node.from_proto(node) for graph in partition_graphs for node in graph.node]
        self._nodes = {node.name: node for node in nodes}
        self._sent = {
            node.attr("tensor_name"): node.data_inputs[0]
            for node in nodes
            if node.op in ("_Send", "_HostSend")
        }

    def events(self, step_stats: Any) -> list[Event]:
        """Return the events of a call, in order of their start."""
        shapes: dict[str, Shape] = {}
        sizes: dict[str, int] = {}
        runs = [
            (dev_stat, stats) for dev_stat in step_stats.dev_stats for stats in dev_stat.node_stats
        ]
        for _, stats in runs:
            for output in stats.output:
                tensor = tensor_name(stats.node_name, output.slot)
                result = output.tensor_description
                shapes[tensor] = tuple(axis.size for axis in result.shape.dim)
                sizes[tensor] = math.prod(shapes[tensor]) * item_bytes(type_name(result.dtype))
        events = []
        for device, stats in runs:
            event = _event(stats, device.device)
            if event.node in _ENDS or event.kind == "again":
                continue
            if event.kind in _OF_HOST:
                event = self._with_work(event, stats, shapes, sizes)
            events.append(event)
        inside = any(e.node not in self._nodes for e in events if e.kind in _OF_HOST)
        if inside:  # the nodes of a function are listed too: its call would count their time twice
            events = [event for event in events if event.op not in _CALLS]
        return sorted(_by_one_clock(events), key=lambda event: (event.start, event.end))

    def _with_work(
        self, event: Event, stats: Any, shapes: dict[str, Shape], sizes: dict[str, int]
    ) -> Event:
        """Return a node's event with its bytes moved and, for a layer, its operations."""
        node = self._nodes.get(event.node)
        if node is None or node.op != event.op:  # inside a function, whose graph is not reported
            return replace(event, flops=0 if layer_of(event.op) is None else None)
        read = self._read(node)
        written = [tensor_name(event.node, output.slot) for output in stats.output]
        moved = sum(sizes.get(tensor, 0) for tensor in written)
        if event.op in _MOVE_NOTHING:
            moved = 0
        elif event.op in _READ_A_PART:
            moved *= 2
        else:
            moved += sum(sizes.get(tensor, 0) for tensor in read)
        return replace(
            event,
            moved=moved,
            flops=_flops(node, [shapes.get(tensor) for tensor in read], shapes.get(event.node)),
        )

    def _read(self, node: Node) -> list[str]:
        """Return the tensors that a node reads; a received tensor is replaced by the one sent."""
        read = []
        for tensor in node.data_inputs:
            producer = self._nodes.get(split(tensor)[0])
            if producer is not None and producer.op in ("_Recv", "_HostRecv"):
                tensor = self._sent.get(producer.attr("tensor_name"), tensor)
            read.append(tensor)
        return read


def layer_of(op: str) -> str | None:
    """Return the layer op that an executed op contains, such as `Conv2D`, or None."""
    match = _LAYER.fullmatch(op)
    if match is None:
        return None
    layer = match["layer"]
    return "DepthwiseConv2dNative" if layer == "DepthwiseConv2D" else layer


@dataclass(frozen=True)
class Layers:
    """The layers of a model, as TensorFlow ran them."""

    types: Mapping[str, int]
    """Number of layers by compute type, where the type is known."""
    on_cpu: Mapping[str, int]
    """Number of layers on the CPU, by op."""
    on_gpu: int

    @classmethod
    def of(cls, partition_graphs: Iterable[Any]) -> "Layers":
        """Count the layers in the partition graphs of a call's RunMetadata."""
        nodes = [Node.from_proto(node) for graph in partition_graphs for node in graph.node]
        layers = [node for node in nodes if layer_of(node.op)]
        on_cpu = Counter(node.op for node in layers if "/device:GPU:" not in node.device)
        types = Counter(type_ for node in layers if (type_ := _type(node)))
        return cls(types, on_cpu, len(layers) - on_cpu.total())


def _type(node: Node) -> str:
    """Return the compute type of a layer; empty if the node is not a layer, or has no type."""
    if layer_of(node.op) is None or "T" not in node.attrs:
        return ""
    return str(node.attr("T"))


def _flops(node: Node, read: Sequence[Shape | None], result: Shape | None) -> int | None:
    """Return the operations of a layer, None if a shape is unknown; 0 for other ops."""
    layer = layer_of(node.op)
    if layer is None:
        return 0
    known = [shape for shape in read if shape is not None]
    if result is None or not known or len(known) < len(read):
        return None
    if node.op in _WEIGHTS_LAST:
        known = [known[0], known[-1]]
    return layer_flops(replace(node, op=layer), result, known)


def _by_one_clock(events: Sequence[Event]) -> list[Event]:
    """Return events with GPU streams shifted to the host's clock if the two clocks differ."""
    streams = [event for event in events if event.kind not in _OF_HOST]
    host = [event for event in events if event.kind in _OF_HOST]
    if not streams or not host:
        return list(events)
    launches = [event for event in host if event.kind == "launch"] or host
    shift = min(event.start for event in launches) - min(event.start for event in streams)
    if abs(shift) < _OTHER_CLOCK:
        return list(events)
    return host + [replace(e, start=e.start + shift, end=e.end + shift) for e in streams]


def _event(stats: Any, device: str) -> Event:
    label = _LABEL.match(stats.timeline_label)
    start = stats.all_start_nanos or stats.all_start_micros * 1000
    end = start + (stats.op_end_rel_nanos or stats.op_end_rel_micros * 1000)
    start += stats.op_start_rel_nanos
    event = Event(
        node=stats.node_name,
        op=label["op"] if label else stats.timeline_label,
        device=device,
        start=start,
        end=max(start, end),
        allocated=sum(item.peak_bytes for item in stats.memory),
    )
    return event if event.kind in _OF_HOST else _on_stream(event, stats.timeline_label)


def _on_stream(event: Event, label: str) -> Event:
    """Return a stream event with its node, op and label, and the bytes of a copy.

    TensorFlow names an event `NODE:OP` if it knows the node, otherwise after the kernel.
    """
    of_node, stream, size = (
        _OF_NODE.match(event.node), _STREAM.search(event.device), _SIZE.search(label)
    )  # fmt: skip
    assert stream is not None
    is_copy = event.kind == "copy"
    return replace(
        event,
        node=of_node["node"] if of_node else "",
        op=stream["copy"] if is_copy else of_node["op"] if of_node else event.node,
        label=_DETAILS.split(label, 1)[0],
        moved=int(size[1]) if size and is_copy else 0,
    )
