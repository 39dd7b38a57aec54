import numpy as np
import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.remove_nodes import remove_nodes
from tests.support import (
    assert_golden,
    build,
    built,
    error,
    ops,
    raises,
    random,
    says,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = {"x": random(2, 3, seed=9)}


@built(["x"], ["out"])
def fan_out():
    """Return a chain of three Identity nodes, read by two nodes; the last node is one as well."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    y = tf.raw_ops.Neg(x=x, name="neg")
    for i in range(3):
        y = tf.raw_ops.Identity(input=y, name=f"pass{i}")
    w = tf.raw_ops.Identity(input=tf.constant(random(3, 3), name="w"), name="read")
    a = tf.raw_ops.MatMul(a=y, b=w, name="a")
    b = tf.raw_ops.Relu(features=y, name="b")
    tf.raw_ops.Identity(input=tf.raw_ops.AddV2(x=a, y=b, name="sum"), name="out")


@built(["x"], ["out"])
def waiting():
    """Return removed nodes that wait, that are waited for, and both."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    checked = tf.raw_ops.CheckNumerics(tensor=x, message="x", name="checked")
    sizes = tf.raw_ops.Shape(input=x, name="sizes")
    with tf.control_dependencies([sizes]):
        first = tf.raw_ops.Identity(input=checked, name="first")
        second = tf.raw_ops.Identity(input=first, name="second")
    with tf.control_dependencies([second]):
        third = tf.raw_ops.Identity(input=x, name="third")
        done = tf.raw_ops.NoOp(name="done")
    with tf.control_dependencies([done]):
        tf.raw_ops.Mul(x=third, y=second, name="out")


def control_flow_v1(make_body) -> Graph:
    """Return the Switch, Merge, Enter, ... that TensorFlow 1 writes for a cond or a while_loop."""

    def make():
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
        positive = tf.raw_ops.Placeholder(dtype=tf.bool, shape=[], name="positive")
        tf.raw_ops.Neg(x=make_body(tf.compat.v1, x, positive), name="out")

    tf.compat.v1.disable_control_flow_v2()
    try:
        return build(make, ["x", "positive"], ["out"])
    finally:
        tf.compat.v1.enable_control_flow_v2()


def cond(tf, x, positive):
    def then():
        constant = tf.constant(random(2, 3, seed=5))  # dead only because it waits for the pivot
        return tf.identity(tf.identity(constant))

    return tf.identity(tf.cond(positive, then, lambda: tf.identity(x) - tf.constant(1.0)))


def loop(tf, x, positive):
    def body(i, y):
        y = tf.identity(y) * tf.constant(2.0)
        return tf.identity(i) + 1, tf.identity(tf.identity(y))

    limit = tf.identity(tf.cast(positive, "int32") * 3)
    return tf.identity(tf.while_loop(lambda i, y: tf.identity(i < limit), body, [0, x])[1])


def loop_in_cond(tf, x, positive):
    return tf.cond(positive, lambda: loop(tf, x, positive), lambda: tf.identity(x))


@pytest.mark.golden("remove_nodes/waiting")
def test_golden_of_control_inputs():
    graph = waiting()
    assert_golden(graph, transform(graph, "remove_nodes(op=Identity, op=CheckNumerics)"))


@pytest.mark.parametrize("make", [fan_out, waiting])
def test_the_values_stay(make):
    graph = make()
    result = transform(graph, "remove_nodes(op=Identity, op=CheckNumerics)")
    assert len(result) < len(graph)
    assert error(graph, result, X) == 0


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("make_body", [cond, loop, loop_in_cond])
def test_branches_and_loops_keep_their_values(make_body, positive):
    graph = control_flow_v1(make_body)
    result = transform(graph, "remove_nodes(op=Identity, op=Merge, op=Switch)")
    assert ops(result)["Identity"] < ops(graph)["Identity"]
    assert ops(result)["Switch"] == ops(graph)["Switch"]
    assert error(graph, result, X | {"positive": np.array(positive)}) == 0


def test_a_pivot_stays():
    result = transform(control_flow_v1(cond), "remove_nodes(op=Identity)")
    assert "cond/switch_t" in result
    assert "^cond/switch_t" in result["cond/Const"].inputs


def node(name: str, op: str, *inputs: str, **attrs) -> Node:
    made = Node(name, op, inputs)
    return made.with_attrs(**attrs) if attrs else made


LEFT_ALONE = {
    "an output": (
        [node("out", "Identity", "x")],
        skipped("out", "graph-output"),
    ),
    "an input": (
        [node("fed", "Identity", "x"), node("out", "Relu", "fed")],
        skipped("fed", "graph-input"),
    ),
    "no data input": (
        [node("i", "Const"), node("out", "Relu", "i")],
        skipped("i", "without-data-input"),
    ),
    "too many inputs": (
        [node("i", "FakeQuantWithMinMaxVars", "x", "x", "x"), node("out", "Relu", "i")],
        skipped("i", "too-many-inputs", count=3, most=2),
    ),
    "another output is read": (
        [node("i", "IdentityN", "x", "x"), node("out", "Add", "i", "i:1")],
        skipped("i", "other-output-read", port=1),
    ),
    "another type": (
        [node("i", "Shape", "x", T=DType("float32")), node("out", "Neg", "i")],
        skipped("i", "changes-type", made="int32", read="float32"),
    ),
    "the only way from the input": (
        [node("c", "Const"), node("i", "Add", "c", "x"), node("out", "Neg", "i")],
        skipped("i", "fed-input-not-first", tensor="x"),
    ),
    "a Merge": (
        [node("a", "Relu", "x"), node("i", "Merge", "a", "x"), node("out", "Neg", "i")],
        skipped("i", "control-flow-op"),
    ),
    "a pivot": (
        [
            node("s", "Switch", "x", "p"),
            node("i", "Identity", "s:1"),
            node("c", "Const", "^i"),
            node("out", "Neg", "c"),
        ],
        skipped("i", "tells-branch", node="s"),
    ),
    "dead only by its control input": (
        [
            node("s", "Switch", "x", "p"),
            node("pivot", "Relu", "s:1"),
            node("i", "Identity", "x", "^pivot"),
            node("out", "Merge", "i", "s"),
        ],
        skipped("i", "reader-takes-no-control", reader="out", op="Merge"),
    ),
    "waiting for what is fed": (
        [
            node("unfed", "Placeholder"),
            node("fed", "Relu", "unfed"),
            node("i", "Identity", "fed"),
            node("out", "Neg", "x", "^i"),
        ],
        skipped("i", "waits-for-input", input="fed"),
    ),
    "a variable": (
        [node("v", "VariableV2"), node("i", "Identity", "v"), node("out", "Neg", "i")],
        skipped("i", "reads-variable-in-time", variable="v"),
    ),
    "hundreds of control inputs": (
        [
            *[node(f"n{k}", "Neg", "x") for k in range(200)],
            node("i", "Identity", "x", *[f"^n{k}" for k in range(200)]),
            node("out", "Neg", "i"),
        ],
        skipped("i", "too-many-inherited", count=200),
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    nodes, reason = LEFT_ALONE[case]
    fed = [n.name for n in nodes if n.name == "fed"]
    graph = Graph(
        [node("x", "Placeholder"), node("p", "Placeholder"), *nodes], ["x", *fed], ["out"]
    )
    before = str(graph)
    name = reason.split("'")[1]
    remove_nodes(graph, op=(graph[name].op,), max_inputs=2)
    assert str(graph) == before
    assert reason in graph.skipped


def test_the_data_inputs_of_a_node_with_several_inputs_are_lost():
    graph = Graph(
        [
            node("x", "Placeholder"),
            *[node(name, "Const") for name in ("low", "high")],
            node("q", "FakeQuantWithMinMaxVars", "x", "low", "high"),
            node("out", "Relu", "q"),
        ],
        ["x"],
        ["out"],
    )
    remove_nodes(graph, op=("FakeQuantWithMinMaxVars",), max_inputs=3)
    assert graph["out"].inputs == ("x",)
    assert "q" not in graph


def test_a_port_of_the_source_is_kept():
    chain = [node("i", "Identity", "s:1"), node("j", "Identity", "i"), node("out", "Relu", "j")]
    graph = Graph([node("s", "Split", "x", "x"), node("x", "Placeholder"), *chain], ["x"], ["out"])
    remove_nodes(graph, op=("Identity",))
    assert graph["out"].inputs == ("s:1",)


def test_a_control_input_on_a_removed_node_waits_for_all_that_this_waited_for():
    graph = Graph(
        [
            *[node(name, "Placeholder") for name in "xyz"],
            node("a", "Identity", "x", "^y"),
            node("b", "Identity", "a", "^z"),
            node("c", "Identity", "z", "^b"),
            node("out", "Neg", "c"),
        ],
        "xyz",
        ["out"],
    )
    remove_nodes(graph, op=("Identity",))
    assert graph["out"].inputs == ("z", "^x", "^y", "^z")
    assert len(graph) == 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"op": ()}, says("op-empty")),
        (
            {"op": ("Identity",), "max_inputs": 0},
            says("out-of-range", name="max_inputs", expected="at least 1", got=0),
        ),
        ({"op": ("Identiy",)}, says("missing", kind="op", name="Identiy")),
    ],
)
def test_errors(parameters, message):
    with pytest.raises(PipelineError, match=message):
        remove_nodes(Graph([node("x", "Placeholder")]), **parameters)


