"""fold_constants: what is folded, what is left alone, and that the file never grows for it."""

import resource

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.fold_constants import SLACK, fold_constants
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime import constants
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import run_each
from tests.support import (
    assert_golden,
    build,
    building,
    calls_of,
    error,
    ops,
    raises,
    random,
    run,
    shows,
    skipped,
    tf,
)
from tests.transforms.examples import Example

FLOAT = DType("float32")
BAR = 1e-6  # 4 ulp of float32 for each of the few ops that are folded in a row


@pytest.fixture
def child(starts, monkeypatch):
    """The child process that folding starts outside of these tests."""
    monkeypatch.setattr(constants, "call", call)


@pytest.fixture(autouse=True)
def starts(monkeypatch):
    """What is asked of TensorFlow; it is answered in this process, which has started it anyway."""
    asked = []

    def answer(function, graph_def, fetches, most):
        asked.append(function)
        return run_each(graph_def, fetches)

    monkeypatch.setattr(constants, "call", answer)
    return asked


def placeholder(name="x", shape=(2, 4)):
    return tf.compat.v1.placeholder(tf.float32, shape, name)


def folded(graph: Graph, **parameters) -> Graph:
    """The graph after fold_constants and a prune, as the pipeline does it."""
    result = graph.copy()
    fold_constants(result, **parameters)
    result.prune()
    result.check()
    return result


def size(graph: Graph) -> int:
    return sum(map(len, graph.serialized()))


def batch_norm():
    """A decomposed batch norm as TensorFlow 2 freezes it, and a reshape by a computed shape."""
    x = placeholder()
    weights = [tf.constant(random(4, seed=i) + 2, name=f"w{i}") for i in range(4)]
    read = [tf.identity(w, name=f"read{i}") for i, w in enumerate(weights)]
    gamma, beta, mean, variance = read
    with tf.control_dependencies(read):
        anchor = tf.no_op("anchor")
    scale = tf.math.rsqrt(variance + 1e-3, name="rsqrt") * gamma
    y = tf.raw_ops.AddV2(x=x * scale, y=beta - mean * scale, name="norm")
    shape = tf.stack(
        [tf.shape(gamma, name="shape")[0], tf.constant(2, name="two")], name="new_shape"
    )
    y = tf.reshape(y, shape, name="reshape")
    with tf.control_dependencies([anchor]):
        tf.identity(y, name="out")


@pytest.mark.golden("fold_constants/batch_norm")
def test_golden():
    graph = build(batch_norm, ["x"], ["out"])
    assert_golden(graph, folded(graph))


def only_by_tensorflow():
    a, b = tf.constant(random(4, 4)), tf.constant(random(4, seed=1))
    x = placeholder() * tf.exp(b, name="exp") + tf.matmul(a, a, name="product")[0]
    tf.add(x, tf.nn.softmax(tf.sin(b) * 3, name="softmax"), name="out")


@pytest.mark.usefixtures("child")
def test_what_only_tensorflow_computes_is_computed_in_a_child():
    graph = build(only_by_tensorflow, ["x"], ["out"])
    result = folded(graph)
    assert ops(result) == {"Placeholder": 1, "Const": 3, "Mul": 1, "AddV2": 2}
    assert error(graph, result, {"x": random(2, 4, seed=9)}) <= BAR


def test_tensorflow_starts_once_or_not_at_all(starts):
    folded(build(only_by_tensorflow, ["x"], ["out"]))
    assert len(starts) == 1
    folded(build(batch_norm, ["x"], ["out"]))
    assert len(starts) == 1


def test_where_tensorflow_dies_numpys_results_are_kept(monkeypatch):
    def body():
        b = tf.constant(random(4))
        tf.add(placeholder() * tf.exp(b, name="exp"), tf.sqrt(b + 5, name="root"), name="out")

    def dies(*arguments):
        raise GraphError("child-died", runs="TensorFlow", signal="SIGSEGV", reason="no output")

    monkeypatch.setattr(constants, "call", dies)
    result = folded(build(body, ["x"], ["out"]))
    assert (result["exp"].op, result["root"].op) == ("Exp", "Const")
    assert result.skipped[0].startswith("node 'exp'")
    assert shows(result.skipped[0], "value-not-computable")
    assert shows(result.skipped[0], "child-died", runs="TensorFlow", signal="SIGSEGV")


