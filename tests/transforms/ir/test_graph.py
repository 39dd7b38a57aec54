"""The graph: reading, the six edits, what holds for very large ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, split
from deploykit.transforms.ir.pattern import Any, Const, Op
from deploykit.transforms.ir.protos import GraphDef
from tests.support import building, raises, says, showing, tf


def node(name, *inputs, op="Relu"):
    return Node(name, op, inputs)


def diamond() -> Graph:
    """x -> a -> (b, c) -> d, with d waiting for a constant too."""
    nodes = [
        node("x", op="Placeholder"),
        node("a", "x"),
        node("b", "a"),
        node("c", "a:1", "^b"),
        Node.constant("k", np.float32(1)),
        node("d", "b", "c", "^k"),
    ]
    return Graph(nodes, ["x:0"], ["d"])


def names(nodes):
    return [n.name for n in nodes]


def test_names_of_tensors():
    assert [split(t) for t in ("a", "a:0", "a:2", "^a", "s/a:b")] == [
        ("a", 0), ("a", 0), ("a", 2), ("a", -1), ("s/a:b", 0),
    ]  # fmt: skip
    assert [normal(t) for t in ("a", "a:0", "a:2", "^a")] == ["a", "a", "a:2", "^a"]


def test_reading():
    graph = diamond()
    assert graph.inputs == ("x",)
    assert graph.producer("a:1").name == "a"
    assert names(graph.consumers("a")) == ["b", "c"]
    assert names(graph.consumers("b")) == ["c", "d"]
    assert names(graph.readers("b")) == ["d"]
    assert graph.feeds_only(graph["b"], graph["d"])
    assert not graph.feeds_only(graph["a"], graph["b"])
    assert not graph.feeds_only(graph["d"], graph["b"])  # an output
    assert (graph.is_input("x"), graph.is_output("d"), graph.is_output("x")) == (True, True, False)
    with raises(GraphError, "missing", name="dd", hint=showing("did-you-mean")):
        graph["dd"]


def test_add_and_remove():
    graph = diamond()
    with pytest.raises(GraphError, match=says("node-twice", node="a")):
        graph.add(node("a"))
    with raises(GraphError, "node-in-use", node="b", reader="c"):
        graph.remove(graph["b"])
    graph.add(node("e", "d"))
    graph.remove(graph["e"])
    assert graph.consumers("d") == []


def test_replace_keeps_name_and_place():
    graph = diamond()
    graph.replace(graph["b"], node("other", "x", op="Neg"))
    assert names(graph) == ["x", "a", "b", "c", "k", "d"]
    assert graph["b"].op == "Neg"
    assert names(graph.consumers("a")) == ["c"]
    assert names(graph.consumers("x")) == ["a", "b"]


def test_redirect_follows_chains_and_knows_control_inputs():
    graph = diamond()
    graph.redirect({"b": "a:0", "a:1": "x", "^b": ["^a", "^x"]})
    assert graph["d"].inputs == ("a", "c", "^k")
    assert graph["c"].inputs == ("x", "^a", "^x")
    graph = Graph([node("x"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, 5))])
    graph.redirect({"n3": "n2", "n2": "n1"})
    assert graph["n4"].inputs == ("n1",)
    with raises(GraphError, "moves-circular"):
        graph.redirect({"n1": "n4", "n4": "n1", "n0": "n1"})


def test_prune_drops_what_no_output_needs_and_edges_from_constants():
    graph = diamond()
    graph.add(node("dead", "d"))
    graph.add(node("deader", "dead"))
    assert graph.prune() == 3  # dead, deader, and k, which only ordered
    assert names(graph) == ["x", "a", "b", "c", "d"]
    assert graph["d"].inputs == ("b", "c")
    graph.outputs = ("a",)
    graph.prune()
    assert names(graph) == ["x", "a"]
    graph.outputs = ()
    graph.prune()
    assert names(graph) == ["x"]  # inputs stay


def test_prune_drops_colocation_with_what_is_gone():
    graph = diamond()
    graph.replace(graph["b"], graph["b"].with_attrs(_class=["loc:@gone", "loc:@a"]))
    graph.replace(graph["c"], graph["c"].with_attrs(_class=["loc:@gone"]))
    graph.prune()
    assert graph["b"].attr("_class") == ["loc:@a"]
    assert "_class" not in graph["c"].attrs


def test_check():
    graph = diamond()
    graph.check()
    graph.outputs = ("dd",)
    with raises(GraphError, "graph-node-missing", name="dd", role="output"):
        graph.check()
    cycle = Graph([node("a", "b"), node("b", "a")])
    with raises(GraphError, "cycle", count=2):
        cycle.check()


def test_an_edit_makes_prune_and_check_look_again():
    graph = diamond()
    graph.prune()
    graph.check()
    broken, grown = graph.copy(), graph.copy()
    broken.replace(broken["d"], node("d", "gone"))
    with raises(GraphError, "input-missing-in-graph", tensor="gone"):
        broken.check()
    grown.add(node("dead", "d"))
    assert grown.prune() == 1
    grown.remove(grown["d"])
    with raises(GraphError, "graph-node-missing", name="d", role="output"):
        grown.check()
    graph.check()


def test_sort_is_stable_and_deterministic():
    graph = Graph([node("c", "b"), node("z"), node("b", "a"), node("a")])
    graph.sort()
    assert names(graph) == ["z", "a", "b", "c"]
    assert graph.order() == ("z", "a", "b", "c")


def test_a_while_loop_of_tensorflow_1_sorts():
    with building(["x"], ["out"]) as graph:
        tf.compat.v1.disable_control_flow_v2()
        try:
            x = tf.compat.v1.placeholder(tf.float32, [], name="x")
            tf.identity(tf.while_loop(lambda i: i < 10, lambda i: i * 2, [x])[0], name="out")
        finally:
            tf.compat.v1.enable_control_flow_v2()
    assert "NextIteration" in {n.op for n in graph}
    graph.sort()
    graph.check()
    order = {name: place for place, name in enumerate(graph.order())}
    assert order["x"] < order["out"]


def test_copy_shares_nodes_and_nothing_else():
    graph = diamond()
    copy = graph.copy()
    assert copy["a"] is graph["a"]
    copy.redirect({"b": "x"})
    copy.outputs = ("c",)
    copy.prune()
    assert str(graph) == str(diamond())
    assert graph.outputs == ("d",)


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_of_a_copy_never_shows_in_another(seed):
    draw = np.random.default_rng(seed)
    graphs = [diamond()]
    for _ in range(40):
        graph = graphs[draw.integers(len(graphs))]
        act = draw.integers(4)
        if act == 0:
            graphs.append(graph.copy())
        elif act == 1:
            graph.add(node(graph.unique_name("n"), draw.choice([each.name for each in graph])))
        elif act == 2:
            graph.redirect({"b": draw.choice(["a", "x"])})
        else:
            unread = [each for each in graph if not graph.has_consumers(each.name)]
            graph.remove(unread[0])
            graph.add(node("d" if "d" not in graph else graph.unique_name("e"), "x"))
    for graph in graphs:
        fresh = Graph(graph, graph.inputs, graph.outputs)
        assert graph.ops == {each.op for each in graph}
        for each in graph:
            for read in (Graph.consumers, Graph.readers):
                found, expected = read(graph, each.name), read(fresh, each.name)
                assert sorted(names(found)) == sorted(names(expected))


def test_versions_and_library_are_kept_and_bytes_are_the_same_twice():
    with building(["x"], ["out"]) as graph:

        @tf.function
        def twice(x):
            return x + x

        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        tf.add(twice(x), np.arange(500, dtype=np.float32)[:, None], name="out")  # frames of 2 kB
    assert len(graph.library.function) == 1
    assert graph.versions.producer > 1000
    content = b"".join(graph.serialized())
    assert content == b"".join(graph.copy().serialized())
    assert content == graph.to_graph_def().SerializeToString(deterministic=True)
    read = GraphDef.FromString(content)
    again = Graph.from_graph_def(read)
    assert str(again) == str(graph)
    assert again.library == graph.library


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.sampled)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_chain(reverse, count):
    nodes = [node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, count))]
    graph = Graph(reversed(nodes) if reverse else nodes, ["n0"], [f"n{count - 1}"])
    graph.check()
    assert graph.prune() == 0
    graph.sort()
    assert next(iter(graph)).name == "n0"
    graph.redirect({f"n{i}": f"n{i - 1}" for i in range(1, count - 1)})
    assert graph[f"n{count - 1}"].inputs == ("n0",)
    assert graph.prune() == count - 2


def test_20_000_nodes_that_one_waits_for():
    count = 20_000
    nodes = [node("x"), *(node(f"n{i}", "x") for i in range(count))]
    nodes.append(node("all", *(f"^n{i}" for i in range(count)), op="NoOp"))
    graph = Graph(nodes, [], ["all"])
    assert all(not graph.readers(f"n{i}") for i in range(count))
    assert len(graph.readers("x")) == count


def test_a_value_is_followed_through_identities_up_to_one_that_is_fed():
    nodes = [
        node("v", op="VariableV2"),
        node("i", "v:1", op="Identity"),
        node("j", "i", op="Identity"),
        node("k", "j"),
    ]
    assert Graph(nodes).source("j") == "v:1"
    assert Graph(nodes, inputs=["i"]).source("j") == "i"
    assert Graph(nodes).source("k") == "k"


SCALED = Op("Mul", Op("Conv2D|MatMul", Any("x"), Const("weights"), name="layer"), Any("scale"))


@pytest.mark.parametrize("op", ["AddV2", "Placeholder", "Variable", "ConstantFolding", "Cons"])
def test_only_a_const_is_a_constant(op):
    """Whatever the name of the op sorts before or behind."""
    graph = Graph([node("a", op=op), node("i", "a", op="Identity"), node("b", "i")])
    assert graph.constant("a") is None
    assert graph.constant("i") is None


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("identity", [False, True])
def test_patterns(swap, identity):
    nodes = [
        node("x"),
        Node.constant("w", np.ones((2, 2), np.float32)),
        node("read", "w", op="Identity"),
        node("layer", "x", "read" if identity else "w", op="MatMul"),
        node("s"),
        node("mul", *(("s", "layer") if swap else ("layer", "s")), op="Mul"),
        node("sub", "layer", "s", op="Sub"),
    ]
    graph = Graph(nodes, [], ["mul", "sub"])
    (match,) = graph.match(SCALED)
    assert (match.root.name, match["layer"].name, match["weights"].name) == ("mul", "layer", "w")
    assert (match.tensor("x"), match.tensor("scale")) == ("x", "s")
    graph.inputs = ("read" if identity else "w",)  # what is fed is not constant
    assert list(graph.match(SCALED)) == []


def test_matches_are_found_in_the_graph_as_it_is_now():
    graph = Graph([node("a"), node("b", "a"), node("c", "b")], [], ["c"])
    seen = []
    for match in graph.match(Op("Relu", name="any")):
        seen.append(match["any"].name)
        if match["any"].name == "a":
            graph.replace(graph["b"], node("b", "a", op="Neg"))
    assert seen == ["a", "c"]


def test_a_pattern_is_given_only_nodes_with_its_ops():
    pattern = SimpleNamespace(ops={"Neg"}, match=lambda graph, node: node.name)
    graph = Graph([node("a"), node("b", "a", op="Neg"), node("c", "b")])
    assert list(graph.match(pattern)) == ["b"]
