"""pin_placeholder: branches of both kinds, nested and in loops; what is refused, what stays."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.control_flow import fold_dead_branches
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.pin_placeholder import pin_placeholder
from tests.support import Containing, assert_golden, build, ops, random, run, says, tf, transform
from tests.transforms.examples import Example

X = random(2, 5, 5, 4)
FASHION = Path(__file__).parents[2] / "models" / "fashion" / "tf1" / "model.ckpt.meta"


@contextlib.contextmanager
def control_flow_v1():
    tf.compat.v1.disable_control_flow_v2()
    try:
        yield tf.compat.v1
    finally:
        tf.compat.v1.enable_control_flow_v2()


def placeholders(dtype="bool", name="is_training"):
    x = tf.compat.v1.placeholder(tf.float32, [2, 5, 5, 4], name="x")
    return x, tf.compat.v1.placeholder(dtype, [], name=name)


def batch_norm(x, is_training, cond, seed=0):
    """A batch norm that a condition switches, as a TensorFlow 1 model holds it."""
    gamma, beta, mean = (tf.constant(random(4, seed=seed + i)) for i in range(3))
    variance = tf.constant(random(4, seed=seed + 3, low=0.1, high=3.0))

    def normalised(*statistics, **mode):
        return tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, *statistics, **mode)[0]

    return cond(is_training, normalised, lambda: normalised(mean, variance, is_training=False))


def two_batch_norms():
    x, is_training = placeholders()
    with control_flow_v1() as v1:
        y = v1.nn.relu(batch_norm(x, is_training, v1.cond))
        v1.identity(batch_norm(y, is_training, v1.cond, seed=5), name="out")


def with_default():
    x = tf.compat.v1.placeholder(tf.float32, [2, 5, 5, 4], name="x")
    is_training = tf.compat.v1.placeholder_with_default(False, [], name="is_training")
    with control_flow_v1() as v1:
        v1.identity(batch_norm(x, v1.logical_not(is_training), v1.cond), name="out")


def constants_and_waits():
    """Constants in branches wait for the branch; so do ops that only control edges hold."""
    x, is_training = placeholders()
    with control_flow_v1() as v1:

        def branch(sign):
            check = v1.debugging.Assert(v1.constant(True), [x])
            with v1.control_dependencies([check, v1.no_op()]):
                return v1.concat([x * sign, v1.zeros([2, 5, 5, 4])], axis=-1) + sign

        y = v1.cond(is_training, lambda: branch(2.0), lambda: branch(-3.0))
        with v1.control_dependencies([y.op]):
            v1.identity(x, name="after")
    tf.identity(y, name="out")


def inner_decided():
    """The condition outside varies; the one inside is pinned, and reaches it through a Switch."""
    x, is_training = placeholders()
    with control_flow_v1() as v1:

        def inside():
            y = batch_norm(x, is_training, v1.cond)
            return v1.cond(v1.logical_not(is_training), lambda: y + 1.0, lambda: y * 2.0)

        positive = v1.reduce_sum(x) > 0
        v1.identity(v1.cond(positive, inside, lambda: x), name="out")


def outer_decided():
    """The condition outside is pinned; inside one branch another varies, with a loop in it."""
    x, is_training = placeholders()
    with control_flow_v1() as v1:

        def loop(y):
            return v1.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 0.5), [0, y])[1]

        def varies():
            return v1.cond(v1.reduce_sum(x) > 0, lambda: loop(x), lambda: x - 1.0)

        y = v1.cond(is_training, varies, lambda: loop(x + 1.0))
        v1.identity(loop(y), name="out")


def condition_of_a_condition():
    """The result of one decided branch decides the next; a number decides the first."""
    x, mode = placeholders("int32")
    with control_flow_v1() as v1:
        first = v1.cond(v1.equal(mode, 1), lambda: v1.constant(3), lambda: v1.constant(4))
        second = v1.cond(first > 3, lambda: x + 1.0, lambda: x * 2.0)
        cases = [(v1.equal(mode, n), lambda n=n: second * (n + 0.5)) for n in (0, 1, 2)]
        v1.identity(v1.case(cases, default=lambda: second), name="out")


def in_a_loop():
    """A loop's body holds a pinned condition, which comes in through an Enter."""
    x, is_training = placeholders()
    with control_flow_v1() as v1:

        def body(i, t):
            t = v1.cond(is_training, lambda: t + v1.constant(random(4)), lambda: t * 2.0)
            return i + 1, v1.cond(v1.less(i, 1), lambda: t + 1.0, lambda: t)

        v1.identity(v1.while_loop(lambda i, _: i < 3, body, [0, x])[1], name="out")


