"""What is proved not to mix rows, in graphs made at random of ops that do and ops that do not."""

import functools
import random

import numpy as np
import pytest

from deploykit.serving.execution import row_independence
from deploykit.serving.execution.row_independence import unmixed
from deploykit.serving.execution.row_rules import Rows
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.protos import MetaGraphDef
from tests import pairwise
from tests.support import tf

SHAPE, ROWS = (None, 6, 4), (2, 1, 4)  # the rows of the parts
CHAINS, SEED = 160, 26


def constant(*shape):
    return np.random.default_rng(sum(shape)).normal(0.5, 0.5, shape).astype(np.float32)


@functools.cache
def keeping():
    """Return steps from [rows, 6, 4] to the same that compute each row alone."""
    flat = tf.reshape
    dense = functools.partial(tf.matmul, b=constant(4, 4))

    def like_keras(x):
        return flat(flat(x, tf.stack([tf.shape(x)[0], 24])), tf.stack([tf.shape(x)[0], 6, 4]))

    def old_dense(x):
        sizes = tf.shape(x)
        rows = dense(flat(x, tf.stack([tf.reduce_prod(sizes[:2]), 4])))
        return flat(rows, tf.concat([sizes[:2], [4]], 0))

    def normed(x):
        ones = np.ones(4, np.float32)
        found = tf.compat.v1.nn.fused_batch_norm(
            tf.expand_dims(x, 1), ones, ones, ones, ones, is_training=False
        )
        return tf.squeeze(found[0], [1])

    def quantized(x):
        codes = tf.quantization.quantize(x, -9.0, 9.0, tf.quint8)
        return tf.quantization.dequantize(*codes)

    return {
        "relu": tf.nn.relu,
        "scale": lambda x: x * constant(4) + constant(1, 6, 4),
        "bias": lambda x: tf.nn.bias_add(x, constant(4)),
        "softmax": lambda x: tf.raw_ops.Softmax(logits=x),
        "mean": lambda x: x - tf.reduce_mean(x, [1, -1], keepdims=True),
        "products": lambda x: tf.raw_ops.BatchMatMulV2(x=x, y=constant(4, 4)),
        "attention": lambda x: tf.nn.relu(tf.matmul(x, x, transpose_b=True)) @ x,
        "einsum": lambda x: tf.einsum("btd,de->bte", x, constant(4, 4)),
        "folded": lambda x: flat(dense(flat(x, [-1, 4])), [-1, 6, 4]),
        "flat": lambda x: flat(flat(x, [-1, 24]) @ constant(24, 24), [-1, 6, 4]),
        "like keras": like_keras,
        "old dense": old_dense,
        "turned": lambda x: tf.transpose(tf.transpose(x, [0, 2, 1]), [0, 2, 1]),
        "joined": lambda x: tf.concat([x[:, 3:], x[:, :3]], 1),
        "split": lambda x: tf.concat(tf.split(x, 2, axis=-1)[::-1], -1),
        "stacked": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], 1),
        "padded": lambda x: tf.pad(x, [[0, 0], [1, 0], [0, 0]])[..., :6, :],
        "summed up": lambda x: tf.cumsum(x, 1) / 6.0,
        "reversed": lambda x: tf.reverse(x, [-1]),
        "picked": lambda x: tf.gather(x, [5, 4, 3, 2, 1, 0], axis=1),
        "tiled": lambda x: tf.tile(x[:, :3], [1, 2, 1]),
        "looked up": lambda x: tf.reduce_mean(
            tf.gather(constant(4, 4), tf.cast(tf.clip_by_value(x, 0.0, 3.0), tf.int32)), -1
        ),
        "filled": lambda x: x + tf.fill(tf.stack([tf.shape(x)[0], 1, 4]), 2.0),
        "token": lambda x: x + tf.tile(constant(1, 1, 4), tf.stack([tf.shape(x)[0], 1, 1])),
        "clipped": lambda x: tf.clip_by_value(tf.where(x > 0.1, x, x * 0.5), -4.0, 4.0),
        "pooled": lambda x: x + tf.nn.max_pool(tf.expand_dims(x, 1), (1, 3), 1, "SAME")[:, 0],
        "convolved": lambda x: tf.nn.conv2d(
            tf.expand_dims(x, 1), constant(1, 3, 4, 4), 1, "SAME"
        )[:, 0] / 9.0,
        "normed": normed,
        "quantized": quantized,
        "in a function": lambda x: tf.function(lambda y: tf.function(tf.nn.relu)(y * 2.0))(x),
    }  # fmt: skip


