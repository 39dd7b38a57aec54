"""The device that runs each node of a graph, and the tensors copied between devices.

The graph runs twice in a child process. The first run is without Grappler and shows where
TensorFlow places each node of the model. The second is with Grappler, after it folded and fused
nodes.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.run_config import CPU_DEVICES, RunConfig
from deploykit.importers.open_model import OpenedModel
from deploykit.inspection.step_stats import satisfies
from deploykit.system.doctor import gpu_refusal
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, document, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engine_session import compiled_for
from deploykit.transforms.engines.engines import TITLES, version_of
from deploykit.transforms.engines.executed_ops import Executed
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker


@dataclass(frozen=True)
class PlacedNode:
    """A node, the device that the model requests and the device that ran it."""

    name: Annotated[str, Written("node")]
    op: str
    asked: str | None
    """The requested device; empty: none requested. None: TensorFlow created the node."""
    got: str

    @property
    def fell_back(self) -> bool:
        """Whether the model requested another device."""
        return not satisfies(self.got, self.asked or "")


@dataclass(frozen=True)
class Copy:
    """A tensor that one device sent to another during the traced run."""

    tensor: str
    source: str
    target: str
    type: str
    shape: tuple[int, ...] | None
    """The shape; None: not known, or not sent in this run."""
    times: int | None
    """Number of copies per run, more than one in a loop. None: not known."""
    bytes: int | None
    """Bytes per run. None: not known, as for strings."""
    to_host: bool
    """Whether the target receives it in host memory, not in device memory."""


@dataclass(frozen=True)
class Placement(AsHtml):
    """The devices that run the nodes of a model."""

    model: Hidden[OpenedModel]
    devices: tuple[str, ...]
    """The devices of TensorFlow."""
    model_nodes: int
    """Number of nodes that the outputs need."""
    placed: Hidden[tuple[PlacedNode, ...]]
    """The nodes of the model as TensorFlow places them, in execution order."""
    executed: Annotated[tuple[PlacedNode, ...], Written("nodes")]
    """The nodes that TensorFlow ran, in execution order, without copies."""
    folded: tuple[str, ...]
    """The nodes of the model that were folded or fused before the run."""
    copies: tuple[Copy, ...]
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""

    @property
    @written("fallbacks")
    def _fallbacks(self) -> list[dict[str, Any]]:
        return [document(node) | {"why": self.why(node)} for node in self.fallbacks]

    @property
    @written()
    def copies_of_unknown_size(self) -> int:
        """Number of copies whose size is not known."""
        return sum(copy.bytes is None for copy in self.copies)

    @property
    @written()
    def ops_by_device(self) -> dict[str, dict[str, int]]:
        """Number of executions of each op, by device."""
        results: dict[str, Counter[str]] = {device: Counter() for device in self.devices}
        for node in self.executed:
            results.setdefault(node.got, Counter())[node.op] += 1
        return {device: dict(ops.most_common()) for device, ops in results.items()}

    @property
    def fallbacks(self) -> tuple[PlacedNode, ...]:
        """The nodes that silently ran on another device than the model requests."""
        return tuple(node for node in self.placed if node.fell_back)

    @property
    @written()
    def copied_bytes(self) -> int:
        """Bytes of all copies of known size in one run."""
        return sum(copy.bytes or 0 for copy in self.copies)

    def why(self, node: PlacedNode) -> str:
        """Return why a node did not get the requested device."""
        if any(satisfies(device, node.asked or "") for device in self.devices):
            return "it has no kernel there, or is colocated with another node"
        return "the device does not exist"

    def log(self) -> Iterator[str]:
        """Yield a line for each node, as TensorFlow's log_device_placement writes it."""
        for node in self.placed:
            yield f"{node.name}: ({node.op}): {node.got}"


