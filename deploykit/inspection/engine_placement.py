"""What another engine made of a model: one device computes all, by its own ops."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.run_config import RunConfig
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.engines.engine_session import compiled_for
from deploykit.transforms.engines.engines import TITLES, version_of
from deploykit.transforms.engines.executed_ops import Executed
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker

DEVICE = "CPU"
EIGHT_BITS = ("i8", "u8")
_CONVERTING = ("Convert", "Reorder")


@dataclass(frozen=True)
class EnginePlacement(AsHtml):
    """What an engine executes of a model, all of it on one device."""

    model: Hidden[OpenedModel]
    engine: str
    version: Annotated[str, Written("engine_version")]
    """That of the engine."""
    executed: tuple[Executed, ...]
    """Its ops, in the order in which they run."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    @property
    @written()
    def devices(self) -> list[str]:
        """Where they run."""
        return [DEVICE]

    @property
    @written("layers", by=len)
    def layers(self) -> tuple[Executed, ...]:
        """The ops that compute a layer of the graph."""
        return tuple(item for item in self.executed if item.layer)

    @property
    @written("layers_in_8_bits")
    def in_8_bits(self) -> int:
        """How many layers are computed in 8 bits."""
        return sum(layer.precision in EIGHT_BITS for layer in self.layers)

    @property
    @written()
    def conversions(self) -> int:
        """How many ops only turn numbers into another type or order."""
        return sum(item.kind in _CONVERTING for item in self.executed)

    @property
    @written("ops_by_precision")
    def by_precision(self) -> dict[str, dict[str, int]]:
        """How often each op runs, by the precision that it computes in."""
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
    """Run a model in an engine, and return what that executes.

    GraphError: it cannot be had, or refuses the graph. CrashError, LimitError: it died or hung.
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
    """Return what OpenVINO executes of a graph; it is meant for a child process."""
    fed = {normal(name): np.asarray(array) for name, array in feeds.items()}
    compiled = compiled_for(GraphDef.FromString(graph_def), fed, outputs)
    compiled.run(fed)
    return compiled.executed()
