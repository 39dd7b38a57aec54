"""Run a transform string on a graph, step by step."""

from collections.abc import Callable

from deploykit.freezing.open_model import OpenedModel
from deploykit.rewriting.step_report import StepReport
from deploykit.transforms.core import pipeline
from deploykit.transforms.core.graph import Graph, no_collection
from deploykit.transforms.core.int8.ranges import check_ranges


def check_ranges_of(transforms: str, model: OpenedModel) -> None:
    """Raise MismatchError where a step takes ranges of another model than this one.

    PipelineError: the string does not parse. FileError, GraphError: as `load_ranges`.
    """
    given = (
        step.arguments.get("ranges") for step in pipeline.parse(transforms) if ":" not in step.name
    )
    for path in dict.fromkeys(filter(None, given)):
        check_ranges(path, model.source, model.sha256)


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
    with no_collection():
        for result in pipeline.run(graph, steps):
            graph = result.graph
            skipped = result.skipped if result.error is None else (result.error, *result.skipped)
            reports.append(StepReport(result.transform, result.seconds, len(graph), skipped))
            on_step(result, len(steps))
    return graph, reports