TOO_LARGE = {
    "numbers that double": lambda tf: repeated(lambda x: tf.concat([x, x], 0), tf.constant([1.0])),
    "strings that double": lambda tf: repeated(lambda x: tf.strings.join([x, x]), tf.constant("a")),
    "many copies of a string": lambda tf: tf.fill([1 << 20], tf.constant("a" * (1 << 20))),
    "numbers of many characters": lambda tf: tf.strings.as_string([1.0] * 64, width=1 << 25),
    "a view that is computed upon": lambda tf: tf.exp(tf.fill([1 << 28], 1.0)),
    "one-hot": lambda tf: tf.one_hot(list(range(1 << 14)), 1 << 14),
}


def repeated(step, value):
    for _ in range(40):
        value = step(value)
    return value


@pytest.mark.usefixtures("child")
@pytest.mark.parametrize("case", TOO_LARGE)
def test_nothing_above_the_limit_is_computed(case):
    """Neither as a result nor on the way to one, and what is folded stays within the limits."""

    with building(["x"], ["out"]) as graph:
        value = TOO_LARGE[case](tf)
        placeholder(), tf.identity(tf.reshape(value, [-1])[0], name="out")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = folded(graph)
    assert size(result) <= size(graph) + SLACK * len(graph)
    assert result.skipped
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 3 << 30


def test_many_values_are_computed_up_to_a_limit(monkeypatch):
    def body():
        for number in range(30):
            tf.add(tf.fill([25], 1.0), float(number), name=f"sum{number}")
        placeholder()

    graph = build(body, ["x"], [f"sum{number}" for number in range(30)])
    monkeypatch.setattr(constants, "MAX_TOTAL_BYTES", 1000)
    values = constants.Constants(graph)
    assert [values.value(name) is not None for name in graph.outputs] == [True] * 10 + [False] * 20


# ------------------------------------------------------------------ the original's own cases


def two_adds():
    total = tf.raw_ops.Add(
        x=tf.constant(random(100), name="a"),
        y=tf.constant(random(100, seed=1), name="b"),
        name="add",
    )
    tf.multiply(total, placeholder(shape=[100]), name="mul")


@pytest.mark.parametrize("suffix", ["", ":0"])
def test_constants_are_added_and_the_placeholder_is_multiplied(suffix):
    graph = build(two_adds, [f"x{suffix}"], [f"mul{suffix}"])
    result = folded(graph)
    assert ops(result) == {"Const": 1, "Placeholder": 1, "Mul": 1}
    np.testing.assert_array_equal(result["add"].value, graph["a"].value + graph["b"].value)
    assert error(graph, result, {"x": random(100)}) == 0


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"exclude_op": ("Add",)}, []),
        ({"exclude_node": ("add",)}, []),
        (
            {"max_constant_size_in_bytes": 10},
            [skipped("add", "value-too-large", size=400, most=10)],
        ),
    ],
)
def test_parameters(parameters, reason):
    result = folded(build(two_adds, ["x"], ["mul"]), **parameters)
    assert ops(result) == {"Const": 2, "Add": 1, "Placeholder": 1, "Mul": 1}
    assert result.skipped == reason


def test_the_shape_of_a_constant_is_cast():
    with building(["x"], ["out"]) as graph:
        shape = tf.shape(tf.constant(np.zeros((1, 1, 3), np.float32)))
        tf.multiply(placeholder(shape=[3]), tf.cast(shape, tf.float32), name="out")
    result = folded(graph)
    assert ops(result) == {"Const": 1, "Placeholder": 1, "Mul": 1}


@pytest.mark.parametrize("clear", [True, False])
def test_output_shapes(clear):
    shapes = Node("", "").with_attrs(_output_shapes=[(2, 3)]).attrs
    nodes = [
        Node("x", "Placeholder", (), shapes).with_attrs(dtype=FLOAT),
        Node("shape", "Shape", ("x",)).with_attrs(T=FLOAT, out_type=DType("int32")),
    ]
    result = folded(Graph(nodes, ["x"], ["shape"]), clear_output_shapes=clear)
    assert result["shape"].op == ("Shape" if clear else "Const")
    assert ("_output_shapes" in result["x"].attrs) is not clear


