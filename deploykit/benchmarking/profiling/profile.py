"""A profile: the time of each node and op of a call, and its tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from deploykit.benchmarking.profiling.execution import Event
from deploykit.rendering.tables import Cell, Table, table
from deploykit.transforms.common.documents import Hidden, document, written


@dataclass(frozen=True)
class Cost:
    """Cost of a node, or of all nodes of an op, in a call."""

    calls: int
    ms: float
    allocated: int
    """Bytes allocated for results and temporary memory; 0 if a result reuses an input's memory."""
    moved: int
    """Bytes read and written."""
    flops: int

    @property
    @written()
    def gflops_per_second(self) -> float:
        """Arithmetic rate in GFLOP/s."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0


@dataclass(frozen=True)
class NodeCost(Cost):
    """A node of the executed graph."""

    name: str
    op: str
    device: str
    launch_ms: float
    """Time that the host took to launch a GPU node, in milliseconds; 0 on the CPU."""


@dataclass(frozen=True)
class OpCost(Cost):
    """Cost of all nodes of an op."""

    op: str


@dataclass(frozen=True)
class StreamCost:
    """Work of all GPU streams in a call, by kind: kernels, or copies in one direction.

    TensorFlow reports its start and end in whole microseconds.
    """

    kind: str
    """`kernel`, or NVIDIA's name of a copy: MemcpyH2D copies to the GPU, MemcpyD2H from it."""
    calls: int
    ms: float
    moved: int
    """Bytes copied; 0 for kernels."""


@dataclass(frozen=True)
class Profile:
    """Time of a call by node and op, longest first.

    The time of a GPU node is that of its kernels, without its launch.
    """

    runs: int
    samples: int
    """Number of samples per call."""
    nodes: Hidden[tuple[NodeCost, ...]]
    ops: Hidden[tuple[OpCost, ...]]
    untraced_ms: float
    """Median latency of untraced calls, interleaved with the traced ones."""
    traced_ms: float
    span_ms: float
    """Time from the start of the first node to the end of the last one, in a traced call."""
    busy_ms: float
    """Part of `span_ms` in which at least one node ran."""
    overlap: float
    """Average number of concurrent nodes while any node runs."""
    model_flops: int
    """Operations of the layers in the given graph, without layers of unknown shape."""
    uncounted: tuple[str, ...]
    """Names of executed layers whose shapes are unknown."""
    events: Hidden[tuple[Event, ...]]
    """Events of the traced call with the median time."""
    streams: tuple[StreamCost, ...] = ()
    """Work of GPU streams; empty if no GPU was used, or if TensorFlow could not trace with
    CUPTI."""

    @property
    @written(flat=True)
    def _costs(self) -> dict[str, Any]:
        return {
            "total": self._with_share(self.total),
            "ops": [self._with_share(op) for op in self.ops],
            "nodes": [self._with_share(node) for node in self.nodes],
        }

    def _with_share(self, cost: Cost) -> dict[str, Any]:
        return {**document(cost), "share": self.share(cost)}

    @cached_property
    def total(self) -> Cost:
        """Sum of the costs of all nodes."""
        return sum_of(self.nodes)

    @property
    def on_gpu(self) -> bool:
        """Whether any node was launched on a GPU."""
        return any(event.kind == "launch" for event in self.events)

    @property
    @written()
    def launch_ms(self) -> float:
        """Time that the host took to launch all GPU nodes, in milliseconds."""
        return sum(node.launch_ms for node in self.nodes)

    @property
    @written()
    def idle_share(self) -> float:
        """The share of the span in which no node ran."""
        return 1 - self.busy_ms / self.span_ms if self.span_ms else 0.0

    @property
    @written()
    def unattributed_share(self) -> float:
        """Share of the model's operations that no executed node accounts for.

        They ran when the session started, inside a compiled cluster, or in an op of OpenVINO whose
        layer is unknown.
        """
        missing = max(self.model_flops - self.total.flops, 0)
        return missing / self.model_flops if self.model_flops else 0.0

    @property
    @written()
    def gflops_per_second(self) -> float:
        """Arithmetic rate of an untraced call in GFLOP/s."""
        return self.total.flops / self.untraced_ms / 1e6

    def share(self, cost: Cost) -> float:
        """Return a cost's share of the summed time of all nodes."""
        return cost.ms / self.total.ms if self.total.ms else 0.0


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    item = list(costs)
    return Cost(*(sum(getattr(cost, each.name) for cost in item) for each in fields(Cost)))


