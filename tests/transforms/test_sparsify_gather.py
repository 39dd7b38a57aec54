import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from tests.support import (
    assert_golden,
    building,
    error,
    ops,
    random,
    run,
    says,
    shows,
    tf,
    transform,
)
from tests.transforms.examples import Example

SMALL = np.array([[0.2], [1e-6], [1.2], [0.001], [-0.5], [0.0]], np.float32)


def ids(dtype="int64", values=(0, 1, 2, 5)) -> dict[str, np.ndarray]:
    return {"ids": np.array(values, dtype)}


def column(rows: int = 60) -> np.ndarray:
    """Return weights of which a third is zero and a few are nearly so."""
    weights = random(rows, 1)
    weights[::3] = 0
    weights[1::10] *= 1e-6
    return weights


def lookup(
    weights=SMALL, op="GatherV2", ids_type="int64", axis=0, read=True, sharing=0, group=None
) -> Graph:
    """Return Gathers of the same weights, by the same ids plus 0, 1, ..., and their sum."""

    with building(["ids"], ["out"]) as graph:
        raw = tf.raw_ops
        fed = raw.Placeholder(dtype=ids_type, shape=[4], name="ids")
        source = tf.constant(weights, name="w/part_1")
        source = tf.identity(source, name="w/read") if read else source
        sums = []
        for number in range(sharing + 1):
            name = f"gather{number or ''}"
            indices = fed + number if number else fed
            if op == "Gather":
                sums.append(raw.Gather(params=source, indices=indices, name=name))
            else:
                sums.append(raw.GatherV2(params=source, indices=indices, axis=axis, name=name))
        raw.AddN(inputs=sums, name="out")
        if group:
            tf.no_op(name=group)
    if group:
        graph.outputs = ["out", group]
    return graph


@pytest.mark.golden("sparsify_gather/{op}")
@pytest.mark.parametrize("op", ["Gather", "GatherV2"])
def test_golden(op):
    graph = lookup(op=op)
    assert_golden(graph, transform(graph, "sparsify_gather"))


def test_the_table_holds_what_is_not_near_zero():
    result = transform(lookup(), "sparsify_gather")
    assert result["w/part_1/indices"].value.tolist() == [0, 2, 3, 4]
    np.testing.assert_array_equal(result["w/part_1/values"].value, SMALL[[0, 2, 3, 4], 0])
    assert result["gather/Const"].value == 0
    assert result["gather/ExpandDims/Const"].value == -1


@pytest.mark.parametrize("op", ["Gather", "GatherV2"])
@pytest.mark.parametrize("ids_type", ["int32", "int64"])
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("sharing", [0, 2])
def test_the_values_stay_without_anything_run_before(op, ids_type, read, sharing):
    """The original tool breaks int32 ids and Gathers that share weights."""
    graph = lookup(column(), op, ids_type, read=read, sharing=sharing)
    result = transform(graph, "sparsify_gather")
    assert ops(result)["HashTable"] == ops(result)["InitializeTable"] == 1
    assert ops(result)["LookupTableFind"] == sharing + 1
    assert op not in ops(result)
    feeds = ids(ids_type, (0, 1, 31, 57))
    assert np.abs(run(result, feeds)[0] - run(graph, feeds)[0]).max() <= 1e-5 * (sharing + 1)


def test_weights_that_others_read_stay():
    """The original tool takes them away from the others."""

    with building(["ids"], ["out"]) as graph:
        fed = tf.raw_ops.Placeholder(dtype=tf.int64, shape=[4], name="ids")
        weights = tf.identity(tf.constant(SMALL, name="w"), name="w/read")
        found = tf.raw_ops.GatherV2(params=weights, indices=fed, axis=0, name="gather")
        both = tf.raw_ops.ConcatV2(values=[weights, found], axis=0, name="concat")
        tf.raw_ops.Mul(x=both, y=3.0, name="out")
    result = transform(graph, "sparsify_gather")
    assert result["concat"] is graph["concat"]
    assert error(graph, result, ids()) <= 1e-6


def test_two_tables():
    with building(["ids"], ["out"]) as graph:
        raw = tf.raw_ops
        fed = raw.Placeholder(dtype=tf.int64, shape=[4], name="ids")
        found = []
        for number in (1, 2):
            weights = tf.identity(tf.constant(SMALL * number, name=f"w{number}/part_1"))
            found.append(raw.GatherV2(params=weights, indices=fed, axis=0, name=f"gather{number}"))
        raw.Sub(x=found[0], y=found[1], name="out")
    result = transform(graph, "sparsify_gather")
    assert {n.name for n in result if n.op == "HashTable"} == {
        "w1/part_1/HashTable", "w2/part_1/HashTable",
    }  # fmt: skip
    assert error(graph, result, ids()) <= 1e-5