def test_no_op_in_a_transform_string_is_an_error():
    with raises(PipelineError, "parameter-missing", transform="remove_nodes", name="op"):
        transform(fan_out(), "remove_nodes")


def test_an_op_that_only_this_graph_knows_is_accepted():
    graph = Graph([node("x", "Placeholder"), node("i", "MyPass", "x"), node("out", "Neg", "i")])
    remove_nodes(graph, op=("MyPass",))
    assert graph["out"].inputs == ("x",)


@pytest.mark.slow
def test_a_chain_of_100_000_nodes():
    count = 100_000
    nodes = [node(f"n{i}", "Identity", f"n{i - 1}" if i else "x") for i in range(count)]
    last = node("out", "Neg", f"n{count - 1}", "^n500")
    graph = Graph([node("x", "Placeholder"), *nodes, last], ["x"], ["out"])
    remove_nodes(graph, op=("Identity",))
    assert str(graph["out"]) == "out = Neg(x, ^x)"
    assert len(graph) == 2


def test_10_000_nodes_that_one_node_waits_for():
    count = 10_000
    reads = [node(f"r{i}", "Identity", f"w{i}") for i in range(count)]
    graph = Graph(
        [
            node("x", "Placeholder"),
            *[node(f"w{i}", "Const") for i in range(count)],
            *reads,
            node("done", "NoOp", *[f"^{read.name}" for read in reads]),
            node("out", "Neg", "x", "^done"),
        ],
        ["x"],
        ["out"],
    )
    remove_nodes(graph, op=("Identity",))
    assert graph["done"].inputs == tuple(f"^w{i}" for i in range(count))
    graph.prune()
    assert graph["done"].inputs == ()


def test_a_chain_in_which_every_node_waits_for_another():
    """What is inherited is bounded, so that it does not grow with the square of the chain."""
    count = 1_300
    nodes = []
    for i in range(count):
        nodes.append(node(f"k{i}", "Neg", "x"))
        nodes.append(node(f"n{i}", "Identity", f"n{i - 1}" if i else "x", f"^k{i}"))
        nodes.append(node(f"r{i}", "Relu", f"n{i}"))
    graph = Graph([node("x", "Placeholder"), *nodes], ["x"], [f"r{i}" for i in range(count)])
    remove_nodes(graph, op=("Identity",))
    assert max(len(n.control_inputs) for n in graph) == 65
    assert sum(n.op == "Identity" for n in graph) == count // 65


GRAPHS = [
    Example("remove_nodes(op=Identity)", fan_out, golden="fan_out"),
    Example("remove_nodes(op=Identity)", waiting),
]
