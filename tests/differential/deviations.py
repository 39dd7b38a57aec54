"""What deploykit means to do otherwise: each is a rewrite of the original's graph, with its reason.

A case names those that it needs; after them both graphs must be equal. The numeric proof is that
the case also runs the original's graph as it came and deploykit's, and compares what they compute.
A rewrite that changes nothing fails its case, so no deviation is named without need.

Wherever deploykit goes on where the original stopped, its own transform does the rest of the way:
from the original's graph it must arrive where it arrives from the source.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support import transform
from transforms.core.graph import Graph


@dataclass(frozen=True)
class Deviation:
    """Why deploykit differs, and the original's graph brought to the form of deploykit's."""

    reason: str
    rewrite: Callable[[Graph], Graph]


def _pruned(graph: Graph) -> Graph:
    return transform(graph, "sort_by_execution_order")


def _named_as_before(graph: Graph) -> Graph:
    """Return the graph with `<node>/_3__cf__3` under the name of the node that was folded."""
    names = {n.name: n.name.rsplit("/_", 1)[0] for n in graph if "__cf__" in n.name}
    result = graph.copy()
    for old, new in names.items():
        if new not in result:
            result.add(graph[old].with_name(new))
            result.redirect({old: new, f"^{old}": f"^{new}"})
            result.remove(result[old])
    return result


DEVIATIONS = {
    "pruned": Deviation(
        "what no output needs is dropped after each step, and so are control edges from constants,"
        " which order nothing",
        _pruned,
    ),
    "names of folded nodes": Deviation(
        "a folded node keeps its name; the original numbers them in an order of its own",
        _named_as_before,
    ),
    "trailing add": Deviation(
        "a constant added per channel becomes the bias of the layer",
        lambda graph: transform(graph, "fold_batch_norms"),
    ),
}