@functools.cache
def ending():
    """Return steps to another shape that compute each row alone."""
    return {
        "largest": lambda x: tf.math.top_k(x, 2).values,
        "their places": lambda x: tf.math.top_k(x, 2).indices,
        "hot": lambda x: tf.one_hot(tf.argmax(x, -1), 4),
        "all of it": lambda x: tf.reduce_any(x > 0.5, [1, 2]),
        "classes": lambda x: tf.argmax(tf.nn.softmax(tf.reduce_max(x, 1)), 1),
    }


@functools.cache
def mixing():
    """Return steps whose rows depend on other rows, on how many there are, or on chance."""

    def trained(x):
        found = tf.compat.v1.nn.fused_batch_norm(
            tf.expand_dims(x, 1), np.ones(4, np.float32), np.ones(4, np.float32), is_training=True
        )
        return found[0][:, 0]

    def by_count(x):
        return tf.cast(tf.shape(x)[0], tf.float32)

    def gram(x):
        rows = tf.reshape(x, [-1, 24])
        return tf.reshape(rows @ tf.matmul(rows, rows, transpose_a=True), [-1, 6, 4])

    def branched(x):
        return tf.cond(tf.shape(x)[0] > 5, lambda: x, lambda: -x)

    def ranged(x):
        low, high = tf.reduce_min(x), tf.reduce_max(x)
        return tf.quantization.dequantize(*tf.quantization.quantize(x, low, high, tf.quint8))

    def other_rows(x):
        turned = tf.transpose(tf.reshape(x, [6, -1, 4]), [1, 0, 2])
        return tf.reshape(turned, tf.shape(x))

    def pooled_along_rows(x):
        rows = tf.reshape(x, [1, 1, -1, 24])
        return tf.reshape(tf.nn.max_pool(rows, (1, 3), 1, "SAME"), [-1, 6, 4])

    def looped(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 400, lambda y: [y * 2 + 1], [x])[0]

    numbers = functools.partial(tf.range, dtype=tf.float32)
    return {
        "trained": trained,
        "softmax": lambda x: tf.nn.softmax(x, axis=0),
        "max": lambda x: x - tf.reduce_max(x, 0, keepdims=True),
        "mean": lambda x: x - tf.reduce_mean(x),
        "mean of negative axis": lambda x: x - tf.reduce_mean(x, -3, keepdims=True),
        "reverse": lambda x: tf.reverse(x, [0]),
        "cumsum": lambda x: tf.cumsum(x, 0),
        "gram": gram,
        "argmax": lambda x: x + tf.one_hot(tf.argmax(x, 0), 4)[tf.newaxis, :, :, 0],
        "top_k": lambda x: tf.transpose(
            tf.math.top_k(tf.transpose(x, [1, 2, 0]), tf.shape(x)[0]).values, [2, 0, 1]
        ),
        "sort": lambda x: tf.sort(x, axis=0),
        "random": lambda x: x + tf.random.uniform([6, 4]),
        "random of its shape": lambda x: x + tf.random.normal(tf.shape(x)),
        "count": lambda x: x / by_count(x),
        "numbered": lambda x: x * tf.reshape(numbers(by_count(x)), [-1, 1, 1]),
        "other rows": other_rows,
        "across": lambda x: tf.transpose(tf.cumsum(tf.transpose(x, [1, 0, 2]), 1), [1, 0, 2]),
        "first": lambda x: x - x[:1],
        "roll": lambda x: tf.roll(x, 1, 0),
        "join": lambda x: tf.concat([x, x], 0)[1 : tf.shape(x)[0] + 1],
        "stack": lambda x: tf.reduce_sum(tf.stack([x, x[::-1]], 0), 0),
        "pad": lambda x: tf.pad(x, [[1, 0], [0, 0], [0, 0]])[:-1],
        "split": lambda x: tf.concat(tf.split(x, [1, -1], axis=0)[::-1], 0),
        "gather": lambda x: tf.gather(x, tf.nn.relu(tf.range(tf.shape(x)[0]) - 1)),
        "pooled": pooled_along_rows,
        "branched": branched,
        "ranged": ranged,
        "einsum": lambda x: x + tf.einsum("btd,bte->de", x, x)[0],
        "looped": looped,
    }  # fmt: skip


