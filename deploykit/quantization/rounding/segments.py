"""A graph cut before each of its int8 layers, so that every node runs once on each batch."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import normal, producer_name

CONTROL_FLOW = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "RefEnter", "RefExit", "RefMerge",
     "RefNextIteration", "RefSwitch", "Switch"}
)  # fmt: skip
"""Ops whose results cannot be stored and fed again."""


@dataclass(frozen=True)
class Segment:
    """What runs between two layers: the nodes that lead to what the next one reads."""

    source: str
    """The tensor that the layer reads."""
    layers: tuple[int, ...]
    """Earlier layers that run in this segment, by their index."""
    stored: tuple[str, ...]
    """Tensors that this segment makes, and that later ones read."""
    dropped: tuple[str, ...]
    """Stored tensors that no later segment reads."""


def segments(graph: Graph, layers: Sequence[str]) -> list[Segment] | None:
    """Return the segment before each layer, in execution order.

    None: a node that depends on an input is control flow of TensorFlow 1, which cannot be cut.
    """
    inputs = {producer_name(each) for each in graph.inputs}
    depends = graph.descendants(inputs)
    if any(graph[name].op in CONTROL_FLOW for name in depends):
        return None
    sources = [normal(graph[layer].data_inputs[0]) for layer in layers]
    place = {layer: number for number, layer in enumerate(layers)}
    ran = _when(graph, sources, depends, inputs)
    last_use = _last_uses(graph, sources, ran)
    stored, dropped = defaultdict(list), defaultdict(list)
    for tensor, number in last_use.items():
        made = ran.get(producer_name(tensor))
        if made is not None and number > made:
            stored[made].append(tensor)
            dropped[number].append(tensor)
    runs = defaultdict(list)
    for name, number in ran.items():
        if name in place:
            runs[number].append(place[name])
    return [
        Segment(source, tuple(runs[number]), tuple(stored[number]), tuple(dropped[number]))
        for number, source in enumerate(sources)
    ]


def _when(
    graph: Graph, sources: Sequence[str], depends: Collection[str], inputs: Collection[str]
) -> dict[str, int]:
    """Return in which segment each node runs that leads from an input to a layer."""
    found: dict[str, int] = {}
    for number, source in enumerate(sources):
        waiting = [producer_name(source)]
        while waiting:
            name = waiting.pop()
            if name in found or name in inputs or name not in depends:
                continue
            found[name] = number
            waiting += map(producer_name, graph[name].inputs)
    return found


def _last_uses(graph: Graph, sources: Sequence[str], ran: dict[str, int]) -> dict[str, int]:
    """Return the last segment that reads each tensor."""
    found: dict[str, int] = {}
    for name, number in ran.items():
        for tensor in map(normal, graph[name].data_inputs):
            found[tensor] = max(number, found.get(tensor, 0))
    for number, source in enumerate(sources):
        found[source] = max(number, found.get(source, 0))
    return found
