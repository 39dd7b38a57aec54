"""Random graphs under random edits: the index is always what a rebuilt graph would have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, tensor_name

EDITS = st.tuples(
    st.sampled_from(["add", "remove", "replace", "redirect", "absorb", "prune", "sort", "copy"]),
    st.integers(0, 99),
    st.lists(st.tuples(st.integers(0, 99), st.integers(-1, 2)), max_size=4),
)


def tensors(graph: Graph, picks: list[tuple[int, int]], before: int) -> list[str]:
    """Return tensors of nodes that stand before a place, so that no cycle arises."""
    names = [node.name for node in graph][:before]
    return [tensor_name(names[i % len(names)], port) for i, port in picks] if names else []


def apply(graph: Graph, edit: str, pick: int, picks: list[tuple[int, int]], number: int) -> Graph:
    nodes = list(graph)
    place = pick % len(nodes) if nodes else 0
    if edit == "add":
        op = ("Op", "Enter", "Exit")[number % 3]
        new = Node(f"n{number}", op, tuple(tensors(graph, picks, len(nodes))))
        graph.add(new.rewired(lambda tensor: [tensor]))
    elif edit == "remove" and nodes and not graph.consumers(nodes[place].name):
        if not graph.is_output(nodes[place].name):
            graph.remove(nodes[place])
    elif edit == "replace" and nodes:
        new = Node("any", "New", tuple(tensors(graph, picks, place)))
        graph.replace(nodes[place], new.rewired(lambda tensor: [tensor]))
    elif edit == "absorb" and place:
        old = nodes[place]
        before = [n for n in map(graph.producer, old.inputs) if n.name != old.name]
        before = [n for n in nodes if n in before and n.name not in tensors(graph, picks, place)]
        into = Node(old.name, "New", tuple(tensors(graph, picks, place)))
        graph.absorb([*before, old], into=into.rewired(lambda tensor: [tensor]))
    elif edit == "redirect" and place:
        new = tensors(graph, [(n, max(port, 0)) for n, port in picks[:1]], place)
        if new:
            graph.redirect({nodes[place].name: new[0], f"^{nodes[place].name}": []})
    elif edit == "prune":
        graph.outputs = [node.name for node in nodes[-3:]]
        graph.prune()
    elif edit == "sort":
        graph.sort()
    elif edit == "copy":
        return graph.copy()
    return graph


def assert_sound(graph: Graph) -> None:
    rebuilt = Graph(graph, graph.inputs, graph.outputs)
    for node in graph:
        for read in ("consumers", "readers"):
            kept = {n.name for n in getattr(graph, read)(node.name)}
            assert kept == {n.name for n in getattr(rebuilt, read)(node.name)}
        for reader in graph.readers(node.name):
            assert graph.feeds_only(node, reader) == rebuilt.feeds_only(node, reader)
        assert graph.waits_beside(node) == rebuilt.waits_beside(node)
    assert graph.order() == rebuilt.order()
    graph.check()


@pytest.mark.sampled
@settings(max_examples=200, derandomize=True)
@given(st.lists(EDITS, max_size=25))
def test_the_index_never_goes_stale(edits):
    graph = Graph()
    for number, (edit, pick, picks) in enumerate(edits):
        graph = apply(graph, edit, pick, picks, number)
        assert_sound(graph)


@pytest.mark.parametrize("broken", ["_unlink", "_link"])
def test_a_stale_index_is_seen(broken, monkeypatch):
    """Forget to update the index from some edit on: the same check must fail."""
    graph = Graph(
        [Node("a", "Op"), Node("b", "Op", ("a",)), Node("c", "Op", ("a",))], (), ("b", "c")
    )
    assert_sound(graph)
    with monkeypatch.context() as patch:
        patch.setattr(Graph, broken, lambda self, node: None)
        graph.redirect({"a": "b"} if broken == "_unlink" else {"b": "a"})
        graph.replace(graph["c"], Node("c", "Op", ("b",)))
    with pytest.raises(AssertionError):
        assert_sound(graph)