def profile_tables(profile: "Profile", top: int = 10) -> list[str | Table]:
    """Return a profile as lines and tables, with the `top` slowest nodes."""
    return [*_lines(profile), _by_op(profile), *([_by_node(profile, top)] if top else [])]


def _lines(profile: "Profile") -> Iterator[str]:
    total = profile.total
    yield (
        f"profile of {profile.runs} traced calls of {profile.samples} "
        f"sample{'s' * (profile.samples != 1)}: {profile.traced_ms:.2f} ms each, "
        f"{profile.untraced_ms:.2f} ms without the trace"
    )
    yield (
        f"nodes:  {total.ms:.2f} ms, the sum of their medians; from the first to the last "
        f"{profile.span_ms:.2f} ms, {100 * profile.idle_share:.1f} % of it idle"
    )
    if profile.overlap > 1.05:
        yield f"        {profile.overlap:.2f} ran concurrently; shares are of their summed time"
    if total.flops:
        yield (
            f"layers: {total.flops / 1e9:.3g} GFLOP, {profile.gflops_per_second:.1f} GFLOP/s in an "
            "untraced call"
        )
    if profile.unattributed_share > 0.0005:
        yield (
            f"        {100 * profile.unattributed_share:.1f} % of the model's "
            f"{profile.model_flops / 1e9:.3g} GFLOP are in no node that ran: precomputed, in "
            "a compiled cluster, or fused by OpenVINO"
        )
    if profile.uncounted:
        names = ", ".join(profile.uncounted[:3]) + ", ..." * (len(profile.uncounted) > 3)
        yield f"        not counted (unknown shape): {len(profile.uncounted)} layers ({names})"
    if profile.on_gpu:
        yield from _gpu_lines(profile)


def _gpu_lines(profile: "Profile") -> Iterator[str]:
    """Yield a line on the work of GPU streams and on the launch time."""
    launched = f"the host took {profile.launch_ms:.2f} ms to launch it"
    if not profile.streams:
        yield (
            "GPU:    no kernel was traced, so GPU nodes have no time here: TensorFlow could not "
            f"use CUPTI, NVIDIA's tracing library (deploykit doctor shows why); {launched}"
        )
        return
    names = {"kernel": "kernels", "MemcpyH2D": "copies in", "MemcpyD2H": "copies out"}
    words = [
        f"{names.get(stream.kind, stream.kind)} {stream.ms:.2f} ms"
        + (f" ({stream.moved / 1e6:.1f} MB)" if stream.moved else "")
        for stream in profile.streams
    ]
    yield f"GPU:    {', '.join(words)}; {launched}"


def _by_op(profile: "Profile") -> Table:
    columns: dict[str, Cell] = {"op": lambda cost: getattr(cost, "op", "all"), "calls": "{calls}"}
    return table([*profile.ops, profile.total], columns | _costs(profile), has_total=True)


def _by_node(profile: "Profile", top: int) -> Table:
    columns = {"node, its op": "{name}\n{op}", **_costs(profile)}
    del columns["MiB"]
    return table(profile.nodes[:top], columns)


def _costs(profile: "Profile") -> dict[str, Cell]:
    return {
        "ms": "{ms:.3f}",
        "share": lambda cost: f"{100 * profile.share(cost):.1f} %",
        "MiB": lambda cost: f"{cost.allocated / (1 << 20):.2f}" if cost.allocated else None,
        "GFLOP": lambda cost: f"{cost.flops / 1e9:.3g}" if cost.flops else None,
        "GFLOP/s": lambda cost: f"{cost.gflops_per_second:.1f}" if cost.flops else None,
    }