@functools.cache
def chains():
    """Return chains of steps, by name, of which about a half mix."""
    chance, found = random.Random(SEED), {}
    for number in range(CHAINS):
        names = chance.choices(list(keeping()), k=chance.randint(1, 4))
        steps = [keeping()[name] for name in names]
        if number % 2:
            place, mixer = chance.randint(0, len(steps)), chance.choice(list(mixing()))
            names.insert(place, f"MIX {mixer}")
            steps.insert(place, mixing()[mixer])
        found[" > ".join((str(number), *names))] = steps
    return found | {f"= {n}": [s] for n, s in (keeping() | ending()).items()} | {
        f"= MIX {n}": [s] for n, s in mixing().items()
    }  # fmt: skip


@functools.cache
def built():
    """Return each chain's graph, its outputs for a batch, and those for its parts, joined."""
    batch = np.random.default_rng(1).normal(0, 1, (sum(ROWS), *SHAPE[1:])).astype(np.float32)
    parts = np.split(batch, np.cumsum(ROWS)[:-1])
    metas, wholes, apart = {}, {}, {}
    for name, steps in chains().items():
        with tf.Graph().as_default() as graph:
            x = y = tf.compat.v1.placeholder(tf.float32, SHAPE, name="x")
            for step in steps:
                y = step(y)
            tf.identity(y, name="y")
            metas[name] = MetaGraphDef(graph_def=graph.as_graph_def())
            with tf.compat.v1.Session(graph=graph) as session:
                wholes[name] = session.run(y, {x: batch})
                try:
                    apart[name] = [session.run(y, {x: part}) for part in parts]
                except tf.errors.InvalidArgumentError:  # more or fewer rows are none of its
                    apart[name] = [np.zeros(0)]
    return metas, wholes, apart


def signature(shape=(-1, 6, 4), output=(-1, 6, 4)):
    x, y = Tensor("x:0", "float32", shape), Tensor("y:0", "float32", output)
    return Signature("", {"x": x}, {"y": y}, None)


def proved(meta, each=None):
    return bool(unmixed(meta, {"s": each or signature()}))


def wrong() -> list[str]:
    """Return the chains that are proved not to mix rows, but do."""
    metas, wholes, apart = built()
    return [
        name
        for name, meta in metas.items()
        if proved(meta) and not agree(wholes[name], apart[name])
    ]


def agree(whole, parts) -> bool:
    joined = np.concatenate(parts)
    return joined.shape == whole.shape and np.allclose(
        joined, whole, rtol=0, atol=1e-5 * np.abs(whole).max()
    )


@pytest.mark.sampled
def test_what_is_proved_is_so():
    assert wrong() == []


@pytest.mark.sampled
def test_what_keeps_rows_apart_is_proved():
    assert [
        name for name, meta in built()[0].items() if "MIX" not in name and not proved(meta)
    ] == []


def test_what_mixes_is_not_proved():
    metas, wholes, apart = built()
    assert [name for name in metas if "MIX" in name and proved(metas[name])] == []
    alone = [name for name in metas if name.startswith("= MIX")]
    assert all(not agree(wholes[name], apart[name]) for name in alone)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "op",
    pairwise.drawn(
        "a_rule_that_lets_pass_all_is_found_out",
        [
            "Cumsum",
            "FusedBatchNormV3",
            "GatherV2",
            "MatMul",
            "Max",
            "Mean",
            "Mul",
            "RealDiv",
            "Reshape",
            "ReverseV2",
            "StridedSlice",
            "Transpose",
        ],
        2,
        quick=4,
    ),
)
def test_a_rule_that_lets_pass_all_is_found_out(op, monkeypatch):
    monkeypatch.setitem(row_independence.RULES, op, lambda *_: Rows())
    assert wrong()


def test_a_signature_that_is_not_as_the_graph_counts_on_is_not_proved():
    meta = built()[0]["= relu"]
    assert proved(meta)
    assert not proved(meta, signature((-1, 5, 4)))
    assert not proved(meta, signature(None))
    assert not proved(meta, signature((7, 6, 4)))
    assert not proved(meta, signature(output=(6, 4)))
    gone, y = (Tensor(name, "float32", (-1, 6, 4)) for name in ("gone:0", "y:0"))
    assert not proved(meta, Signature("", {"x": gone}, {"y": y}, None))
    assert not proved(meta, Signature("", {"x": y}, {"y": y}, None))
    assert not proved(meta, Signature("", {}, {"y": y}, None))


def test_functions_without_end_and_functions_that_are_missing_prove_nothing():
    meta = MetaGraphDef()
    meta.CopyFrom(built()[0]["= in a function"])
    assert proved(meta)
    for function in meta.graph_def.library.function:
        for node in function.node_def:
            if node.op == "PartitionedCall":
                node.attr["f"].func.name = function.signature.name
    assert not proved(meta)
    meta.graph_def.library.Clear()
    assert not proved(meta)
