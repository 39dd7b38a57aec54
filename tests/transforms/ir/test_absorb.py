"""What a rewrite must never lose: waits, effects, and the loop that a constant belongs to."""

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import building, call_here, random, run, tf, transform
from tests.transforms import surroundings
from tests.transforms.test_every_surrounding import EXAMPLES, NAMES, ONE_EACH, lost_effects
from tests.transforms.test_fold_batch_norms import layer_with_norm

EFFECT = Node("effect", "Assert")


def graph_of(*nodes: Node, outputs=("out",)) -> Graph:
    graph = Graph([Node("x", "Placeholder"), EFFECT, *nodes], ["x"], outputs)
    graph.check()
    return graph


def const(name: str, *inputs: str) -> Node:
    return Node.constant(name, np.array(2, np.float32)).with_control_inputs(*inputs)


def chain(*after: Node, **waits: str) -> Graph:
    """Return x -> a -> b -> out with constants c and d; `waits` gives nodes a control input."""
    nodes = [const("c"), Node("read", "Identity", ("c",)), Node("a", "Mul", ("x", "read"))]
    nodes += [const("d"), Node("b", "Mul", ("a", "d")), Node("out", "Relu", ("b",))]
    nodes = [n.with_control_inputs(f"^{waits[n.name]}") if n.name in waits else n for n in nodes]
    return graph_of(*nodes, *after)


@pytest.mark.parametrize("who", ["a", "b", "read", "c", "d"])
def test_the_new_node_waits_for_all_that_goes(who):
    graph = chain(**{who: "effect"})
    new = graph.absorb([graph["a"], graph["b"]], into=Node("b", "Neg", ("x",)))
    assert (new.inputs, graph["b"]) == (("x", "^effect"), new)
    assert {node.name for node in graph} == {"x", "effect", "b", "out"}
    graph.check()


def test_what_others_need_stays_with_its_waits():
    graph = chain(Node("other", "Relu", ("read",)), read="effect")
    graph.outputs = ("out", "other")
    assert graph.absorb([graph["a"], graph["b"]], into=Node("b", "Neg", ("x",))).inputs == ("x",)
    assert graph["read"].control_inputs == ("^effect",)  # which 'other' reads, as outputs need it


def test_who_waited_for_what_goes_waits_for_what_that_needed():
    waiter = Node("waiter", "NoOp", ("^a",))
    graph = chain(waiter, a="effect")
    graph.replace(graph["out"], graph["out"].with_control_inputs("^waiter"))
    graph.absorb([graph["a"], graph["b"]], into=Node("b", "Neg", ("x",)))
    assert set(graph["waiter"].inputs) == {"^x", "^read", "^effect"}
    graph.check()


def test_a_wait_within_the_chain_becomes_no_cycle():
    graph = chain(b="a")
    assert graph.absorb([graph["a"], graph["b"]], into=Node("b", "Neg", ("x",))).inputs == ("x",)


def test_what_acts_does_not_go_with_its_reader():
    printed = Node("printed", "Print", ("d", "d"))
    graph = chain(printed)
    graph.replace(graph["b"], graph["b"].with_data_inputs("a", "printed"))
    assert graph.absorb([graph["b"]], into=Node("b", "Neg", ("a",))).inputs == ("a", "^printed")


def test_what_is_fed_or_fetched_stays():
    graph = chain()
    graph.outputs, graph.inputs = ("out", "a"), ("x", "read")
    graph.absorb([graph["a"], graph["b"]], into=Node("b", "Neg", ("x",)))
    assert {"a", "read"} <= {node.name for node in graph}


def test_a_constant_is_shown_with_the_waits_on_the_way():
    graph = chain(c="x", read="effect")
    found = graph.constant("read")
    assert (found.name, set(found.inputs)) == ("c", {"^x", "^effect"})
    assert graph.constant("d").inputs == ()
    assert graph.constant("a") is None
    graph.inputs = ("x", "c")
    assert graph.constant("read") is None
    beside = graph.constant_beside(found, np.zeros(2), "new")
    assert beside.inputs == found.inputs


def test_a_constant_lies_in_the_loop_of_the_node_that_reads_it():
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2], name="x")
        tf.raw_ops.Relu(features=x * 2.0, name="out")
    assert graph.constant_beside(graph["out"], np.zeros(1)).inputs == ()
    for around, expected in ((surroundings.in_a_branch, ()), (surroundings.in_a_loop, ("^mul",))):
        inside = around(graph)
        assert inside.constant_beside(inside["out"], np.zeros(1)).inputs == expected
    inside.add(Node("behind", "Neg", inside.outputs))
    assert inside.constant_beside(inside["behind"], np.zeros(1)).inputs == ()
    twice = surroundings.in_a_loop(graph)
    twice.add(Node("deeper", "Enter", ("out",)).with_attrs(frame_name="inner"))
    twice.add(Node("left", "Exit", ("deeper",)))
    twice.add(Node("still", "Neg", ("left",)))
    assert twice.constant_beside(twice["still"], np.zeros(1)).inputs == ("^left",)


def test_a_wait_that_a_read_node_has_goes():
    """TensorFlow dies of a Conv2D and a BiasAdd that wait for the same nodes, under oneDNN."""
    graph, feeds = layer_with_norm("conv2d", "fused v3", "bias")
    graph.add(Node("before", "Neg", ("x",)).with_attrs(T=graph["layer"].attr("T")))
    bias = next(node for node in graph if node.op == "BiasAdd")
    for node in (graph["layer"], bias):
        graph.replace(node, node.with_control_inputs("^before"))
    graph.prune()
    assert graph["layer"].control_inputs == ("^before",)
    assert graph[bias.name].control_inputs == ()
    run(transform(graph, "fold_batch_norms"), feeds)


def test_a_merge_keeps_its_waits():
    merge = Node("out", "Merge", ("a", "b", "^effect"))
    graph = graph_of(Node("a", "Neg", ("x", "^effect")), Node("b", "Neg", ("x",)), merge)
    graph.prune()
    assert graph["out"].control_inputs == ("^effect",)


FOLDS = [ONE_EACH[name] for name in ("fold_batch_norms", "fuse_dilations")]


@pytest.mark.sampled
@pytest.mark.parametrize("number", FOLDS, ids=[NAMES[number] for number in FOLDS])
def test_the_check_sees_waits_that_are_forgotten(number, monkeypatch, tmp_path):
    from deploykit.transforms.shapes import static_shapes

    monkeypatch.setattr(static_shapes, "call", call_here)

    def forgetful(graph: Graph, nodes, into: Node) -> Node:
        return graph.replace(into, into) if into.name in graph else graph.add(into)

    monkeypatch.setattr(Graph, "absorb", forgetful)
    example = EXAMPLES[number]
    assert lost_effects(example, example.prepared(example.make(), tmp_path))


def test_the_check_sees_a_constant_outside_of_its_loop(monkeypatch):
    from tests.transforms.test_every_surrounding import outcome

    graph = next(e for e in EXAMPLES if e.name == "fuse_resize_and_conv").make()
    inside = surroundings.in_a_loop(graph)
    feeds = {"x": random(*graph["x"].attr("shape"))}
    assert outcome(transform(inside, "fuse_resize_and_conv"), feeds) == ""
    monkeypatch.setattr(Graph, "waits_beside", lambda graph, node: ())
    assert "different frames" in outcome(transform(inside, "fuse_resize_and_conv"), feeds)
