from random import Random

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.remove_control_dependencies import remove_control_dependencies
from tests.support import (
    Containing,
    because,
    building,
    built,
    ops,
    raises,
    random,
    run,
    says,
    tf,
    transform,
)
from tests.transforms.examples import Example


@built(["x"], ["out"])
def frozen(weights: int = 3):
    """Return what convert_variables_to_constants_v2 leaves: one NoOp that waits for all weights."""
    y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    read = []
    for i in range(weights):
        w = tf.constant(random(3, 3, seed=i), name=f"w{i}")
        read.append(tf.raw_ops.Identity(input=w, name=f"read{i}"))
        y = tf.raw_ops.MatMul(a=y, b=read[-1], name=f"layer{i}")
    with tf.control_dependencies(read):
        done = tf.raw_ops.NoOp(name="done")
    with tf.control_dependencies([done]):
        tf.raw_ops.Identity(input=y, name="out")


def control_inputs(graph: Graph) -> list[str]:
    return [tensor for node in graph for tensor in node.control_inputs]


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [Node("x", "Placeholder"), Node("out", "Relu", ("x",))],
        [Node("s", "Split", ("a", "x")), Node("a", "Const"), Node("x", "Relu", ("s:1",))],
    ],
)
def test_a_graph_without_control_inputs_is_left_alone(nodes):
    graph = Graph(nodes)
    remove_control_dependencies(graph)
    assert all(a is b for a, b in zip(graph, nodes, strict=True))


def test_data_inputs_keep_their_order_and_ports():
    graph = Graph([Node("a", "A"), Node("b", "B"), Node("c", "C", ("b:2", "a", "a:1", "^b"))])
    remove_control_dependencies(graph)
    assert graph["c"].inputs == ("b:2", "a", "a:1")
    assert graph.consumers("b") == [graph["c"]]


def test_20_000_control_inputs_of_one_node():
    nodes = [Node(f"c{i}", "Const") for i in range(20_000)]
    graph = Graph([*nodes, Node("done", "NoOp", tuple(f"^{node.name}" for node in nodes))])
    remove_control_dependencies(graph)
    assert control_inputs(graph) == []


# ------------------------------------------------------- loops and conditionals of TensorFlow 1


def flow(make) -> Graph:
    """Return a graph of the scalars a and b, its loops and branches as TensorFlow 1 writes them."""

    with building(["a", "b"], ["out"]) as graph:
        v1 = tf.compat.v1
        v1.disable_control_flow_v2()
        try:
            a, b = (v1.placeholder(tf.float32, [], name=name) for name in "ab")
            tf.identity(make(tf, a, b) + 0 * a + 0 * b, name="out")
        finally:
            v1.enable_control_flow_v2()
    graph.prune()
    return graph


def answers(graph: Graph) -> list[float]:
    pairs = ((0, 1), (1, 0), (2, 2.5), (-1, 0.25))
    feeds = ({"a": np.float32(a), "b": np.float32(b)} for a, b in pairs)
    return [float(run(graph, feed)[0]) for feed in feeds]


def constant_in_a_loop(tf, a, b):
    return tf.while_loop(lambda x: x < 9, lambda x: x + 1, [a])[0]


def constant_from_outside(tf, a, b):
    one, nine = tf.constant(1.0), tf.constant(9.0)
    return tf.while_loop(lambda x: x < nine, lambda x: x + one, [a])[0]


def rank_of_what_stays(tf, a, b):
    """Tied to the way on, not to the loop: without, the loop goes back for ever."""
    one, three, rank = tf.constant(1.0), tf.constant(3.0), tf.raw_ops.Rank
    return tf.while_loop(
        lambda i, y: i < three, lambda i, y: (i + one, tf.cast(rank(input=one), tf.float32)),
        [a, b],
    )[1]  # fmt: skip


def constant_in_a_branch(tf, a, b):
    return tf.cond(a > b, lambda: tf.constant(3.0), lambda: a)


def sum_of_constants_in_a_branch(tf, a, b):
    add = tf.raw_ops.AddV2
    return tf.cond(a > b, lambda: a, lambda: add(x=tf.constant(3.0), y=tf.constant(1.0)))


def constants_with_what_is_read_in_a_branch(tf, a, b):
    return tf.cond(a > b, lambda: a * 3.0, lambda: 2.0 - b)


def branches_in_a_branch(tf, a, b):
    """A constant that goes through an inner Switch, whose condition is tied to the branch."""
    return tf.cond(
        a > b, lambda: tf.cond(b > 0.5, lambda: b + 2.0, lambda: a * 2.0), lambda: b + 1.0
    )


def waits_for_a_loop(tf, a, b):
    """Which way a loop went inside says nothing of what waits for its end."""
    nine, one = tf.constant(9.0), tf.constant(1.0)
    end = tf.while_loop(lambda x: x < nine, lambda x: x + one, [b])[0]

    def branch():
        with tf.control_dependencies([end]):
            return tf.identity(a)

    return tf.cond(a > b, branch, lambda: b * 2.0)


