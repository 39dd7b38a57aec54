"""The order in which nodes can run: each after all that it needs. And what is reached from some."""

import heapq
from collections.abc import Callable, Hashable, Iterable, KeysView, Mapping
from typing import TypeVar

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.node import LOOP_EDGE_OPS, Node, producer_name

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> KeysView[T]:
    """Return the starts, what follows them, what follows that and so on; each is asked once."""
    found = dict.fromkeys(starts)
    waiting = list(found)
    while waiting:
        new = [each for each in dict.fromkeys(following(waiting.pop())) if each not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return found.keys()


def execution_order(
    nodes: Mapping[str, Node], consumers: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return the names in execution order, ties as they stand. GraphError: a cycle.

    Of the nodes that may come next it is the first that comes, so an order that is right stays.
    A loop's edge back does not count.
    """
    return tuple(nodes) if _is_ordered(nodes) else _sorted(nodes, consumers)


def _is_ordered(nodes: Mapping[str, Node]) -> bool:
    seen: set[str] = set()
    for name, node in nodes.items():
        for tensor in node.inputs:
            producer = producer_name(tensor)
            if producer not in seen and nodes[producer].op not in LOOP_EDGE_OPS:
                return False
        seen.add(name)
    return True


def _sorted(nodes: Mapping[str, Node], consumers: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    names = tuple(nodes)
    places = {name: place for place, name in enumerate(names)}
    missing: dict[str, int] = {}
    ready: list[int] = []
    for name, node in nodes.items():
        producers = set(map(producer_name, node.inputs))
        missing[name] = sum(nodes[p].op not in LOOP_EDGE_OPS for p in producers)
        if not missing[name]:
            ready.append(places[name])
    result = []
    while ready:
        name = names[heapq.heappop(ready)]
        result.append(name)
        if nodes[name].op in LOOP_EDGE_OPS:
            continue
        for consumer in consumers.get(name, ()):
            missing[consumer] -= 1
            if not missing[consumer]:
                heapq.heappush(ready, places[consumer])
    if len(result) < len(nodes):
        stuck = [name for name, count in missing.items() if count > 0]
        raise GraphError("cycle", count=len(stuck), nodes=stuck[:3])
    return tuple(result)
