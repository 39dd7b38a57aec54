"""Tokens in parts give what they give as a whole; what looks at all of them reads all."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.real import encoder
from tests.support import build, building, error, ops, random, run, says, skipped, tf, transform
from tests.transforms.examples import Example

BAR = 1e-6 * 11  # design: 1e-6 * (5 + depth): kernels may sum a matrix of fewer rows otherwise
T, C = 8, 6


def net(behind=lambda tf, y: y, tokens=T, **more) -> Graph:
    """Return what looks words up, and something behind it."""

    def make():
        ids = tf.compat.v1.placeholder(tf.int32, (None, tokens), name="ids")
        y = tf.gather(tf.constant(random(20, C)), tf.abs(ids) % 20)
        y = behind(tf, y, **more)
        tf.identity(y, name="out")

    graph = build(make, ["ids"], ["out"])
    graph.prune()
    return graph


def attention(tf, y, name="ab") -> object:
    """Return what attention over all tokens gives, by Einsum, with a mask made of ones."""
    query, key, value = (
        tf.reshape(tf.reshape(y, [-1, C]) @ random(C, C, seed=seed), [-1, T, 2, C // 2])
        for seed in (1, 2, 3)
    )
    scores = tf.raw_ops.Einsum(inputs=[key, query], equation="aecd,abcd->acbe")
    kept = tf.logical_and(tf.fill(tf.shape(scores), True), np.arange(T) < T - 1)
    share = tf.nn.softmax(tf.where(kept, scores, -100.0))
    mixed = tf.raw_ops.Einsum(inputs=[share, value], equation="acbe,aecd->abcd")
    return tf.reshape(mixed, [-1, T, C])


def bert(size=encoder.TINY) -> Graph:
    """Return a whole encoder in the form that BERT has."""

    with building(["ids", "mask"], ["out"]) as graph:
        ids, mask = (
            tf.compat.v1.placeholder(tf.int32, (None, size.tokens), name=name)
            for name in ("ids", "mask")
        )
        hidden = encoder._plain("bert", encoder.weights(size), size)(ids, mask)
        tf.identity(hidden, name="out")
    graph.prune()
    return graph


def feeds(graph: Graph, batch: int) -> dict[str, np.ndarray]:
    texts = encoder.texts(batch, encoder.TINY, batch)
    named = {"ids": texts["input_ids"], "mask": texts["attention_mask"]}
    return {name: named[name] for name in graph.inputs}


def equal(graph: Graph, parts: int = 2) -> Graph:
    """Return the graph in parts, after a comparison of its numbers."""
    result = transform(graph, f"split_tokens(tensor=ids, parts={parts})")
    result.prune()
    for batch in (1, 3):
        assert error(graph, result, feeds(graph, batch)) <= BAR
    return result


@pytest.mark.parametrize("parts", [2, 4])
def test_an_encoder_joins_keys_and_values_alone(parts):
    graph = bert()
    result = equal(graph, parts)
    layers = encoder.TINY.layers
    assert ops(result)["MatMul"] == parts * ops(graph)["MatMul"]
    assert ops(result)["BatchMatMulV2"] == parts * ops(graph)["BatchMatMulV2"]
    assert ops(result)["ConcatV2"] == 2 * layers + 1


def test_weights_are_there_once():
    graph = bert()
    result = equal(graph)
    total = sum(n.value.size for n in graph if n.op == "Const" and n.value.ndim == 2)
    assert sum(n.value.size for n in result if n.op == "Const" and n.value.ndim == 2) == total


def test_attention_by_einsum():
    graph = net(attention)
    result = equal(graph)
    assert ops(result)["Einsum"] == 2 * ops(graph)["Einsum"]
    assert ops(result)["Fill"] == 2


def test_an_encoder_in_8_bits_gives_the_same(tmp_path):
    from tests.transforms.int8_nets import ranges_of

    graph = bert()
    path = tmp_path / "ranges.json"
    path.write_text(ranges_of(graph, [feeds(graph, 3)]).text())
    quantized = transform(graph, f'quantize_static(ranges="{path}", isa=avx2)')
    quantized.prune()
    result = equal(quantized)
    assert ops(result)["_QuantizedMatMul"] == 2 * ops(quantized)["_QuantizedMatMul"] > 0
    (one,), (other,) = (run(each, feeds(graph, 2)) for each in (quantized, result))
    assert np.abs(one - other).max() <= 1e-5


WHOLE = {
    "running sum": lambda tf, y: tf.cumsum(y, 1),
    "mean": lambda tf, y: tf.reduce_mean(y, 1),
    "softmax over tokens": lambda tf, y: tf.nn.softmax(tf.transpose(y, [0, 2, 1])),
    "reversed": lambda tf, y: tf.reverse(y, [1]),
    "other rows": lambda tf, y: tf.reshape(y, [-1, 2 * C]) @ random(2 * C, 3),
    "tokens multiplied": lambda tf, y: tf.matmul(y, y, transpose_a=True),
    "a sum of tokens by Einsum": lambda tf, y: tf.raw_ops.Einsum(
        inputs=[y, tf.constant(random(T, 3))], equation="abc,bd->acd"
    ),
    "what saw all tokens": lambda tf, y: y + tf.cumsum(y, 1) + tf.cumsum(y, 1),
    "the next token": lambda tf, y: y[:, 1:] - y[:, :-1],
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_at_all_tokens_reads_all(name):
    result = equal(net(WHOLE[name]))
    assert ops(result)["ConcatV2"] >= 1


PARTLY = {
    "positions": lambda tf, y: y + random(T, C, seed=2),
    "positions of a sample": lambda tf, y: y * random(1, T, 1, seed=2),
    "norm": lambda tf, y: tf.nn.moments(y, [-1], keepdims=True)[1],
    "mean of channels": lambda tf, y: tf.reduce_mean(y, 2),
    "turned": lambda tf, y: tf.transpose(y, [1, 0, 2]),
    "rows": lambda tf, y: tf.nn.softmax(tf.reshape(y, [-1, C])),
    "another input": lambda tf, y: y + tf.gather(tf.constant(random(2, C)), kinds(tf)),
}


def kinds(tf):
    """Return a second input, as the types of tokens are one."""
    given = tf.compat.v1.placeholder_with_default(np.arange(T)[np.newaxis] % 2, (None, T))
    return tf.identity(given)


@pytest.mark.parametrize("name", PARTLY)
def test_what_looks_at_one_token_is_computed_in_parts(name):
    graph = net(PARTLY[name])
    result = equal(graph)
    (whole,) = (node for node in result if node.op == "ConcatV2")
    assert not [n for n in result.consumers(whole.name) if n.op not in ("Identity", "Reshape")]


def test_a_value_that_is_fetched_is_whole():
    graph = bert()
    inner = next(node.name for node in graph if node.op == "MatMul")
    graph.outputs = ("out", inner)
    assert equal(graph)[inner].op == "Reshape"


def test_nothing_to_split_is_said():
    graph = build(cumulated, ["ids"], ["out"])
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse("split_tokens(tensor=ids)"))
    assert str(done.graph) == str(graph)
    assert list(done.skipped) == [skipped("ids", "no-token-reader")]


def cumulated() -> None:
    ids = tf.compat.v1.placeholder(tf.float32, (None, T, C), name="ids")
    tf.identity(tf.cumsum(ids, 1), name="out")


@pytest.mark.parametrize(
    ("make", "text", "reason"),
    [
        (net, "tensor=idz", says("unknown-name", kind="input", name="idz", known=["ids"])),
        (net, "tensor=ids, parts=3", says("split-tokens-shape", parts=3, got=[-1, 8])),
        (net, "tensor=ids, parts=1", says("split-tokens-shape", parts=1)),
        (lambda: net(tokens=None), "tensor=ids", "got \\[-1, -1\\]"),
    ],
)
def test_refused(make, text, reason):
    with pytest.raises(GraphError, match=reason):
        list(pipeline.run(make(), pipeline.parse(f"split_tokens({text})")))


GRAPHS = [
    Example("split_tokens(tensor=ids)", lambda: net(PARTLY["positions"]), BAR, golden="positions")
]
