"""New names for tensors whose values change, so that former ranges do not apply to them."""

from collections.abc import Iterable

from deploykit.transforms.core.graph import Graph


def rename(graph: Graph, names: Iterable[str], ending: str) -> None:
    """Append an ending to the names of nodes that are not inputs or outputs."""
    moves: dict[str, str] = {}
    for name in names:
        moves[name] = graph.add(graph[name].with_name(graph.unique_name(f"{name}{ending}"))).name
    graph.redirect(moves | {f"^{old}": f"^{new}" for old, new in moves.items()})
    for name in moves:
        graph.remove(graph[name])
