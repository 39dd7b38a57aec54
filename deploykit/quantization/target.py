"""The engines for which int8 graphs are built, evaluated and timed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deploykit.benchmarking.run_config import RunConfig
from deploykit.pipelines.int8 import codes_graph, int8_graph
from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.search_task import SearchTask
from deploykit.quantization.timing.layer_times import (
    LayerTimes,
    PartTimes,
    layer_times,
    with_onednn_kernels,
)
from deploykit.quantization.timing.openvino_times import openvino_times
from deploykit.quantization.timing.speed import (
    ON_ONEDNN_KERNELS,
    PLAIN,
    WITHOUT_ONEDNN,
    Entrants,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import (
    OPENVINO,
    TENSORFLOW,
    TITLES,
    EngineUse,
    lacking,
    version_of,
)
from deploykit.transforms.int8.int8_kernels import probe
from deploykit.transforms.int8.plan import OPS, Plan
from deploykit.transforms.int8.weights import Rounded
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.engine_check import compared_in


@dataclass(frozen=True)
class EngineTarget:
    """An engine to quantize a graph for."""

    engine: str = TENSORFLOW

    @property
    def title(self) -> str:
        """The name of the engine in sentences."""
        return TITLES[self.engine]

    @property
    def is_tensorflow(self) -> bool:
        """Whether TensorFlow runs the graph, so that no comparison with TensorFlow is needed."""
        return self.engine == TENSORFLOW

    @property
    def use(self) -> EngineUse | None:
        """The engine and version to run the graph; None: TensorFlow."""
        if self.is_tensorflow:
            return None
        return EngineUse(self.engine, version_of(self.engine))

    def missing(self) -> set[str]:
        """Return the ops that an int8 graph needs and that this TensorFlow lacks."""
        return set(OPS.values()) - probe(OPS.values()) if self.is_tensorflow else set()

    def built(
        self,
        graph: Graph,
        ranges: str,
        isa: str,
        keep_float: Iterable[str],
        rounded: Rounded | None = None,
    ) -> Graph:
        """Return the int8 form of a float32 graph whose ranges are in a file.

        GraphError: as in `quantize_static`.
        """
        build = int8_graph if self.is_tensorflow else codes_graph
        return build(graph, ranges, isa, keep_float, rounded)

    def judged(self, judge: Evaluator, graph: Graph) -> Judgement:
        """Compare a graph with the float32 graph. Errors are those of `Evaluator.judge`."""
        return judge.judge(graph, self.engine)

    def settings(self, settings: RunConfig) -> RunConfig:
        """Return the settings for this engine."""
        return settings if self.is_tensorflow else replace(settings, engine=self.engine)

    def times(
        self, graph: Graph, int8: Graph, plan: Plan, settings: RunConfig, **more: Any
    ) -> LayerTimes:
        """Measure each part of a plan; arguments and errors are those of `layer_times`."""
        measure = layer_times if self.is_tensorflow else openvino_times
        return measure(graph, int8, plan, self.settings(settings), **more)

    def times_us(self, part: PartTimes) -> dict[str, float]:
        """Return the times of a part in microseconds, by the kernels of this engine."""
        if self.is_tensorflow:
            results = {"eigen": part.eigen, "onednn": part.onednn, "int8": part.int8}
        else:
            results = {"float": part.onednn, "int8": part.int8}
        return {name: time / 1e3 for name, time in results.items()}

    def entrants(
        self,
        graph: Graph,
        int8: Mapping[str, Graph],
        settings: RunConfig,
        onednn_is_on: bool,
        times: LayerTimes | None = None,
    ) -> Entrants:
        """Return the graphs to benchmark: the float32 graph in several configurations, and `int8`.

        `onednn_is_on`: whether TensorFlow runs plain ops on oneDNN with these settings. `times`:
        times of layers; if oneDNN is far ahead by these, float32 without oneDNN is not measured.
        """
        how = self.settings(settings)
        graphs = {name: (item, how) for name, item in ({PLAIN: graph} | dict(int8)).items()}
        if not self.is_tensorflow:
            return Entrants(graphs, f" in {self.title}")
        if not onednn_is_on:
            graphs[ON_ONEDNN_KERNELS] = with_onednn_kernels(graph), settings
        elif times is None or not times.onednn_is_far_ahead:
            graphs[WITHOUT_ONEDNN] = graph, replace(settings, onednn=False)
        return Entrants(graphs)


IN_TENSORFLOW, IN_OPENVINO = EngineTarget(TENSORFLOW), EngineTarget(OPENVINO)


def targets(task: SearchTask) -> tuple[list[EngineTarget], str]:
    """Return the engines to quantize for, TensorFlow last, and why OpenVINO is not one of them.

    GraphError: `engine` is openvino, but it is not available, refuses the graph, or its outputs
    differ from TensorFlow's.
    """
    engine = task.how.engine
    if engine == TENSORFLOW:
        return [IN_TENSORFLOW], ""
    why = lacking(OPENVINO)
    if not why:
        with task.step("engine"):
            why = compared_in(task.graph, data=task.samples.held_out).why
    if why and engine == OPENVINO:
        raise GraphError("engine-not-for-graph", engine=IN_OPENVINO.title, reason=why)
    if why:
        return [IN_TENSORFLOW], f"TensorFlow runs the graph: {why}"
    return [IN_OPENVINO] if engine == OPENVINO else [IN_OPENVINO, IN_TENSORFLOW], ""