@pytest.mark.parametrize("name", ["group_deps", "init/all"])
def test_a_node_that_initialises_the_model_fills_the_tables(name):
    graph = lookup(group=name)
    parameter = "" if name == "group_deps" else f"(group_init_node={name})"
    result = transform(graph, f"sparsify_gather{parameter}")
    assert result[name].inputs == ("^w/part_1/InitializeTable",)
    assert "group_deps" not in transform(lookup(), "sparsify_gather")  # nothing needs it


def test_a_node_that_does_something_else_cannot_initialise():
    with pytest.raises(GraphError, match=says("group-init-not-noop", node="out")):
        transform(lookup(), "sparsify_gather(group_init_node=out)")


@pytest.mark.parametrize(
    ("weights", "kept"),
    [
        (np.zeros((5, 1), np.float32), [0]),
        (np.full((5, 1), 1e-5, np.float32), [0]),  # as float32 it lies below 1e-5
        (np.full((5, 1), 1.1e-5, np.float32), [0, 1, 2, 3, 4]),
        (np.array([[0], [np.nan], [-np.inf], [0], [0]], np.float32), [1, 2]),
    ],
)
def test_corner_values(weights, kept):
    graph = lookup(weights)
    result = transform(graph, "sparsify_gather")
    assert result["w/part_1/indices"].value.tolist() == kept
    feeds = ids(values=(0, 1, 2, 3))
    np.testing.assert_allclose(run(result, feeds)[0], run(graph, feeds)[0], atol=1e-5)


LEFT_ALONE = {
    "two columns": (random(6, 2), 0, "weights-shape", {"shape": [6, 2]}),
    "a vector": (random(6), 0, "weights-shape", {"shape": [6]}),
    "another axis": (random(6, 1), 1, "axis-not-zero", {}),
    "another type": (random(6, 1).astype(np.float64), 0, "weights-type", {"type": "float64"}),
    "whole numbers": (np.ones((6, 1), np.int32), 0, "weights-type", {"type": "int32"}),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    """Where the original tool gives up altogether."""
    weights, axis, code, fields = LEFT_ALONE[case]
    graph = lookup(weights, axis=axis)
    result = transform(graph, "sparsify_gather")
    assert str(result) == str(graph)
    assert shows(result.skipped[0], code, **fields)


def variables(tmp_path) -> tuple[Graph, str, np.ndarray]:
    """Return Gathers from a variable and from one in two parts, a checkpoint, and the values."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        fed = tf.raw_ops.Placeholder(dtype=tf.int64, shape=[4], name="ids")
        whole = v1.get_variable("whole", initializer=column(6), use_resource=False)
        cut = v1.get_variable(
            "cut", shape=[8, 1], initializer=v1.random_uniform_initializer(-1, 1),
            partitioner=v1.fixed_size_partitioner(2), use_resource=False,
        )  # fmt: skip
        parts = list(cut)
        found = [tf.raw_ops.Gather(params=v._snapshot, indices=fed % 4) for v in (whole, *parts)]
        tf.concat(found, axis=1, name="out")
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            prefix = saver.save(session, str(tmp_path / "model"), write_meta_graph=False)
            values = session.run("out:0", {"ids:0": [0, 1, 2, 3]})
    return Graph.from_graph_def(graph.as_graph_def(), ["ids"], ["out"]), prefix, values


def test_variables_are_read_from_the_checkpoint(tmp_path):
    graph, prefix, values = variables(tmp_path)
    result = transform(graph, f'sparsify_gather(input_checkpoint="{prefix}")')
    assert ops(result)["HashTable"] == 3
    assert "VariableV2" not in ops(result)
    found = run(result, ids(values=(0, 1, 2, 3)))[0]
    np.testing.assert_allclose(found, values, atol=1e-5)


def test_variables_need_their_checkpoint_and_parts_their_restore_op(tmp_path):
    graph, prefix, _ = variables(tmp_path)
    with pytest.raises(GraphError, match=says("variable-without-checkpoint", node="whole")):
        transform(graph, "sparsify_gather")
    text = f'sparsify_gather(input_checkpoint="{prefix}")'
    with pytest.raises(GraphError, match=says("variable-part", node="cut/part_0")):
        transform(graph, f"sort_by_execution_order {text}")


def test_weights_and_gathers_that_are_fed_are_left_alone():
    for fed, code in (("w/part_1", "reads-no-weights"), ("gather", "graph-input")):
        graph = lookup()
        graph.inputs = ["ids", fed]
        result = transform(graph, "sparsify_gather")
        assert str(result) == str(graph)
        assert shows(result.skipped[0], code)


GRAPHS = [Example("sparsify_gather", lookup, 1e-4, feeds=ids())]
