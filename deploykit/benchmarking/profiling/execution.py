"""What TensorFlow executed in one call: which node when, what it moved and what it computed.

The graph that runs is not the model's: Grappler and oneDNN fuse layers with what follows them, and
give the result the name of the last node. So operations are counted on the executed graph alone,
once for each of its layers, from the shapes that its tensors had in the call.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.benchmarking.profiling.costs import FLOPS_OPS, GIVES_ON, item_bytes, layer_flops
from deploykit.transforms.core.node import Node, split, tensor_name
from deploykit.transforms.core.shapes.sizes import Shape
from deploykit.transforms.core.tensors import type_name

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
_ENDS = ("_SOURCE", "_SINK")  # of the executor, no nodes of the graph


@dataclass(frozen=True)
class Event:
    """A node that ran, or what ran for it on a stream of a GPU. Times are in nanoseconds."""

    node: str
    op: str
    device: str
    start: int
    end: int
    allocated: int = 0
    """Bytes, for results and for the time of the run; none where a result takes an input's."""
    moved: int = 0
    """Bytes of all that it reads and writes."""
    flops: int | None = 0
    """Of a layer; None where its shapes are not known."""

    @property
    def on_stream(self) -> bool:
        """Whether it is no run of a node, but of what a node gave to a GPU."""
        of_node = self.device.startswith("/job:")
        return not of_node or "/stream:" in self.device or "/memcpy" in self.device


class ExecutedGraph:
    """The nodes of all devices as TensorFlow ran them."""

    def __init__(self, partition_graphs: Iterable[Any]) -> None:
        """Read them from a call's RunMetadata."""
        nodes = [Node.from_proto(node) for graph in partition_graphs for node in graph.node]
        self._nodes = {node.name: node for node in nodes}
        self._sent = {
            node.attr("tensor_name"): node.data_inputs[0]
            for node in nodes
            if node.op in ("_Send", "_HostSend")
        }

    def events(self, step_stats: Any) -> list[Event]:
        """Return what ran in a call, in order."""
        shapes: dict[str, Shape] = {}
        sizes: dict[str, int] = {}
        runs = [(each, stats) for each in step_stats.dev_stats for stats in each.node_stats]
        for _, stats in runs:
            for output in stats.output:
                tensor = tensor_name(stats.node_name, output.slot)
                found = output.tensor_description
                shapes[tensor] = tuple(axis.size for axis in found.shape.dim)
                sizes[tensor] = math.prod(shapes[tensor]) * item_bytes(type_name(found.dtype))
        events = []
        for device, stats in runs:
            event = _event(stats, device.device)
            if event.node in _ENDS:
                continue
            if not event.on_stream:
                event = self._with_work(event, stats, shapes, sizes)
            events.append(event)
        inside = any(e.node not in self._nodes for e in events if not e.on_stream)
        if inside:  # what a function runs is told apart: its call would count that time again
            events = [event for event in events if event.op not in _CALLS]
        return sorted(events, key=lambda event: (event.start, event.end))

    def _with_work(
        self, event: Event, stats: Any, shapes: dict[str, Shape], sizes: dict[str, int]
    ) -> Event:
        """Return a node's event with the bytes that it moves, and the operations of a layer."""
        node = self._nodes.get(event.node)
        if node is None or node.op != event.op:  # inside a function, whose graph is not told
            return replace(event, flops=0 if layer_of(event.op) is None else None)
        read = self._read(node)
        written = [tensor_name(event.node, output.slot) for output in stats.output]
        bytes_read = sum(sizes.get(tensor, 0) for tensor in read)
        bytes_written = sum(sizes.get(tensor, 0) for tensor in written)
        return replace(
            event,
            moved=_moved(event.op, bytes_read, bytes_written),
            flops=_flops(node, [shapes.get(tensor) for tensor in read], shapes.get(event.node)),
        )

    def _read(self, node: Node) -> list[str]:
        """Return the tensors that a node reads; of a copy from another device, the tensor there."""
        read = []
        for tensor in node.data_inputs:
            producer = self._nodes.get(split(tensor)[0])
            if producer is not None and producer.op in ("_Recv", "_HostRecv"):
                tensor = self._sent.get(producer.attr("tensor_name"), tensor)
            read.append(tensor)
        return read


def layer_of(op: str) -> str | None:
    """Return the layer that an executed op computes, whatever else it does, or None."""
    found = _LAYER.fullmatch(op)
    if found is None:
        return None
    layer = found["layer"]
    return "DepthwiseConv2dNative" if layer == "DepthwiseConv2D" else layer


def _flops(node: Node, read: Sequence[Shape | None], result: Shape | None) -> int | None:
    """Return the operations of a layer, None where a shape is unknown; 0 for other ops."""
    layer = layer_of(node.op)
    if layer is None:
        return 0
    known = [shape for shape in read if shape is not None]
    if result is None or not known or len(known) < len(read):
        return None
    if node.op in _WEIGHTS_LAST:
        known = [known[0], known[-1]]
    return layer_flops(replace(node, op=layer), result, known)


def _moved(op: str, read: int, written: int) -> int:
    if op in _MOVE_NOTHING:
        return 0
    return 2 * written if op in _READ_A_PART else read + written


def _event(stats: Any, device: str) -> Event:
    label = _LABEL.match(stats.timeline_label)
    start = stats.all_start_nanos or stats.all_start_micros * 1000
    end = start + (stats.op_end_rel_nanos or stats.op_end_rel_micros * 1000)
    start += stats.op_start_rel_nanos
    return Event(
        node=stats.node_name,
        op=label["op"] if label else stats.timeline_label,
        device=device,
        start=start,
        end=max(start, end),
        allocated=sum(each.peak_bytes for each in stats.memory),
    )