def functional():
    """If in a function that is called, with If and While inside; a While beside it."""
    x, is_training = placeholders()

    def loop(y):
        return tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 0.5), (0, y))[1]

    @tf.function
    def model(y, training):
        y = tf.nn.relu(batch_norm(y, training, tf.cond))

        def again():
            return batch_norm(y, training, tf.cond)

        inner = tf.logical_not(training)
        return tf.cond(training, lambda: tf.cond(inner, lambda: y, again), lambda: loop(y))

    y = model(x, is_training)
    tf.identity(tf.while_loop(lambda i, _: i < 2, lambda i, t: (i + 1, t + x), (0, y))[1], "out")


def function_below_switch():
    """A function with an If is called inside a TensorFlow 1 branch, and in one that varies."""
    x, is_training = placeholders()

    @tf.function
    def model(y, training):
        return tf.cond(training, lambda: y * tf.constant(random(4)), lambda: y + 1.0)

    with control_flow_v1() as v1:
        y = v1.cond(is_training, lambda: model(x, is_training), lambda: model(x * 3.0, is_training))
        positive = v1.reduce_sum(x) > 0
        y += v1.cond(positive, lambda: model(x, is_training), lambda: x)
    tf.identity(y, name="out")


def switch_case():
    x, index = placeholders("int32")
    branches = [lambda n=n: x * (n + 0.5) for n in range(3)]
    tf.identity(tf.switch_case(index, branches), name="out")


BOTH = ("true", "false")
MADE = {
    two_batch_norms: BOTH,
    with_default: BOTH,
    constants_and_waits: BOTH,
    outer_decided: BOTH,
    condition_of_a_condition: ("0", "1", "2", "7"),
    in_a_loop: BOTH,
    inner_decided: BOTH,
    functional: BOTH,
    function_below_switch: BOTH,
    switch_case: ("0", "1", "2", "3", "-1"),
}
CASES = [(make, value) for make, values in MADE.items() for value in values]
PARSED = {"true": True, "false": False}


def made(make, *outputs) -> Graph:
    return build(make, ["x", "is_training"], outputs or ["out"])


def pinned(graph: Graph, value: str) -> Graph:
    return transform(graph, f"pin_placeholder(name=is_training, value={value})")


def difference(graph: Graph, result: Graph, value: str, x=X) -> float:
    """Return how far the result is from the graph that is fed the value."""
    fed = graph.copy()
    constant = np.array(PARSED.get(value, value)).astype(graph["is_training"].attr("dtype"))
    expected = run(fed, {"x": x, "is_training": constant})
    actual = run(result, {"x": x})
    return max(float(np.abs(a - b).max()) for a, b in zip(expected, actual, strict=True))


@pytest.mark.parametrize(("make", "value"), CASES, ids=lambda c: getattr(c, "__name__", c))
def test_values_stay_to_the_bit(make, value):
    graph = made(make)
    result = pinned(graph, value)
    assert result.inputs == ("x",)
    assert difference(graph, result, value) == 0
    assert difference(graph, result, value, -X) == 0
    left = {"If", "StatelessIf", "Case", "StatelessCase", "PartitionedCall"} & set(ops(result))
    assert not left


@pytest.mark.parametrize("make", [two_batch_norms, with_default, constants_and_waits,
                                  condition_of_a_condition, functional, switch_case])  # fmt: skip
def test_no_branch_is_left(make):
    result = pinned(made(make), MADE[make][0])
    assert not {"Switch", "Merge", "If", "StatelessIf", "StatelessCase"} & set(ops(result))


@pytest.mark.parametrize(("make", "merges"), [(inner_decided, 1), (in_a_loop, 3)])
def test_only_branches_that_vary_and_loops_are_left(make, merges):
    assert ops(pinned(made(make), "false"))["Merge"] == merges


@pytest.mark.golden("pin_placeholder/batch norms {value}")
@pytest.mark.parametrize("value", BOTH)
def test_golden(value):
    graph = made(two_batch_norms)
    assert_golden(graph, pinned(graph, value))


@pytest.mark.golden("pin_placeholder/constants and waits")
def test_golden_of_constants_and_waits():
    graph = made(constants_and_waits, "cond/Merge", "after")
    assert_golden(graph, pinned(graph, "false"))