@pytest.mark.parametrize("noted", [[], ["a"], [3]])
def test_output_shapes_that_are_none(noted):
    x = Node("x", "Placeholder").with_attrs(dtype=FLOAT, _output_shapes=noted)
    shape = Node("shape", "Shape", ("x",)).with_attrs(T=FLOAT, out_type=DType("int32"))
    graph = Graph([x, shape], ["x"], ["shape"])
    assert folded(graph, clear_output_shapes=False)["shape"].op == "Shape"


def test_names_that_are_the_beginnings_of_others():
    with building(["placeholder", "placeholder_1"], ["out"]) as graph:
        first, second = placeholder("placeholder"), placeholder("placeholder_1")
        tf.add(first * (tf.constant(1.0) + 2), second, name="out")
    result = folded(graph)
    assert ops(result) == {"Placeholder": 2, "Const": 1, "Mul": 1, "AddV2": 1}
    feeds = {"placeholder": random(2, 4), "placeholder_1": random(2, 4, seed=1)}
    assert error(graph, result, feeds) == 0


# ------------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 3), {"shape": [2, 3], "size": 6, "rank": 2}),
        ((), {"shape": [], "size": 1, "rank": 0}),
        ((0, 3), {"shape": [0, 3], "size": 0, "rank": 2}),
        ((None, 3), {"rank": 2}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_shapes_of_placeholders(shape, expected, kind):
    with building(["x"], ["shape", "size", "rank"]) as graph:
        x = placeholder(shape=shape)
        for name, op in (("shape", tf.raw_ops.Shape), ("size", tf.raw_ops.Size)):
            op(input=x, out_type=tf.as_dtype(kind), name=name)
        tf.raw_ops.Rank(input=x, name="rank")
    result = folded(graph)
    found = {n.name: n.value.tolist() for n in result if n.op == "Const"}
    assert found == expected
    assert {n.attr("dtype") for n in result if n.op == "Const"} <= {kind, "int32"}


def test_in_old_graphs_a_scalar_is_a_shape_that_was_not_given():
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=()),
        Node("shape", "Shape", ("x",)).with_attrs(T=FLOAT, out_type=DType("int32")),
    ]
    graph = Graph(nodes, ["x"], ["shape"])
    graph.versions.producer = 21
    assert folded(graph)["shape"].op == "Shape"
    graph.versions.producer = 22
    assert folded(graph)["shape"].op == "Const"


@pytest.mark.parametrize(("index", "is_folded"), [(0, False), (1, True), (2, True)])
def test_a_known_size_of_an_open_shape(index, is_folded):
    with building(["x"], ["out"]) as graph:
        x = placeholder(shape=[None, 4, 3])
        tf.reshape(x, [-1, tf.shape(x)[index]], name="out")
    result = folded(graph)
    assert ("StridedSlice" in ops(result)) is not is_folded
    assert error(graph, result, {"x": random(5, 4, 3)}) == 0


def test_a_shape_that_waits_keeps_waiting():
    with building(["x"], ["shape"]) as graph:
        x = placeholder()
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            tf.shape(x, name="shape")
    result = folded(graph)
    assert result["shape"].op == "Const"
    assert len(result["shape"].control_inputs) == 1


# ------------------------------------------------------------------ the file does not grow


def frozen():
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    big = tf.Variable(random(64, 64), name="big")

    @tf.function
    def model(x):
        return tf.nn.relu(x @ big) @ big

    concrete = model.get_concrete_function(tf.TensorSpec([None, 64], tf.float32, "x"))
    graph_def = convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    return Graph.from_graph_def(graph_def, ["x"], ["Identity"])


def test_what_tensorflow_2_freezes_does_not_grow():
    graph = frozen()
    assert ops(graph)["NoOp"] == 1
    result = folded(graph)
    assert "NoOp" not in ops(result)
    assert size(result) <= size(graph)
    assert sum(n.value.nbytes > 10_000 for n in result if n.op == "Const") == 1
    assert error(graph, result, {"x": random(3, 64)}) == 0


