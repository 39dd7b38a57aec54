"""Rounds layers in the time that a search has for it."""

from collections.abc import Iterable

from deploykit.quantization.rounding.round_layers import MOST_SAMPLES, round_layers
from deploykit.quantization.search_task import SearchTask
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.rounded_layers import Rounded
from deploykit.verification.samples import Dataset


def round_first(task: SearchTask, graph: Graph, samples: Dataset) -> Rounded:
    """Return the int8 weights and biases of all layers, on the samples that calibrate."""
    found, notes = _rounded(task, graph, samples, ())
    task.notes.extend(notes)
    return found


def round_again(
    task: SearchTask, graph: Graph, keep_float: Iterable[str]
) -> tuple[Rounded, list[str]] | None:
    """Return them and notes where other layers are kept in float32; None: there is no time."""
    if task.budget.left - task.budget.for_trials < 2 * task.seconds.get("round", 0.0):
        return None
    samples = task.samples.calibrating
    return _rounded(task, graph, samples, keep_float)


def _rounded(
    task: SearchTask, graph: Graph, samples: Dataset, keep_float: Iterable[str]
) -> tuple[Rounded, list[str]]:
    end = task.budget.ranking_until()
    kept = tuple(keep_float)
    with task.step("round") as advance:
        return round_layers(
            graph,
            samples.spread(MOST_SAMPLES).feeds(),
            task.ranges,
            isa=task.how.isa,
            keep_float=(*task.how.keep_float, *kept),
            state=None if kept else task.state,
            advance=advance,
            out_of_time=lambda: task.budget.now() >= end,
        )
