"""Where each node of a graph really runs, and what is copied between devices for it.

The graph runs twice in a child process: once as it stands, which shows where TensorFlow places each
node of the model, and once as a user runs it, after TensorFlow's own graph optimizer has folded and
fused nodes.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.settings import Settings
from deploykit.hardware.doctor import gpu_refusal
from deploykit.inspection.step_stats import satisfies
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.child import Worker
from deploykit.transforms.core.tensors import Array

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
        "deploykit.inspection.step_stats:look",
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
            seen = worker.created()
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
    for node in sorted(found.fallbacks, key=lambda node: node.op == "Const"):  # constants last
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
