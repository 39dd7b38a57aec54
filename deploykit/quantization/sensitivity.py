"""How much noise each layer brings: the graph in which it alone computes in 8 bits is judged."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploykit.quantization.building import int8_graph
from deploykit.quantization.judging import Judgement
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.int8_plan import plan
from transforms.core.ranges import load_ranges

if TYPE_CHECKING:
    from rich.table import Table

JUDGED = 16  # samples by which each layer is judged: more hardly change the order


@dataclass(frozen=True)
class Noise:
    """What a layer does to the answers when it alone is in 8 bits."""

    layer: str
    op: str
    sqnr_db: float
    """-inf where TensorFlow cannot run it."""
    fault: str = ""
    """Why it cannot."""


def rank(
    graph: Graph,
    ranges: str,
    judge: Callable[[Graph], Judgement],
    *,
    isa: str = "auto",
    keep_float: Iterable[str] = (),
    known: Mapping[str, Noise] | None = None,
    on_result: Callable[[Noise], object] = lambda found: None,
    advance: Callable[[str, int], None] = lambda name, count: None,
) -> list[Noise]:
    """Return the layers that can be in 8 bits, noisiest first.

    Args:
        graph: the float graph.
        ranges: the file of its ranges.
        judge: a Judge's method, of the float graph and held-out samples.
        isa: as in `quantize_static`.
        keep_float: layers that stay float, so are not ranked.
        known: what an earlier run found, by layer.
        on_result: called with each layer that is judged, in execution order, to be kept.
        advance: called before each with its name and how many there are.

    GraphError: as in `quantize_static`. A layer that TensorFlow refuses, or dies on, stands first.
    """
    kept = frozenset(keep_float)
    chains = plan(graph, load_ranges(ranges), kept).chains
    results = dict[str, Noise]()
    for layer in chains:
        advance(layer, len(chains))
        if known is not None and layer in known:
            results[layer] = known[layer]
            continue
        alone = int8_graph(graph, ranges, isa, kept | chains.keys() - {layer})
        op = graph[layer].op
        try:
            results[layer] = Noise(layer, op, judge(alone).sqnr_db)
        except GraphError as error:
            results[layer] = Noise(layer, op, float("-inf"), str(error))
        on_result(results[layer])
    return sorted(results.values(), key=lambda noise: noise.sqnr_db)
