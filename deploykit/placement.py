"""Where each node of a graph really runs, and what is copied between devices for it.

The graph runs twice in a child process: once as it stands, which shows where TensorFlow places each
node of the model, and once as a user runs it, after TensorFlow's own graph optimizer has folded and
fused nodes. Both are read off what TensorFlow ran, one graph a device, in which a pair of _Send and
_Recv nodes stands for each copy.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.settings import Settings
from deploykit.doctoring import gpu_refusal
from transforms.core.child import Worker
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.node import split
from transforms.core.tensors import Array, numpy_type, type_name

_SENDS = frozenset({"_HostSend", "_Send"})
_RECEIVES = frozenset({"_HostRecv", "_Recv"})
_FED = re.compile(r"_arg_(.+)_\d+_\d+")  # how TensorFlow calls what is fed in place of a tensor
_PART = re.compile(r"/(job|replica|task):([^/]+)|/?(?:device:)?(\w+):(\d+|\*)$|/device:(\w+)$")
_LOCAL = "/job:localhost/replica:0/task:0/device:"
_SHOWN = 10  # names in a line of text; --json has them all


@dataclass(frozen=True)
class PlacedNode:
    """A node, the device that the model asks for and the one it got."""

    name: str
    op: str
    asked: str | None
    """Empty: the model leaves it open. None: TensorFlow made the node."""
    got: str

    @property
    def fell_back(self) -> bool:
        """Whether the model asked for another device."""
        return not satisfies(self.got, self.asked or "")


@dataclass(frozen=True)
class Copy:
    """A tensor that one device sends to another, as in the run that was looked at."""

    tensor: str
    source: str
    target: str
    type: str
    shape: tuple[int, ...] | None
    """None: not known, or not sent in this run."""
    times: int | None
    """More than once a run in a loop. None: not known."""
    bytes: int | None
    """A run. None: not known, as for strings."""
    to_host: bool
    """Whether the target takes it in the host's memory, not in its own."""


@dataclass(frozen=True)
class Placement:
    """Where the nodes of a model run."""

    devices: tuple[str, ...]
    """Those that TensorFlow has."""
    model_nodes: int
    """Those that the outputs need."""
    placed: tuple[PlacedNode, ...]
    """The nodes of the model as TensorFlow places them, in execution order."""
    executed: tuple[PlacedNode, ...]
    """What TensorFlow ran, in execution order, without copies."""
    folded: tuple[str, ...]
    """The nodes of the model that were folded or fused before it ran."""
    copies: tuple[Copy, ...]

    @property
    def fallbacks(self) -> tuple[PlacedNode, ...]:
        """The nodes that silently got another device than the model asks for."""
        return tuple(node for node in self.placed if node.fell_back)

    @property
    def copied_bytes(self) -> int:
        """Of all copies whose size is known, in one run."""
        return sum(copy.bytes or 0 for copy in self.copies)

    def why(self, node: PlacedNode) -> str:
        """Say why a node did not get the device that it asked for."""
        if any(satisfies(device, node.asked or "") for device in self.devices):
            return "it has no kernel there, or has to be beside another node"
        return "there is no such device"

    def log(self) -> Iterator[str]:
        """Yield a line for each node, as TensorFlow's log_device_placement writes it."""
        for node in self.placed:
            yield f"{node.name}: ({node.op}): {node.got}"

    def document(self) -> dict[str, Any]:
        """Return everything as plain data."""
        by_device: dict[str, Counter[str]] = {device: Counter() for device in self.devices}
        for node in self.executed:
            by_device.setdefault(node.got, Counter())[node.op] += 1
        return {
            "devices": list(self.devices),
            "model_nodes": self.model_nodes,
            "folded": list(self.folded),
            "nodes": [
                {"node": n.name, "op": n.op, "asked": n.asked, "got": n.got} for n in self.executed
            ],
            "fallbacks": [
                {"node": n.name, "op": n.op, "asked": n.asked, "got": n.got, "why": self.why(n)}
                for n in self.fallbacks
            ],
            "copies": [asdict(copy) for copy in self.copies],
            "copied_bytes": self.copied_bytes,
            "copies_of_unknown_size": sum(copy.bytes is None for copy in self.copies),
            "ops_by_device": {d: dict(ops.most_common()) for d, ops in by_device.items()},
        }


def placement(
    graph: Graph,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Mapping[str, Array] | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    cpu_devices: int = 1,
    soft_placement: bool = True,
    device: str = "cpu",
) -> Placement:
    """Run a graph and return where its nodes ran.

    Args:
        graph: a frozen graph.
        batch: samples at once. Default: as many as an input demands, or one.
        shapes: sizes of inputs that the graph leaves open, by name.
        data: arrays by input name, samples along the first axis; default: made up, seed 0.
        input_range: of made-up floats.
        cpu_devices: how many devices the CPU is shown as, to try a placement without a GPU.
        soft_placement: give a node another device where it cannot have the one it asks for.
        device: cpu, gpu or gpu:N: what TensorFlow may see.

    GraphError: an input has no known shape, TensorFlow cannot run the graph, or, without
    `soft_placement`, a node cannot have its device.
    """
    feeds = batches(graph, batch, shapes, data, input_range)[0]
    settings = Settings(device=device)
    worker = Worker(
        "deploykit.placement:look",
        b"".join(graph.serialized()),
        dict(zip(graph.inputs, feeds, strict=True)),
        list(graph.outputs),
        settings,
        cpu_devices,
        soft_placement,
        forced={"CUDA_VISIBLE_DEVICES": "-1"} | settings.environment,
    )
    with closing(worker):
        try:
            seen = worker.made()
        except GraphError as error:
            raise _in_a_sentence(error) from None
    if "executed" not in seen:
        raise GraphError(gpu_refusal() or "TensorFlow sees no GPU")
    live = graph.copy()
    live.prune()
    executed = {name: op for name, op, _ in seen["executed"]}
    return Placement(
        devices=tuple(seen["devices"]),
        model_nodes=len(live),
        placed=tuple(
            PlacedNode(name, live[name].op, "" if live.is_input(name) else live[name].device, got)
            for name, _, got in seen["placed"]
            if name in live
        ),
        executed=tuple(
            PlacedNode(name, op, _asked(live, name), got) for name, op, got in seen["executed"]
        ),
        folded=tuple(
            node.name
            for node in live
            if not live.is_input(node.name)
            and (node.name not in executed or (executed[node.name] == "Const" != node.op))
        ),
        copies=tuple(Copy(**copy) for copy in seen["copies"]),
    )