def loop_in_a_branch(tf, a, b):
    """The loop starts from constants, and passes on what is read: they come to differ."""

    def loop():
        limit, one, start = tf.constant(3.0), tf.constant(1.0), tf.constant(0.0)
        step = lambda i, y: (i + one, tf.identity(i))  # noqa: E731
        return tf.while_loop(lambda i, y: i < limit, step, [start, a])[1]

    return tf.cond(a < b, loop, lambda: tf.cast(tf.raw_ops.Rank(input=a), tf.float32))


SAFE = [
    constant_from_outside, constants_with_what_is_read_in_a_branch, branches_in_a_branch,
    waits_for_a_loop,
]  # fmt: skip
TIED = {
    constant_in_a_loop: says("loop-by-control-only", node="while/Less/y"),
    rank_of_what_stays: says(
        "branch-by-control-only", tensor="while/NextIteration_1", node="while/Merge_1"
    ),
    constant_in_a_branch: says("branch-by-control-only", tensor="cond/Const", node="cond/Merge"),
    sum_of_constants_in_a_branch: says("branch-by-control-only", tensor="cond/AddV2"),
    loop_in_a_branch: says("branch-by-control-only", tensor="cond/while/NextIteration_1"),
}


@pytest.mark.parametrize("make", SAFE)
def test_what_is_tied_by_data_too_stays_right(make):
    graph = flow(make)
    result = transform(graph, "remove_control_dependencies")
    assert control_inputs(graph) != [] or make is constant_from_outside
    assert control_inputs(result) == []
    assert answers(result) == answers(graph)


@pytest.mark.parametrize("make", TIED)
def test_what_is_tied_by_control_inputs_alone_is_refused_unless_forced(make):
    graph = flow(make)
    before = str(graph)
    with pytest.raises(GraphError, match=TIED[make]) as refused:
        remove_control_dependencies(graph)
    assert because("tied-way-out") in refused.value.fields["advice"]
    assert str(graph) == before
    forced = transform(graph, "remove_control_dependencies(force=true)")
    assert control_inputs(forced) == []


def test_what_is_forced_is_wrong():
    """Of the others, one never ends; in a conditional, whichever branch comes first answers."""
    with raises(
        GraphError,
        "runtime-failed",
        action="run the graph",
        reason=Containing("inputs from different"),
        runtime="TensorFlow",
    ):
        answers(transform(flow(constant_in_a_loop), "remove_control_dependencies(force=true)"))


def expression(random, tf, known, depth):
    """Return a random scalar of known ones, with loops and branches up to a depth."""

    def below(*more):
        return expression(random, tf, [*known, *more], depth - 1)

    kinds = ["known", "constant", "sum", "constants", "rank", "wait"]
    kind = random.choice([*kinds, *["cond", "while"] * 4] if depth else kinds)
    number = float(random.randint(1, 5))
    if kind == "constant":
        return tf.constant(number)
    if kind == "sum":
        return random.choice(known) + random.choice([*known, number])
    if kind == "constants":
        return tf.raw_ops.AddV2(x=tf.constant(number), y=tf.constant(2.0))
    if kind == "rank":
        return tf.cast(tf.raw_ops.Rank(input=random.choice(known)), tf.float32)
    if kind == "wait":
        with tf.control_dependencies([random.choice(known)]):
            return tf.identity(random.choice(known))
    if kind == "cond":
        return tf.cond(random.choice(known) > random.choice([*known, 0.5]), below, below)
    if kind == "while":
        one, three = tf.constant(1.0), tf.constant(3.0)
        inside = random.random() < 0.3
        return tf.while_loop(
            lambda i, y: i < (3.0 if inside else three),
            lambda i, y: (i + (1.0 if inside else one), below(i, y)),
            [tf.constant(number - 4), random.choice(known)],
        )[1]
    return random.choice(known)


def check_random(seeds) -> dict[str, int]:
    counts = {"equal": 0, "refused": 0}
    for seed in seeds:
        rng = Random(seed)
        graph = flow(lambda tf, a, b, r=rng: expression(r, tf, [a, b, tf.constant(1.5)], 2))
        if not {"Switch", "Enter"} & set(ops(graph)):
            continue
        try:
            result = transform(graph, "remove_control_dependencies")
        except GraphError:
            counts["refused"] += 1
            continue
        assert answers(result) == answers(graph), seed
        counts["equal"] += 1
    return counts


def test_random_loops_and_branches_are_refused_or_right():
    counts = check_random(range(80))
    assert min(counts.values()) >= 4


@pytest.mark.sampled
def test_many_random_loops_and_branches():
    assert min(check_random(range(1000, 1600)).values()) >= 30


GRAPHS = [
    Example(
        "remove_control_dependencies",
        frozen,
        lost="it is asked to",
        refused=("in a loop",),
        golden="frozen",
    )
]
