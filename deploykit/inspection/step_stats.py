"""The nodes that TensorFlow ran, in order with their devices, and the copies between devices.

RunMetadata has one graph per device, in which a pair of _Send and _Recv nodes represents each copy,
and the output shapes of each node. Call these functions in a child process.
"""

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from deploykit.benchmarking.devices import config
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import Array, numpy_type, type_name
from deploykit.transforms.runtime.session import Session

_SENDS = frozenset({"_HostSend", "_Send"})
_RECEIVES = frozenset({"_HostRecv", "_Recv"})
_FED = re.compile(r"_arg_(.+)_\d+_\d+")  # TensorFlow's node name for a fed tensor
_PART = re.compile(r"/(job|replica|task):([^/]+)|/?(?:device:)?(\w+):(\d+|\*)$|/device:(\w+)$")


def satisfies(device: str, requested: str) -> bool:
    """Return whether a full device name matches a requested one, such as `/gpu:0` or `/job:a`."""
    got = _parts(device)
    return all(got.get(part) == value for part, value in _parts(requested).items())


def _parts(device: str) -> dict[str, str]:
    """Return the parts of a device name, without the wildcard `*`."""
    parts = {}
    for name, value, kind, number, kind_alone in _PART.findall(device):
        if name:
            parts[name] = value
        else:
            parts["kind"] = (kind or kind_alone).upper()
            parts["number"] = number or "*"
    return {name: value for name, value in parts.items() if value != "*"}


def look(
    graph_def: bytes,
    feeds: dict[str, Array],
    outputs: list[str],
    settings: RunConfig,
    cpu_devices: int,
    soft_placement: bool,
) -> dict[str, Any]:
    """Run a graph without and with Grappler; call it in a child process.

    Return the devices, the nodes placed and executed as (name, op, device), and the copies.
    """
    session_config = config(settings)
    session_config.device_count["CPU"] = cpu_devices
    session_config.allow_soft_placement = soft_placement
    seen: dict[str, Any] = {}
    for name, grappler in (("placed", False), ("executed", True)):
        session = Session(graph_def, grappler, session_config)
        seen["devices"] = session.devices
        if settings.device != "cpu" and not any(satisfies(d, "GPU:*") for d in session.devices):
            return seen
        metadata = session.trace(outputs, feeds)
        seen[name] = [
            (_model_name(node.name), node.op, node.device)
            for node in _in_order(metadata.partition_graphs)
            if node.op not in (*_SENDS, *_RECEIVES, "_Retval")
        ]
    seen["copies"] = list(_copies(metadata))
    return seen


def _model_name(name: str) -> str:
    """Return the model's name of a fed tensor, and any other name as it is."""
    fed = _FED.fullmatch(name)
    return fed[1] if fed else name


def _in_order(graphs: Iterable[Any]) -> list[Any]:
    """Return the nodes of all devices in topological order, ignoring the back edges of loops."""
    nodes: dict[tuple[int, str], Any] = {
        (number, node.name): node for number, graph in enumerate(graphs) for node in graph.node
    }
    sends = {_pair(node): key for key, node in nodes.items() if node.op in _SENDS}
    readers: dict[tuple[int, str], list[tuple[int, str]]] = {key: [] for key in nodes}
    missing = dict.fromkeys(nodes, 0)
    for key, node in nodes.items():
        read = {(key[0], split(tensor.removeprefix("^"))[0]) for tensor in node.input}
        if node.op in _RECEIVES and _pair(node) in sends:
            read.add(sends[_pair(node)])
        for other in read:
            if nodes[other].op != "NextIteration":
                readers[other].append(key)
                missing[key] += 1
    ready = deque(key for key, count in missing.items() if not count)
    order = []
    while ready:
        key = ready.popleft()
        order.append(nodes[key])
        for reader in readers[key]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def _pair(node: Any) -> tuple[str, str, str]:
    """Return the key that a _Send and its _Recv share."""
    attrs = node.attr
    return attrs["tensor_name"].s, attrs["send_device"].s, attrs["recv_device"].s


def _copies(metadata: Any) -> Iterator[dict[str, Any]]:
    """Yield the copies of a run, with the output sizes that were traced on the sending devices."""
    given: dict[tuple[str, str, int], list[Any]] = {}
    for stats in metadata.step_stats.dev_stats:
        for node in stats.node_stats:
            for output in node.output:
                key = (stats.device, node.node_name, output.slot)
                given.setdefault(key, []).append(output.tensor_description)
    traced = {stats.device for stats in metadata.step_stats.dev_stats if stats.node_stats}
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    sends = {_pair(node): node for node in nodes if node.op in _SENDS}
    receives = {(node.device, node.name): node for node in nodes if node.op in _RECEIVES}
    to_host = {_pair(node) for node in receives.values() if node.op == "_HostRecv"}
    for node in sends.values():
        first = node
        for _ in sends:  # a forwarded tensor was made on the first device
            name, port = split(first.input[0])
            if (first.device, name) not in receives:
                break
            first = sends[_pair(receives[first.device, name])]
        sent = given.get((first.device, name, port), [])
        shapes = [tuple(size.size for size in item.shape.dim) for item in sent]
        type_ = type_name(node.attr["T"].type)
        yield {
            "tensor": _model_name(name) + (f":{port}" if port else ""),
            "source": node.attr["send_device"].s.decode(),
            "target": node.attr["recv_device"].s.decode(),
            "type": str(type_),
            "shape": shapes[-1] if shapes else None,
            "times": len(sent) if first.device in traced else None,
            "bytes": _bytes(type_, shapes) if first.device in traced else None,
            "to_host": _pair(node) in to_host,
        }


def _bytes(type_: str, shapes: list[tuple[int, ...]]) -> int | None:
    try:
        size = numpy_type(type_).itemsize
    except GraphError:
        return None
    if type_ == "string":
        return None
    return sum(map(math.prod, shapes)) * size
