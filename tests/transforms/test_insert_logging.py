import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.insert_logging import insert_logging
from deploykit.transforms.ir.graph import Graph
from tests.support import (
    assert_golden,
    build,
    building,
    built,
    error,
    ops,
    raises,
    random,
    run,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


@built(["x"], ["out"])
def sums():
    """Return a graph of six nodes that are read and one that is not."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    first = tf.raw_ops.AddV2(x=x, y=tf.constant(random(4), name="a"), name="add_first")
    second = tf.raw_ops.AddV2(x=first, y=x, name="add_second")
    product = tf.raw_ops.Mul(x=second, y=tf.constant(random(2, 1), name="b"), name="product")
    tf.raw_ops.Relu(features=product, name="out")


@built(["x"], ["out"])
def halves(*read: int):
    """Return a Split in three of which these outputs are read."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 6], name="x")
    parts = tf.raw_ops.Split(axis=1, value=x, num_split=3, name="parts")
    tf.raw_ops.AddN(inputs=[parts[port] for port in read], name="out")


def printing(graph: Graph) -> list[str]:
    return [node.name.removesuffix("__print__") for node in graph if node.op == "Print"]


@pytest.mark.golden("insert_logging/sums")
def test_golden():
    graph = sums()
    text = 'insert_logging(op=AddV2, show_name=true, show_op=true, message="value ", summarize=3)'
    assert_golden(graph, transform(graph, text))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", ["x", "a", "add_first", "add_second", "b", "product"]),
        ("op=AddV2, op=Mul", ["add_first", "add_second", "product"]),
        ("prefix=add_", ["add_first", "add_second"]),
        ("prefix=add_f, prefix=p", ["add_first", "product"]),
        ("op=Mul, prefix=add_", []),
        ("op=AddV2, op=Mul, prefix=add_s, prefix=b", ["add_second"]),
        ("op=Conv2D", []),
        ("prefix=nothing", []),
    ],
)
def test_which_nodes_print(parameters, expected):
    graph = sums()
    result = transform(graph, f"insert_logging({parameters})")
    assert sorted(printing(result)) == sorted(expected)
    assert error(graph, result, X) == 0


def test_what_is_printed(capfd):
    graph = transform(
        sums(), "insert_logging(op=AddV2, show_name=true, show_op=true, message=m, summarize=2)"
    )
    run(graph, X)
    lines = [line for line in capfd.readouterr().err.splitlines() if "__print__" in line]
    assert len(lines) == 2
    assert ";AddV2;;add_first__print__;m[[" in lines[0]
    assert lines[0].endswith("...]...]")
    assert "add_second" in lines[1]


def test_first_n(capfd):
    from deploykit.transforms.runtime.session import Session

    graph = transform(sums(), "insert_logging(op=Mul, show_name=true, first_n=2)")
    session = Session(b"".join(graph.serialized()))
    for _ in range(4):
        session.run(["out"], X)
    assert capfd.readouterr().err.count("product__print__") == 2


@pytest.mark.parametrize("read", [(0, 1, 2), (0,), (0, 2), (1,), (2, 1)])
def test_only_outputs_that_are_read_are_printed(read, capfd):
    """The original tool declares all of them, so the graph does not load."""
    graph = halves(*read)
    result = transform(graph, "insert_logging(op=Split, show_name=true)")
    tensors = [f"parts:{port}" if port else "parts" for port in sorted(read)]
    assert list(result["parts__print__"].inputs) == [tensors[0], *tensors]
    assert result["parts__print__"].attr("U") == ["float32"] * len(read)
    feeds = {"x": random(2, 6, seed=1)}
    assert error(graph, result, feeds) == 0
    capfd.readouterr()
    run(result, feeds)
    (line,) = [text for text in capfd.readouterr().err.splitlines() if "parts__print__" in text]
    assert line.count("[[") == len(read)


def test_a_control_input_alone_is_no_reader():
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        waited = tf.raw_ops.Relu(features=x, name="waited")
        with tf.control_dependencies([waited, tf.no_op(name="nothing")]):
            tf.raw_ops.Neg(x=x, name="out")
    result = transform(graph, "insert_logging(op=Relu, op=NoOp)")
    assert printing(result) == []
    assert result.skipped == [
        skipped("waited", "unread"),
        skipped("nothing", "unread"),
    ]
    assert error(graph, result, X) == 0


def loop():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    tf.compat.v1.disable_control_flow_v2()
    try:
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 1.5), (0, x))
    finally:
        tf.compat.v1.enable_control_flow_v2()
    tf.identity(y, name="out")


def variable():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    v = tf.raw_ops.VariableV2(shape=[4], dtype=tf.float32, name="v")
    assigned = tf.raw_ops.Assign(ref=v, value=random(4), name="assigned")
    tf.raw_ops.AddV2(x=x, y=assigned, name="out")


def table():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    made = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, name="table")
    keys = tf.constant([0, 1], tf.int64)
    fill = tf.raw_ops.InitializeTableV2(table_handle=made, keys=keys, values=[2.0, 3.0])
    with tf.control_dependencies([fill]):
        found = tf.raw_ops.LookupTableFindV2(table_handle=made, keys=keys[1], default_value=0.0)
    tf.raw_ops.Mul(x=x, y=found, name="out")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (loop, skipped("while/Enter", "control-flow-op")),
        (variable, skipped("v", "readers-need-variable")),
        (table, skipped("table", "value-not-printable", type="resource")),
    ],
)
def test_left_alone(make, reason):
    graph = build(make, ["x"], ["out"])
    result = transform(graph, "insert_logging")
    assert reason in result.skipped
    assert printing(result)
    assert error(graph, result, X) == 0


def test_a_call_of_a_function_prints_too():
    with building(["x"], ["out"]) as graph:

        @tf.function
        def twice(a):
            return a * 2.0

        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
        tf.identity(twice(x), name="out")
    result = transform(graph, "insert_logging(op=PartitionedCall)")
    assert ops(result)["Print"] == 1
    assert error(graph, result, X) == 0


def test_an_op_that_nobody_knows_is_an_error():
    with raises(PipelineError, "missing", kind="op", name="Add2"):
        insert_logging(sums(), op=("Add2",))


GRAPHS = [
    Example("insert_logging(op=AddV2)", sums),
    Example("insert_logging", lambda: halves(0, 2)),
]