def test_identities_of_a_shared_constant_read_it():
    with building(["x"], ["end"]) as graph:
        w = tf.constant(random(64, 64), name="w")
        x = placeholder(shape=[1, 64])
        out = tf.matmul(x @ tf.identity(w), tf.identity(tf.identity(w)), name="out")
        with tf.control_dependencies([tf.identity(w)]):
            tf.identity(out, name="end")
    result = folded(graph)
    assert ops(result) == {"Const": 1, "Placeholder": 1, "MatMul": 2, "Identity": 1}
    assert result["out"].inputs == ("matmul", "w")
    assert result["end"].inputs == ("out",)


def test_an_identity_that_is_fetched_keeps_its_name():
    with building(["x"], ["alone", "one_of_two", "out"]) as graph:
        tf.identity(tf.constant(random(64, 64)), name="alone")
        shared = tf.constant(random(64, 64), name="shared")
        tf.identity(shared, name="one_of_two")
        tf.add(placeholder(shape=[64]), shared, name="out")
    result = folded(graph)
    assert (result["alone"].op, result["one_of_two"].op) == ("Const", "Identity")
    assert size(result) <= size(graph)
    assert error(graph, result, {"x": random(64)}) == 0


def test_a_view_of_a_large_constant_replaces_it_only_when_nobody_else_reads_it():
    def body(shared):
        w = tf.constant(random(64, 64), name="w")
        view = tf.reshape(w, tf.stack([tf.shape(w)[0] // 2, 128]), name="view")
        out = tf.matmul(placeholder(shape=[1, 32]), view)
        tf.add(out, tf.reduce_max(w, name="max") if shared else 1.0, name="out")
        if shared:
            tf.matmul(w, w, name="other")

    alone = folded(build(lambda: body(False), ["x"], ["out"]))
    assert ops(alone) == {"Const": 2, "Placeholder": 1, "MatMul": 1, "AddV2": 1}
    shared = folded(build(lambda: body(True), ["x"], ["out", "other"]), exclude_op=("MatMul",))
    assert ops(shared) == {
        "Const": 3, "Placeholder": 1, "Reshape": 1, "MatMul": 2, "AddV2": 1,
    }  # fmt: skip
    assert shared["max"].op == "Const"  # a scalar always folds
    assert shared[shared["view"].inputs[1]].value.tolist() == [32, 128]  # and so do shapes
    assert shared.skipped == [skipped("view", "value-too-large-in-file", size=16384, freed=56)]


def test_two_large_results_of_one_constant_do_not_double_it():
    with building(["x"], ["out", "other", "third"]) as graph:
        w = tf.constant(random(4, 500))
        x = placeholder()
        tf.matmul(x, tf.transpose(tf.transpose(w)) + tf.multiply(w, 2, name="twice"), name="out")
        tf.add(x[:, :1], tf.negative(w, name="minus")[0], name="other")
        tf.matmul(x, w, name="third")
    result = folded(graph)
    assert size(result) <= size(graph) + SLACK
    assert result["twice"].op == "Mul"
    assert error(graph, result, {"x": random(2, 4)}) == 0


def test_a_small_result_does_not_keep_a_large_one_from_folding():
    with building(["x"], ["out"]) as graph:
        w = tf.constant(random(64, 64), name="w")
        doubled = tf.multiply(w, 2, name="doubled")
        tf.add(placeholder(shape=[64]) + doubled, tf.reduce_max(w, name="max"), name="out")
    result = folded(graph)
    assert (result["doubled"].op, result["max"].op) == ("Const", "Const")
    assert "w" not in result


@pytest.mark.parametrize("op", ["fill", "tile", "broadcast_to", "range"])
def test_what_blows_up_is_left_alone_but_what_it_reads_is_folded(op):
    def body():
        n = tf.add(tf.constant(500), 500, name="n")
        made = {
            "fill": lambda: tf.fill([n], 3.0, name="made"),
            "tile": lambda: tf.tile(tf.constant([1.0, 2.0]), [n // 2], name="made"),
            "broadcast_to": lambda: tf.broadcast_to([[1.0, 2.0]], [n // 2, 2], name="made"),
            "range": lambda: tf.cast(tf.range(n, name="made"), tf.float32),
        }[op]()
        tf.add(placeholder(shape=[]), made, name="out")

    graph = build(body, ["x"], ["out"])
    result = folded(graph)
    assert (result["made"].op == "Const") == (op == "fill")  # all equal: one element in the file
    assert not {"AddV2", "FloorDiv", "Pack"} & {n.op for n in result if n.name != "out"}
    assert size(result) <= size(graph) + SLACK
    assert error(graph, result, {"x": np.float32(3)}) == 0


def test_a_few_bytes_do_not_ask_for_gigabytes():
    with building(["x"], ["out"]) as graph:
        huge = tf.fill([1 << 20, 1 << 12], 1.0, name="huge")
        x = placeholder(shape=[])
        tf.add(x, tf.exp(tf.sqrt(huge, name="root"), name="exp"), name="out")
        tf.reduce_sum(tf.eye(1 << 15, name="eye"), name="sum")
    result = folded(graph)
    assert ops(result) == {"Fill": 1, "Sqrt": 1, "Exp": 1, "Const": 2, "Placeholder": 1, "AddV2": 1}
    assert result.skipped[0].startswith("node 'exp'")
    assert shows(result.skipped[0], "value-not-computable")


def test_devices_and_types_are_kept():
    weights = np.arange(-64, 64, dtype=np.int8).reshape(8, 16)
    nodes = [
        Node.constant("w", weights, "qint8"),
        Node.constant("shape", np.array([16, 8], np.int32)),
        Node("view", "Reshape", ("w", "shape"), device="/cpu:0").with_attrs(
            T=DType("qint8"), Tshape=DType("int32")
        ),
        Node("reversed", "ReverseV2", ("view", "axis")),
        Node.constant("axis", np.array([0], np.int32)),
        Node.constant("low", np.float32(-1)),
        Node.constant("high", np.float32(1)),
        Node("out", "Dequantize", ("view", "low", "high")).with_attrs(
            T=DType("qint8"), mode="SCALED", dtype=FLOAT
        ),
    ]
    graph = Graph([n for n in nodes if n.name != "reversed"], [], ["out"])
    result = folded(graph)
    assert ops(result) == {"Const": 3, "Dequantize": 1}
    assert result["view"].device == "/cpu:0"
    assert result["view"].attr("dtype") == "qint8"
    assert error(graph, result, {}) == 0


@pytest.mark.parametrize("fetched", ["p", "p:1"])
def test_ops_with_several_outputs(fetched):
    with building(["x"], ["out", fetched]) as graph:
        x = placeholder(shape=[2])
        first, _, third = tf.split(tf.constant(random(6)), 3, name="p")
        tf.add(x * first, third, name="out")
    result = folded(graph)
    if fetched == "p":
        assert (result["p"].op, result["p/output_2"].op) == ("Const", "Const")
        assert result["out"].inputs[1] == "p/output_2"
    else:
        assert result["p"].op == "Split"
        assert result.skipped == [skipped("p", "second-output-fetched")]
    assert error(graph, result, {"x": random(2, seed=3)}) == 0


# ------------------------------------------------------------------ what is left alone


def left_alone():
    v1 = tf.compat.v1
    two, three = tf.constant(2.0, name="two"), tf.constant(3.0, name="three")
    x = placeholder(shape=[])
    tf.add(x * two, three, name="of_x")
    v1.placeholder_with_default(two, [], name="may_be_fed")
    tf.add(
        tf.add(v1.get_default_graph().get_tensor_by_name("may_be_fed:0"), 1.0), x, name="default"
    )
    tf.add(x, tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32), name="random")
    tf.raw_ops.ReadFile(filename=tf.constant("/etc/hostname"), name="read")
    tf.raw_ops.FloorDiv(x=tf.constant(7), y=tf.constant(0), name="by_zero")
    tf.raw_ops.Dequantize(
        input=tf.raw_ops.Cast(x=tf.constant([1, 2]), DstT=tf.qint8, name="q"),
        min_range=-two, max_range=two, mode="SCALED", name="dequantized",
    )  # fmt: skip
    v1.disable_control_flow_v2()
    loop = tf.while_loop(lambda i: i < 9, lambda i: i + tf.constant(1.0, name="step"), [two])
    tf.identity(loop[0] + x, name="loop")
    tf.cond(x > 0, lambda: tf.add(tf.constant(1.0), 2.0, name="in_branch"), lambda: x, name="cond")
    v1.enable_control_flow_v2()


@pytest.mark.parametrize(
    ("output", "inputs", "kept"),
    [
        ("of_x", ["x"], {"Mul": 1, "AddV2": 1}),
        ("of_x", ["x", "two"], {"Mul": 1, "AddV2": 1}),
        ("default", ["x"], {"PlaceholderWithDefault": 1, "AddV2": 2}),
        ("default", ["x", "may_be_fed"], {"PlaceholderWithDefault": 1, "AddV2": 2}),
        ("random", ["x"], {"RandomUniform": 1, "AddV2": 1}),
        ("read", ["x"], {"ReadFile": 1}),
        ("by_zero", ["x"], {"FloorDiv": 1}),
        ("dequantized", ["x"], {"Dequantize": 1}),
        ("loop", ["x"], {"Enter": 1, "NextIteration": 1, "Less": 1, "AddV2": 2}),
        ("cond/Merge", ["x"], {"Switch": 2, "Merge": 1, "AddV2": 1}),
    ],
)
def test_left_alone(output, inputs, kept):
    result = folded(build(left_alone, inputs, [output]))
    assert {op: count for op, count in ops(result).items() if op in kept} == kept


def test_a_value_that_raises_an_error_is_not_folded():
    result = folded(build(left_alone, [], ["by_zero"]))
    (reason,) = result.skipped
    assert reason.startswith("node 'by_zero'")
    assert shows(reason, "value-not-computable")
    with raises(GraphError, "runtime-failed", action="run the graph"):
        run(result, {})


def test_a_value_whose_computing_fails_is_left():
    nodes = [
        Node.constant("c", random(3, 4)),
        Node.constant("shape", np.array([5, 7], np.int32)),
        Node("bad", "Reshape", ("c", "shape")).with_attrs(T=FLOAT, Tshape=DType("int32")),
    ]
    assert folded(Graph(nodes, [], ["bad"]))["bad"].op == "Reshape"


# ------------------------------------------------------------------ large graphs


def chain_of_constants(count: int) -> Graph:
    nodes = [Node.constant("n0", np.float32(1)), Node.constant("one", np.float32(1))]
    nodes += [
        Node(f"n{i}", "AddV2", (f"n{i - 1}", "one")).with_attrs(T=FLOAT) for i in range(1, count)
    ]
    x = Node("x", "Placeholder").with_attrs(dtype=FLOAT)
    nodes += [x, Node("out", "Mul", ("x", f"n{count - 1}")).with_attrs(T=FLOAT)]
    return Graph(nodes, ["x"], ["out"])


def test_a_long_chain_of_constants_folds():
    count = 10_000
    result = folded(chain_of_constants(count))
    assert len(result) == 3
    assert result[f"n{count - 1}"].value == count


def test_a_chain_of_constants_folds_in_linear_time():
    folded(chain_of_constants(10))  # what is computed once
    one, two = (calls_of(lambda n=n: folded(chain_of_constants(n))) for n in (1000, 2000))
    assert two < 2.2 * one


GRAPHS = [
    Example("fold_constants", lambda: build(batch_norm, ["x"], ["out"]), BAR),
    Example("fold_constants", lambda: build(only_by_tensorflow, ["x"], ["out"]), BAR),
]


def reductions(*keep_dims: bool) -> Graph:
    """Reductions of one constant and axis, each with or without keep_dims."""
    nodes = [
        Node.constant("c", np.arange(6, dtype=np.float32).reshape(2, 3)),
        Node.constant("axis", np.array(1, np.int32)),
    ]
    for index, keep in enumerate(keep_dims):
        types = {"T": DType("float32"), "Tidx": DType("int32")}
        nodes.append(Node(f"sum{index}", "Sum", ("c", "axis")).with_attrs(keep_dims=keep, **types))
    return Graph(nodes, [], [node.name for node in nodes[2:]])


def test_equal_nodes_are_computed_once(monkeypatch):
    calls = []
    kernel = constants.KERNELS["Sum"]
    monkeypatch.setitem(
        constants.KERNELS, "Sum", lambda node, *arrays: calls.append(1) or kernel(node, *arrays)
    )
    result = folded(reductions(True, True, True))
    assert len(calls) == 1
    assert all(result[name].value.tolist() == [[3.0], [12.0]] for name in result.outputs)


def test_nodes_with_other_attributes_are_not_equal():
    result = folded(reductions(True, False, True))
    assert [result[name].shape for name in result.outputs] == [(2, 1), (2,), (2, 1)]
