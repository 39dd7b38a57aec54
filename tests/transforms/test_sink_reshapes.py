"""Steps behind a reshaped product are computed before the Reshape, where they may."""

import pytest

from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, building, error, ops, random, run, tf, transform
from tests.transforms.examples import Example

STEPS = {
    "bias": lambda tf, y: tf.nn.bias_add(y, random(6, seed=2)),
    "sum": lambda tf, y: tf.constant(random(6, seed=2)) + y,
    "number": lambda tf, y: y * tf.constant(3.0),
    "one number with an axis": lambda tf, y: y - tf.constant([0.5]),
    "relu": lambda tf, y: tf.nn.relu(y),
    "gelu": lambda tf, y: tf.nn.gelu(y + random(6, seed=2)),
    "square": lambda tf, y: y * y,
}


def net(step="bias", sizes=(-1, 4, 6), behind=None) -> Graph:
    """Return a product, reshaped, and a step behind it."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 5), name="x")
        y = tf.raw_ops.MatMul(a=x, b=random(5, 6), name="product")
        y = tf.reshape(y, sizes, name="reshape")
        y = STEPS[step](tf, y) if isinstance(step, str) else step(tf, y)
        tf.exp(-tf.abs(behind(tf, y) if behind else y), name="ended")
        tf.reduce_max(tf.compat.v1.get_default_graph().get_tensor_by_name("ended:0"), 1, name="out")
    graph.prune()
    return graph


def equal(graph: Graph) -> Graph:
    """Return the transformed graph, whose numbers must be the same: nothing is summed anew."""
    result = transform(graph, "sink_reshapes")
    for rows in (4, 12):
        feeds = {"x": random(rows, 5, seed=rows)}
        assert error(graph, result, feeds) <= 1e-6
        for old, new in zip(run(graph, feeds), run(result, feeds), strict=True):
            assert old.shape == new.shape
    assert str(transform(result, "sink_reshapes")) == str(result)
    return result


def before_the_reshape(graph: Graph) -> set[str]:
    """Return the ops between the product and the Reshapes."""
    found, waiting = set(), list(graph.readers("product"))
    for node in waiting:  # it grows
        if node.op != "Reshape":
            found.add(node.op)
            waiting += graph.readers(node.name)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_computed_on_rows(step):
    graph = net(step)
    result = equal(graph)
    moved = {node.op for node in graph if graph["product"].name and node.op not in {
        "Placeholder", "Const", "MatMul", "Reshape", "Max", "Exp"}}  # fmt: skip
    assert before_the_reshape(result) >= moved
    assert ops(result)["Reshape"] == 1


def test_rows_that_are_split_into_heads():
    graph = net(lambda tf, y: y + random(2, 3, seed=2), (-1, 4, 2, 3))
    result = equal(graph)
    assert "AddV2" in before_the_reshape(result)


@pytest.mark.parametrize(
    ("step", "sizes"),
    [
        (lambda tf, y: y + random(4, 6, seed=2), (-1, 4, 6)),  # one value a token
        (lambda tf, y: y + random(4, 1, seed=2), (-1, 4, 6)),
        (lambda tf, y: y + random(1, 1, 1, 1, seed=2), (-1, 4, 6)),  # adds an axis
        (lambda tf, y: y + random(3, seed=2), (-1, 8, 3)),  # half a row
        (lambda tf, y: tf.nn.softmax(y), (-1, 4, 6)),
        (lambda tf, y: y + random(12, seed=2), (-1, 2, 12)),  # two rows
    ],
)
def test_other_steps_stay(step, sizes):
    graph = net(step, sizes)
    result = equal(graph)
    assert not before_the_reshape(result)


def test_a_value_that_others_need_is_there():
    graph = net("gelu", behind=lambda tf, y: tf.nn.softmax(y))
    inner = next(node.name for node in graph if node.op == "AddV2")
    graph.outputs = ("out", inner)
    result = equal(graph)
    assert result[inner].op == "Reshape"


def test_a_reshape_of_a_reshape_reads_the_product():
    graph = net(lambda tf, y: tf.reshape(y, [-1, 2, 2, 6]) + random(6, seed=2))
    result = equal(graph)
    assert "AddV2" in before_the_reshape(result)


def test_what_is_fed_stays():
    graph = net()
    graph.inputs = ("x", "reshape")
    assert not before_the_reshape(transform(graph, "sink_reshapes"))


@pytest.mark.golden("sink_reshapes/heads")
def test_golden():
    graph = net(lambda tf, y: y + random(2, 3, seed=2), (-1, 4, 2, 3))
    assert_golden(graph, transform(graph, "sink_reshapes"))


GRAPHS = [Example("sink_reshapes", lambda: net("relu", sizes=(-1, 1, 6)), 1e-6)]
