"""Which functions of a graph's library call which: no circle, and no growth beyond all bounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.functions import names_in
from deploykit.transforms.core.node import Node

# Nothing honest comes near these; TensorFlow takes minutes or all memory beyond them.
MAX_CALL_DEPTH = 256
MAX_EXPANDED_NODES = 20_000_000  # of the graph with every call replaced by what it calls


@dataclass
class Calls:
    """How many nodes a function or a graph has, and what it calls, as often as it does."""

    nodes: int
    names: list[str]


@dataclass(frozen=True)
class Expansion:
    """What a graph becomes with every call replaced by what it calls."""

    nodes: int
    depth: int
    """How many calls lie within each other."""


def called(node: Node, functions: Mapping[str, object]) -> Iterator[str]:
    """Yield the functions that a node calls or names."""
    for name in (node.op, *names_in(node.attrs.values())):
        if name in functions:
            yield name


def expansion(graph: Calls, functions: Mapping[str, Calls]) -> Expansion:
    """Return what a graph becomes. GraphError: a function calls itself, or it becomes too much."""
    sizes = dict.fromkeys(functions, 0)
    depths = dict.fromkeys(functions, 0)
    for name in _callees_first({name: calls.names for name, calls in functions.items()}):
        names = functions[name].names
        sizes[name] = functions[name].nodes + sum(sizes[c] for c in names)
        depths[name] = 1 + max((depths[c] for c in names), default=0)
        if sizes[name] > MAX_EXPANDED_NODES or depths[name] > MAX_CALL_DEPTH:
            raise GraphError(
                "function-too-large",
                name=name,
                size=sizes[name],
                depth=depths[name],
                most=MAX_EXPANDED_NODES,
                most_depth=MAX_CALL_DEPTH,
            )
    total = sum(sizes[c] for c in graph.names)
    if total > MAX_EXPANDED_NODES:
        raise GraphError(
            "too-many",
            what="the graph",
            count=total,
            unit="nodes with its calls",
            most=MAX_EXPANDED_NODES,
        )
    return Expansion(graph.nodes + total, max((depths[c] for c in graph.names), default=0))


def _callees_first(calls: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the functions, each after those that it calls. GraphError: one calls itself."""
    users: dict[str, list[str]] = {name: [] for name in calls}
    missing = {name: len(set(names)) for name, names in calls.items()}
    for name, names in calls.items():
        for callee in dict.fromkeys(names):
            users[callee].append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:  # which grows meanwhile
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    left = [name for name, count in missing.items() if count]
    if left:
        name, path = left[0], dict[str, None]()
        while name not in path:  # whoever is left calls one that is left
            path[name] = None
            name = next(callee for callee in calls[name] if missing[callee])
        cycle = list(path)[list(path).index(name) :]
        shown = " -> ".join([*cycle[:8], name])
        raise GraphError("function-recursive", name=name, calls=shown)
    return order