@pytest.mark.slow
def test_folding_is_linear():
    """Each of many conditions depends on the branch before it."""
    nodes = [Node("is_training", "Placeholder").with_attrs(dtype=DType("bool"), shape=())]
    last, boolean = "is_training", {"T": DType("bool")}
    for number in range(4_000):
        s = nodes.append(Node(f"s{number}", "Switch", (last, last)).with_attrs(**boolean))
        s = f"s{number}"
        nodes.append(Node(f"f{number}", "Identity", (s,)).with_attrs(**boolean))
        nodes.append(Node(f"t{number}", "LogicalNot", (f"{s}:1",)))
        nodes.append(Node(f"n{number}", "LogicalNot", (f"t{number}",)))
        last = f"m{number}"
        merge = Node(last, "Merge", (f"f{number}", f"n{number}"))
        nodes.append(merge.with_attrs(N=2, **boolean))
    graph = Graph(nodes, ["is_training"], [last])
    result = pinned(graph, "true")
    assert not {"Switch", "Merge"} & set(ops(result))


# ------------------------------------------------------------------ single nodes


def node(name, op, *inputs, **attrs) -> Node:
    return Node(name, op, inputs).with_attrs(**attrs)


F32 = DType("float32")


def switched(*nodes: Node, outputs=("out",), dtype="bool") -> Graph:
    """Return a graph with `s` = Switch(x, is_training), `f` and `t` behind it, `m` = Merge."""
    taken = {
        "x": node("x", "Placeholder", dtype=F32, shape=(2, 5, 5, 4)),
        "is_training": node("is_training", "Placeholder", dtype=DType(dtype), shape=()),
        "s": node("s", "Switch", "x", "is_training", T=F32),
        "f": node("f", "Neg", "s", T=F32),
        "t": node("t", "Square", "s:1", T=F32),
        "m": node("m", "Merge", "f", "t", N=2, T=F32),
        "out": node("out", "Abs", "m", T=F32),
    }
    taken |= {new.name: new for new in nodes}
    return Graph(taken.values(), ["x", "is_training"], outputs)


SINGLE = {
    "a Merge that is fetched": switched(outputs=["m"]),
    "both outputs of it": switched(outputs=["m", "m:1"]),
    "who is alive": switched(node("out", "Neg", "m:1", T=DType("int32"))),
    "a Switch that is fetched": switched(
        node("m", "Merge", "s", "s:1", N=2, T=F32), outputs=["m"]),
    "a Merge that waits for the dead": switched(
        node("m", "Merge", "f", "t", "^f", "^t", N=2, T=F32)),
    "a ControlTrigger that waits for the dead": switched(
        node("c", "ControlTrigger", "^f", "^t"), node("out", "Abs", "x", "^c", T=F32)),
    "waiting for the Switch": switched(node("out", "Abs", "x", "^s", T=F32)),
    "waiting for the Merge": switched(node("out", "Abs", "x", "^m", T=F32)),
    "a Switch that waits": switched(
        node("w", "Sum", "x", "i", T=F32, Tidx=DType("int32")),
        node("i", "Const", dtype=DType("int32"), value=np.array([0], np.int32)),
        node("s", "Switch", "x", "is_training", "^w", T=F32)),
    "dead by a control edge": switched(
        node("p", "Identity", "s:1", T=F32), node("q", "Identity", "s", T=F32),
        node("f", "Neg", "x", "^q", T=F32), node("t", "Square", "x", "^p", T=F32)),
    "a Merge of three": switched(
        node("f2", "Exp", "s", T=F32),
        node("m", "Merge", "f2", "t", N=2, T=F32)),
}  # fmt: skip


@pytest.mark.parametrize("value", BOTH)
@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_single_nodes(case, value):
    graph = SINGLE[case]
    result = pinned(graph, value)
    assert not {"Switch", "Merge"} & set(ops(result)), str(result)
    assert difference(graph, result, value) == 0


@pytest.mark.parametrize(("value", "port"), [("0", 0), ("2", 2), ("3", 2), ("-1", 2)])
def test_a_switch_of_many(value, port):
    graph = switched(
        node("s", "_SwitchN", "x", "is_training", num_outs=3, T=F32),
        node("e", "Exp", "s:2", T=F32),
        node("m", "Merge", "f", "t", "e", N=3, T=F32),
        outputs=["m", "m:1"],
        dtype="int32",
    )
    result = pinned(graph, value)
    assert difference(graph, result, value) == 0
    assert run(result, {"x": X})[1] == port


