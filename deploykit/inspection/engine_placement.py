"""The ops that another engine executes for a model, all on one device."""

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