def _asked(graph: Graph, name: str) -> str | None:
    if name not in graph:
        return None
    return "" if graph.is_input(name) else graph[name].device  # what is fed comes from the host


def _in_a_sentence(error: GraphError) -> GraphError:
    found = re.search(r"Cannot assign a device for operation [^:]+: (.*)", str(error))
    if found is None:
        return error
    why = found[1].partition(". Make sure")[0].replace("{{", "").replace("}}", "")
    return GraphError(
        f"{why}; leave out --no-soft-placement, or change what the model asks for with "
        "deploykit transform (set_device, remove_device)"
    )


def satisfies(device: str, asked: str) -> bool:
    """Say whether a device's full name is what a node asks for, such as `/gpu:0` or `/job:a`."""
    got = _parts(device)
    return all(got.get(part) == value for part, value in _parts(asked).items())


def _parts(device: str) -> dict[str, str]:
    """Return the parts of a device's name that say something; `*` says nothing."""
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
    settings: Settings,
    cpu_devices: int,
    soft_placement: bool,
) -> dict[str, Any]:
    """Run a graph without and with Grappler; this is done in a child process."""
    from deploykit.benchmarking.runner import config
    from transforms.core.session import Session

    wanted = config(settings)
    wanted.device_count["CPU"] = cpu_devices
    wanted.allow_soft_placement = soft_placement
    seen: dict[str, Any] = {}
    for name, grappler in (("placed", False), ("executed", True)):
        session = Session(graph_def, grappler, wanted)
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
    """Return the name in the model of what is fed, and any other name as it is."""
    fed = _FED.fullmatch(name)
    return fed[1] if fed else name


def _in_order(graphs: Iterable[Any]) -> list[Any]:
    """Return the nodes of all devices so that each comes after what it reads, loops aside."""
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
    """Return what a _Send and its _Recv have in common."""
    attrs = node.attr
    return attrs["tensor_name"].s, attrs["send_device"].s, attrs["recv_device"].s


def _copies(metadata: Any) -> Iterator[dict[str, Any]]:
    """Yield the copies of a run, with the sizes of what the senders' producers gave in it."""
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
        for _ in sends:  # what is passed on was given by who sent it first
            name, port = split(first.input[0])
            if (first.device, name) not in receives:
                break
            first = sends[_pair(receives[first.device, name])]
        sent = given.get((first.device, name, port), [])
        shapes = [tuple(size.size for size in each.shape.dim) for each in sent]
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


def lines(found: Placement) -> Iterator[str]:
    """Yield a placement as text: nodes, fallbacks, copies, and a summary by device."""
    yield from _aligned(
        [("node", "op", "asked for", "got")]
        + [
            (n.name, n.op, "(made by TensorFlow)" if n.asked is None else _short(n.asked) or "-",
             _short(n.got) + ("  <- fell back" if n.fell_back else ""))
            for n in found.executed
            if n.op != "Const"
        ]
    )  # fmt: skip
    yield ""
    if found.copies:
        yield from _aligned(
            [("copied", "from", "to", "type and shape", "bytes a run")]
            + [_copy_row(copy) for copy in found.copies]
        )
        yield ""
    yield from _fallback_lines(found)
    for device, ops in found.document()["ops_by_device"].items():
        listed = ", ".join(f"{each} {op}" for op, each in ops.items())
        count = sum(ops.values())
        yield f"{_short(device)}: {count} node{'s' * (count != 1)}{': ' * bool(ops)}{listed}"
    unknown = sum(copy.bytes is None for copy in found.copies)
    yield (
        f"copies between devices: {len(found.copies)}, {found.copied_bytes:,} bytes a run"
        + (f" and {unknown} of unknown size" if unknown else "")
    )
    yield (
        f"{len(found.folded)} of the model's {found.model_nodes} nodes are folded or fused before "
        "execution"
    )


def _copy_row(copy: Copy) -> tuple[str, ...]:
    shape = "?" if copy.shape is None else f"[{','.join(map(str, copy.shape))}]"
    size = "unknown" if copy.bytes is None else f"{copy.bytes:,}"
    if copy.times is not None and copy.times != 1:
        size += " (not in this run)" if not copy.times else f" ({copy.times} times)"
    target = _short(copy.target) + (" (host memory)" if copy.to_host else "")
    return copy.tensor, _short(copy.source), target, f"{copy.type} {shape}", size


def _fallback_lines(found: Placement) -> Iterator[str]:
    """Yield a line for each pair of a device asked for and another one got."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in found.fallbacks:
        key = (node.asked or "", node.got, found.why(node))
        groups.setdefault(key, []).append(f"{node.name} ({node.op})")
    for (asked, got, why), names in groups.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield (
            f"fell back from {asked} to {_short(got)}, {why}: "
            f"{len(names)} node{'s' * (len(names) > 1)}: "
            f"{', '.join(names[:_SHOWN])}{more}"
        )


def _short(device: str) -> str:
    return device.removeprefix(_LOCAL)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
