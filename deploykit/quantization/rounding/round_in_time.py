"""Rounds layers in the time that a search has for it."""

from collections.abc import Sequence

from deploykit.quantization.rounding.round_layers import MOST_SAMPLES, round_layers
from deploykit.quantization.search_task import SearchTask
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.rounded_layers import Rounded
from deploykit.verification.samples import Dataset


def round_in_time(
    task: SearchTask, graph: Graph, samples: Dataset, keep_float: Sequence[str] = ()
) -> tuple[Rounded, list[str]]:
    """Return the int8 weights and biases of layers, and notes; `keep_float`: more that stay so.

    Those of all layers are kept in the state of the search.
    """
    end = task.budget.ranking_until()
    with task.step("round") as advance:
        return round_layers(
            graph,
            samples.spread(MOST_SAMPLES).feeds(),
            task.ranges,
            isa=task.how.isa,
            keep_float=(*task.how.keep_float, *keep_float),
            state=None if keep_float else task.state,
            advance=advance,
            out_of_time=lambda: task.budget.now() >= end,
        )
