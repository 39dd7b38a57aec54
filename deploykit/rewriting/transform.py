"""Run transforms on a graph: a string of them, or the standard set."""

from collections.abc import Callable

from deploykit.rewriting.pipelines import OPTIMIZE
from deploykit.rewriting.step_report import StepReport
from deploykit.transforms.core import pipeline
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef


def run_steps(
    graph: Graph,
    transforms: str,
    on_step: Callable[[pipeline.Result, int], object] = lambda result, count: None,
) -> tuple[Graph, list[StepReport]]:
    """Return the graph after the steps of a transform string, and a report of each.

    `on_step` is called after each step with what it did and the number of all steps.
    """
    steps = pipeline.parse(transforms)
    reports = []
    for result in pipeline.run(graph, steps):
        graph = result.graph
        skipped = result.skipped if result.error is None else (result.error, *result.skipped)
        reports.append(StepReport(result.transform, result.seconds, len(graph), skipped))
        on_step(result, len(steps))
    return graph, reports


def transform(graph: Graph, transforms: str) -> Graph:
    """Return the graph after a transform string, such as `"fold_constants fold_batch_norms"`.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    """
    return run_steps(graph, transforms)[0]


def optimize(graph: Graph) -> Graph:
    """Return the graph after the standard set of transforms, which keep its numbers."""
    return transform(graph, OPTIMIZE)


def TransformGraph(
    input_graph_def: GraphDef,
    inputs: list[str],
    outputs: list[str],
    transforms: list[str],
) -> GraphDef:
    """Return a transformed GraphDef: the Graph Transform Tool's Python function, for old code."""
    graph = Graph.from_graph_def(input_graph_def, inputs, outputs)
    return transform(graph, " ".join(transforms)).to_graph_def()