def test_a_merge_with_several_live_inputs_keeps_them():
    graph = switched(
        node("a", "Placeholder", dtype=DType("bool"), shape=()),
        node("sa", "Switch", "x", "a", T=F32),
        node("na", "Neg", "sa", T=F32),
        node("ea", "Exp", "sa:1", T=F32),
        node("p", "Identity", "s:1", T=F32),
        node("z", "Const", "^p", dtype=F32, value=X),
        node("m", "Merge", "z", "na", "ea", N=3, T=F32),
    )
    result = pinned(graph, "false")
    assert str(result["m"]) == "m = Merge(na, ea) {N=2, T=float32}"
    for a in (True, False):
        feeds = {"x": X, "a": np.array(a)}
        (expected,) = run(graph, {**feeds, "is_training": np.array(False)})
        np.testing.assert_array_equal(run(result, feeds)[0], expected)
    graph.outputs = ("out", "m:1")
    with pytest.raises(GraphError, match=says("merge-index-needed")):
        pinned(graph, "false")


def condition(dtype, value):
    x = tf.compat.v1.placeholder(tf.float32, [2, 5, 5, 4], name="x")
    c = tf.compat.v1.placeholder(dtype, np.shape(value), name="is_training")
    function = tf.function(lambda y: y * 2.0).get_concrete_function(x)
    other = tf.function(lambda y: y + 2.0).get_concrete_function(x)
    result = tf.raw_ops.StatelessIf(
        cond=c, input=[x], Tout=[tf.float32], then_branch=function, else_branch=other
    )
    tf.identity(result[0], name="out")


@pytest.mark.parametrize(
    ("dtype", "text", "value", "holds"),
    [
        ("int32", "0", 0, False), ("int64", "-2", -2, True), ("float32", "0.0", 0.0, False),
        ("float64", "1e-300", 1e-300, True), ("string", "''", b"", False),
        ("string", "no", b"no", True), ("bool", "1", True, True),
        ("int32", "0", [0], True), ("float32", "0", np.zeros([0]), False),
    ],
)  # fmt: skip
def test_conditions_that_are_not_boolean(dtype, text, value, holds):
    graph = build(lambda: condition(dtype, value), ["x", "is_training"], ["out"])
    (expected,) = run(graph, {"x": X, "is_training": np.array(value)})
    result = pinned(graph, text)
    assert ("Mul" in ops(result)) is holds
    np.testing.assert_array_equal(run(result, {"x": X})[0], expected)


def test_a_condition_that_waits_for_an_effect_is_left_alone():
    graph = switched(
        node("i", "Identity", "is_training", "^check", T=DType("bool")),
        node("check", "Assert", "is_training", "x", T=[F32], summarize=3),
        node("s", "Switch", "x", "i", T=F32),
    )
    assert {"Assert", "Switch", "Merge"} <= set(ops(pinned(graph, "true")))


def test_a_graph_without_a_constant_condition_stays():
    graph = switched()
    before = str(graph)
    assert fold_dead_branches(graph) is False
    assert str(graph) == before


def test_only_the_placeholder_changes_where_it_decides_nothing():
    graph = switched(node("y", "Placeholder", dtype=F32, shape=(4,)), outputs=["out", "z"])
    graph.add(node("z", "AddV2", "x", "y", T=F32))
    graph.inputs = ("x", "is_training", "y")
    result = transform(graph, "pin_placeholder(name=y, value=1.5)")
    before, after = str(graph).splitlines(), str(result).splitlines()
    assert set(after) - set(before) == {"y = Const() {dtype=float32, value=[1.5, 1.5, 1.5, 1.5]}"}
    assert result.inputs == ("x", "is_training")


# ------------------------------------------------------------------ values and errors