def find_placement(
    model: OpenedModel,
    feeding: BenchmarkInputs = SYNTHETIC,
    *,
    batch: int | None = None,
    device: str = RunConfig.device,
    cpu_devices: int = CPU_DEVICES,
    soft_placement: bool = True,
) -> Placement:
    """Run a model and return where its nodes ran; the arguments are those of `placement`."""
    graph = model.graph
    feeds = feeding.batches(graph, batch)[0]
    settings = RunConfig(device=device)
    worker = Worker(
        "deploykit.inspection.step_stats:look",
        b"".join(graph.serialized()),
        dict(zip(graph.inputs, feeds, strict=True)),
        list(graph.outputs),
        settings,
        cpu_devices,
        soft_placement,
        forced=settings.environment,
    )
    with closing(worker):
        try:
            seen = worker.created()
        except GraphError as error:
            raise _in_a_sentence(error, soft_placement) from None
    if "executed" not in seen:
        raise GraphError("gpu-unavailable", reason=gpu_refusal() or "TensorFlow sees no GPU")
    return _placement(model, seen)


def _placement(model: OpenedModel, seen: Mapping[str, Any]) -> Placement:
    """Return the placement from the result of `look`."""
    live = model.graph.copy()
    live.prune()
    executed = {name: op for name, op, _ in seen["executed"]}
    return Placement(
        model=model,
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
    return "" if graph.is_input(name) else graph[name].device  # the host feeds inputs


def _in_a_sentence(error: GraphError, soft_placement: bool) -> GraphError:
    match = re.search(r"Cannot assign a device for operation [^:]+: (.*)", str(error))
    if match is None:
        return error
    why = match[1].partition(". Make sure")[0].replace("{{", "").replace("}}", "")
    leave_out = "" if soft_placement else "leave out --no-soft-placement, or "
    return GraphError("device-not-assignable", reason=why, hint=leave_out)


DEVICE = "CPU"
EIGHT_BITS = ("i8", "u8")
_CONVERTING = ("Convert", "Reorder")


@dataclass(frozen=True)
class EnginePlacement(AsHtml):
    """The ops that an engine executes for a model, all on one device."""

    model: Hidden[OpenedModel]
    engine: str
    version: Annotated[str, Written("engine_version")]
    """The version of the engine."""
    executed: tuple[Executed, ...]
    """The ops of the engine, in execution order."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""

    @property
    @written()
    def devices(self) -> list[str]:
        """The devices that run the ops."""
        return [DEVICE]

    @property
    @written("layers", by=len)
    def layers(self) -> tuple[Executed, ...]:
        """The ops that compute a layer of the graph."""
        return tuple(item for item in self.executed if item.layer)

    @property
    @written("layers_in_8_bits")
    def in_8_bits(self) -> int:
        """Number of int8 layers."""
        return sum(layer.precision in EIGHT_BITS for layer in self.layers)

    @property
    @written()
    def conversions(self) -> int:
        """Number of ops that only convert the dtype or the layout."""
        return sum(item.kind in _CONVERTING for item in self.executed)

    @property
    @written("ops_by_precision")
    def by_precision(self) -> dict[str, dict[str, int]]:
        """Number of executions of each op, by precision."""
        results: dict[str, Counter[str]] = {}
        for item in self.executed:
            results.setdefault(item.precision, Counter())[item.kind] += 1
        return {name: dict(ops.most_common()) for name, ops in sorted(results.items())}


def find_engine_placement(
    model: OpenedModel,
    engine: str,
    feeding: BenchmarkInputs = SYNTHETIC,
    *,
    batch: int | None = None,
) -> EnginePlacement:
    """Run a model in an engine, and return the ops that it executes.

    GraphError: the engine is not available or refuses the graph. CrashError: it died. LimitError:
    it took too much time or memory.
    """
    RunConfig(engine=engine).check_here()
    graph = model.graph
    feeds = feeding.batches(graph, batch)[0]
    worker = Worker(
        f"{__name__}:executed",
        b"".join(graph.serialized()),
        dict(zip(graph.inputs, feeds, strict=True)),
        list(graph.outputs),
        forced=RunConfig(engine=engine).environment,
        runs=TITLES[engine],
    )
    with closing(worker):
        return EnginePlacement(model, engine, version_of(engine), worker.created())


def executed(
    graph_def: bytes, feeds: Mapping[str, Array], outputs: Sequence[str]
) -> tuple[Executed, ...]:
    """Return the ops that OpenVINO executes for a graph; call it in a child process."""
    fed = {normal(name): np.asarray(array) for name, array in feeds.items()}
    compiled = compiled_for(GraphDef.FromString(graph_def), fed, outputs)
    compiled.run(fed)
    return compiled.executed()
