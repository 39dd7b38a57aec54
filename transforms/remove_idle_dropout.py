"""Dropout with rate 0 passes its input on: x / 1 * floor(1 + u) is x for u in [0, 1)."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.random_ops import dropouts, keep_probability, pass_value_on
from deploykit.transforms.remove_nodes import remove_nodes


def remove_idle_dropout(graph: Graph) -> None:
    """Remove dropout whose constant rate is 0, including its random numbers.

    The results do not change. Run fold_constants before, so that the rate is a constant.
    """
    is_changed = False
    for match, nodes in dropouts(graph):
        if keep_probability(match) == (1, 1):
            pass_value_on(graph, match, nodes)
            is_changed = True
    if is_changed:
        remove_nodes(graph, op=("Identity",))