@pytest.mark.parametrize(
    ("dtype", "shape", "text", "value"),
    [
        ("bool", (), "True", True), ("bool", (2,), "0", [False, False]), ("int8", (), "-128", -128),
        ("uint64", (), str(2**64 - 1), 2**64 - 1), ("float16", (), "0.5", 0.5),
        ("bfloat16", (1, 2), "3", [[3, 3]]), ("float32", None, "inf", np.inf),
        ("complex64", (), "1+2j", 1 + 2j), ("string", (2,), "ä b", ["ä b".encode()] * 2),
        ("quint8", (), "7", 7), ("float32", (0,), "1", []),
    ],
)  # fmt: skip
def test_values(dtype, shape, text, value):
    given = Node("p", "PlaceholderWithDefault", ("x",), device="/cpu:0")
    given = given.with_attrs(dtype=DType(dtype))
    if shape is not None:
        given = given.with_attrs(shape=shape)
    graph = Graph([node("x", "Placeholder", dtype=F32), given], ["p:0", "x"], ["p"])
    pin_placeholder(graph, name="p:0", value=text)
    assert graph.inputs == ("x",)
    assert (graph["p"].op, graph["p"].inputs) == ("Const", ())
    assert (graph["p"].attr("dtype"), graph["p"].device) == (dtype, "/cpu:0")
    np.testing.assert_array_equal(graph["p"].value, np.array(value, graph["p"].value.dtype))


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("bool", "maybe", "true or false"), ("bool", "2", "true or false"),
        ("int8", "128", Containing("int8")), ("uint8", "-1", Containing("uint8")),
        ("int32", "1.5", Containing("int32")), ("int32", "1" * 400, Containing("int32")),
        ("float16", "1e6", Containing("float16")), ("float32", "x", Containing("float32")),
        ("float32", "1e39", Containing("float32")), ("quint8", "256", Containing("quint8")),
        ("complex64", "1e39", Containing("complex64")),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(dtype, text, expected):
    graph = Graph([node("p", "Placeholder", dtype=DType(dtype), shape=())], ["p"], ["p"])
    with pytest.raises(
        GraphError, match=says("placeholder-value", node="p", expected=expected, got=text)
    ):
        transform(graph, f"pin_placeholder(name=p, value='{text}')")


ERRORS = {
    "unknown": (switched(), "is_trainin", says("missing", name="is_trainin")),
    "no placeholder": (switched(), "m", says("placeholder-not-it", name="m", op="Merge")),
    "partly known": (
        Graph([node("p", "Placeholder", dtype=F32, shape=(-1, 3))], ["p"], ["p"]),
        "p",
        says("placeholder-shape-open", shape=[-1, 3]),
    ),
    "huge": (
        Graph([node("p", "Placeholder", dtype=F32, shape=(1 << 40,))], ["p"], ["p"]),
        "p",
        "too large",
    ),
    "resource": (
        Graph([node("p", "Placeholder", dtype=DType("resource"), shape=())], ["p"], ["p"]),
        "p",
        says("placeholder-type", name="p", type="resource"),
    ),
    "a dead output": (
        switched(outputs=["f"]),
        "is_training",
        says("output-in-dead-branch", tensor="f"),
    ),
    "a dead port": (
        switched(outputs=["s"]),
        "is_training",
        says("output-in-dead-branch", tensor="s"),
    ),
}


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_refused(case):
    graph, name, message = ERRORS[case]
    with pytest.raises(GraphError, match=message):
        transform(graph, f"pin_placeholder(name={name}, value=1)")


def test_a_dead_input_is_refused():
    graph = switched()
    graph.inputs = ("x", "is_training", "f")
    with pytest.raises(GraphError, match=says("input-in-dead-branch", tensor="f")):
        pinned(graph, "true")


def test_what_is_fed_is_not_dead_and_decides_nothing():
    graph = switched(node("i", "Identity", "is_training", T=DType("bool")))
    graph.replace(graph["s"], node("s", "Switch", "x", "i", T=F32))
    graph.inputs = ("x", "is_training", "i")
    assert {"Switch", "Merge"} <= set(ops(pinned(graph, "true")))


# ------------------------------------------------------------------ a real training graph


@pytest.mark.skipif(not FASHION.exists(), reason="the example model is not built")
@pytest.mark.parametrize("value", BOTH)
def test_a_real_training_graph(value):
    meta = MetaGraphDef.FromString(FASHION.read_bytes())
    graph = Graph.from_graph_def(meta.graph_def, ["images", "is_training"], ["logits"])
    graph.prune()
    before, after = ops(graph), ops(pinned(graph, value))
    assert before["Switch"] > 100
    assert not {"Switch", "RefSwitch", "Merge"} & set(after)
    assert after["FusedBatchNormV3"] == before["FusedBatchNormV3"] // 2 == before["Merge"]
    assert ("AssignSub" in after) is (value == "true")
    assert after["VariableV2"] == before["VariableV2"]


GRAPHS = [
    Example(
        "pin_placeholder(name=is_training, value=false)",
        lambda make=make: made(make),
        feeds={"is_training": np.array(False)},
        refused=("with_feeds",),
    )
    for make in (two_batch_norms, constants_and_waits, functional, function_below_switch)
]
