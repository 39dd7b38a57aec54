"""A product with constant weights becomes a MatMul where it is one; what is none stays."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import (
    assert_golden,
    because,
    building,
    built,
    error,
    ops,
    random,
    run,
    tf,
    transform,
)
from tests.transforms.examples import Example

BAR = 1e-6 * 6  # design: 1e-6 * (5 + depth); sums may be in another order


@built(["x"], ["out"])
def net(equation="abc,cd->abd", x=(None, 4, 6), weights=(6, 5), swapped=False):
    """Return an Einsum of an input and constant weights."""
    rows = tf.compat.v1.placeholder(tf.float32, x, name="x")
    operands = [tf.abs(rows), tf.constant(random(*weights), name="weights")]
    operands = operands[:: -1 if swapped else 1]
    y = tf.raw_ops.Einsum(inputs=operands, equation=equation, name="product")
    tf.abs(y, name="out")


@built(["x"], ["out"])
def batched(x=(None, 4, 6), weights=(6, 5), op="BatchMatMulV2", **attrs):
    rows = tf.compat.v1.placeholder(tf.float32, x, name="x")
    constant = tf.constant(random(*weights), name="weights")
    y = getattr(tf.raw_ops, op)(x=tf.abs(rows), y=constant, name="product", **attrs)
    tf.abs(y, name="out")


def fed(graph: Graph, *open_sizes: int) -> dict[str, np.ndarray]:
    sizes = iter(open_sizes)
    shape = [next(sizes) if size < 0 else size for size in graph["x"].attr("shape")]
    return {"x": random(*shape, seed=1)}


def equal(graph: Graph, *open_sizes: tuple[int, ...]) -> Graph:
    """Return the transformed graph, after a comparison of its numbers and shapes."""
    graph.prune()
    result = transform(graph, "flatten_products")
    for sizes in open_sizes or ((1,), (3,)):
        feeds = fed(graph, *sizes)
        assert error(graph, result, feeds) <= BAR
        assert run(result, feeds)[0].shape == run(graph, feeds)[0].shape
    assert str(transform(result, "flatten_products")) == str(result)
    return result


EINSUMS = {
    "dense": ("abc,cd->abd", (None, 4, 6), (6, 5)),
    "heads": ("abc,cde->abde", (None, 4, 6), (6, 2, 3)),
    "from heads": ("abcd,cde->abe", (None, 4, 2, 3), (2, 3, 5)),
    "transposed": ("abc,dc->abd", (None, 4, 6), (5, 6)),
    "heads, transposed": ("abc,dec->abde", (None, 4, 6), (2, 3, 6)),
    "rows": ("bc,cd->bd", (None, 6), (6, 5)),
    "ellipsis": ("...c,cd->...d", (None, 4, 6), (6, 5)),
    "four axes": ("abcd,de->abce", (None, 2, 3, 4), (4, 5)),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", EINSUMS)
def test_an_einsum_is_a_matmul_between_reshapes(name, swapped):
    equation, x, weights = EINSUMS[name]
    if swapped:
        terms, result = equation.split("->")
        equation = ",".join(terms.split(",")[::-1]) + "->" + result
    result = equal(net(equation, x, weights, swapped))
    assert ops(result) == {"Placeholder": 1, "Abs": 2, "Const": 3, "Reshape": 2, "MatMul": 1}


@pytest.mark.parametrize("op", ["BatchMatMul", "BatchMatMulV2"])
@pytest.mark.parametrize("adj_y", [False, True])
def test_a_product_of_a_batch(op, adj_y):
    weights = (5, 6) if adj_y else (6, 5)
    if op == "BatchMatMul":  # takes no other ranks
        result = equal(batched((1, None, 6), (1, *weights), op, adj_y=adj_y))
    else:
        result = equal(batched(weights=weights, adj_y=adj_y))
    assert ops(result)["MatMul"] == 1


NEW_AXES = {
    "slice": lambda x: x[:, None],
    "ellipsis": lambda x: x[:, None, ...],
    "expand": lambda x: x,
    "part": lambda x: x[:, None, ::2],
}
HEADS, WIDE, MADE = 3, 6, 5
BIASES = {
    "heads": (HEADS, 1, MADE),
    "batch": (1, HEADS, 1, MADE),
    "none": None,
    "all heads alike": (MADE,),
    "rows": (HEADS, 4, MADE),
}


@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("axis", NEW_AXES)
def test_weights_of_heads_become_one_matrix(axis, bias, adj_y):
    rows = 8 if axis == "part" else 4

    with building(["x"], ["out"]) as graph:
        x = tf.abs(tf.compat.v1.placeholder(tf.float32, (None, rows, WIDE), name="x"))
        new_axis = tf.expand_dims(x, 1) if axis == "expand" else NEW_AXES[axis](x)
        shape = (HEADS, MADE, WIDE) if adj_y else (HEADS, WIDE, MADE)
        y = tf.raw_ops.BatchMatMulV2(x=new_axis, y=random(*shape), adj_y=adj_y, name="product")
        if BIASES[bias] is not None:
            y = y + random(*BIASES[bias], seed=2)
        tf.abs(y, name="out")
    result = equal(transform(graph, "fold_constants"))
    result.prune()
    counts = ops(result)
    assert (counts["MatMul"], counts["Transpose"]) == (1, 1)
    assert counts.get("BiasAdd", 0) == (bias in ("heads", "batch"))
    assert counts.get("StridedSlice", 0) == (axis == "part")


def test_a_product_of_heads_that_others_read_keeps_its_bias_behind_it():
    with building(["x"], ["out"]) as graph:
        x = tf.abs(tf.compat.v1.placeholder(tf.float32, (None, 4, WIDE), name="x"))
        y = tf.raw_ops.BatchMatMulV2(x=x[:, None], y=random(HEADS, WIDE, MADE))
        tf.add(y + random(HEADS, 1, MADE), tf.abs(y), name="out")
    result = equal(transform(graph, "fold_constants"))
    assert "BiasAdd" not in ops(result)


def test_more_than_one_open_size_is_computed():
    result = equal(net(x=(None, None, 6)), (1, 4), (3, 2), (2, 1))
    assert ops(result)["Shape"] == 1
    result = equal(net("abc,cde->abde", (None, None, 6), (6, 2, 3)), (1, 4), (3, 2))
    assert ops(result)["MatMul"] == 1


def test_an_empty_batch_stays_empty():
    graph = net()
    graph.prune()
    result = transform(graph, "flatten_products")
    assert run(result, fed(graph, 0))[0].shape == (0, 4, 5)


def test_tensordot_reads_rows_by_constant_sizes():
    with building(["x"], ["out"]) as net:
        x = tf.compat.v1.placeholder(tf.float32, (None, 4, 6), name="x")
        tf.abs(tf.tensordot(tf.abs(x), tf.constant(random(6, 5)), [[2], [0]]), name="out")
    graph = transform(net, "fold_constants")
    result = equal(graph)
    result.prune()
    assert ops(result) == {"Placeholder": 1, "Abs": 2, "Const": 3, "Reshape": 2, "MatMul": 1}


@pytest.mark.golden("flatten_products/heads")
def test_golden():
    graph = net("abc,cde->abde", (None, 4, 6), (6, 2, 3))
    graph.prune()
    assert_golden(graph, transform(graph, "flatten_products"))


MOVES = because("einsum-moves-axes")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (lambda: net("abc,cd->bad"), MOVES),
        (lambda: net("abc,bcd->abd", weights=(4, 6, 5)), MOVES),
        (lambda: net("abc,bd->acd", weights=(4, 5)), because("einsum-sums-other-axes")),
        (lambda: net("abc,cd->abcd"), because("einsum-sums-other-axes")),
        (lambda: batched(weights=(4, 6, 5), x=(4, 3, 6)), because("weights-differ-by-matrix")),
        (lambda: batched(x=(None, 6, 4), adj_x=True), because("first-factor-transposed")),
        (lambda: batched(x=(4, 6), weights=(1, 6, 5)), because("product-rank-unknown")),
    ],
)  # fmt: skip
def test_left_alone(graph, reason):
    graph = graph()
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse("flatten_products"))
    assert str(done.graph) == str(graph)
    assert list(done.skipped) == [f"node 'product': {reason}"]


@pytest.mark.parametrize("kinds", [("int8", "int8", "int32"), ("float32", "bfloat16", "float32")])
def test_products_of_several_types_are_left_alone(kinds):
    """As Keras' `model.quantize("int8")` writes EinsumDense."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(kinds[0], (None, 4, 6), name="x")
        weights = tf.ones((6, 5), kinds[1])
        tf.raw_ops.BatchMatMulV3(x=x, y=weights, Tout=kinds[2], name="out")
    graph.prune()
    assert str(transform(graph, "flatten_products")) == str(graph)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_product_that_names_its_types_one_by_one(kind):
    with building(["x"], ["out"]) as net:
        x = tf.compat.v1.placeholder(kind, (None, 4, 6), name="x")
        weights = tf.constant(random(6, 5), kind)
        tf.raw_ops.BatchMatMulV3(x=x, y=weights, Tout=kind, name="out")
    graph = transform(net, "fold_constants flatten_products")
    assert ops(graph)["MatMul"] == 1
    assert run(graph, {"x": random(2, 4, 6).astype(kind)})[0].shape == (2, 4, 5)


def test_what_is_fed_or_not_constant_is_left_alone():
    graph = net()
    graph.inputs = ("x", "product")
    assert "MatMul" not in ops(transform(graph, "flatten_products"))
    graph.inputs = ("x", "weights")
    assert "MatMul" not in ops(transform(graph, "flatten_products"))


def test_weights_that_others_read_stay_for_them():
    graph = net("abc,dc->abd", weights=(5, 6))
    graph.add(Node("twice", "Neg", ("weights",)).with_attrs(T=graph["product"].attr("T")))
    graph.outputs = ("out", "twice")
    result = equal(graph)
    assert result["weights"].value.shape == (5, 6)


GRAPHS = [
    Example("flatten_products", net, BAR),
    Example("flatten_products", lambda: batched((2, 4, 6)), BAR),
]
