"""Which step of a transform string moved the numbers: the first whose graph misses the bar."""

from collections.abc import Callable

from deploykit.transforms.core import pipeline
from deploykit.transforms.core.graph import Graph
from deploykit.verification.verify import Verification


def first_failure(
    graph: Graph,
    transforms: str,
    compare: Callable[[Graph, Graph], Verification],
    last: Verification,
) -> tuple[int, Verification]:
    """Return the place of the first step that breaks the bar, from 0, and what was found after it.

    `last` is what was found after the last step: it failed. Half of the steps that are left is
    ruled out at a time, since what one step broke, no later one mends.
    """
    results = list(pipeline.run(graph, pipeline.parse(transforms)))
    sound, broken = -1, len(results) - 1
    while broken - sound > 1:
        middle = (sound + broken) // 2
        found = compare(graph, results[middle].graph)
        if found.differs:
            broken, last = middle, found
        else:
            sound = middle
    return broken, last
