"""A MiniLM-like text encoder, with weights by seed or real ones, in the forms that one meets.

6 layers, 384 wide, 12 heads, 1536 feed-forward, 128 tokens. All forms compute the same:

* `keras`: keras.layers.MultiHeadAttention and Dense, so products are Einsum and tensordot.
* `bert`: rows of tokens in one matrix, as Google's BERT and TensorFlow Hub have them: MatMul.
* `batched`: weights that multiply a batch of matrices, with an axis for the heads: BatchMatMulV2.

It reads `input_ids` and `attention_mask`, both int32 [batch, tokens], and gives `hidden`
[batch, tokens, width] and `embedding` [batch, width], the mean over the tokens that the mask keeps.

    python -m tests.real.encoder keras FOLDER    # a SavedModel, to be frozen
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.runtime.session import Session

FORMS = ("keras", "bert", "batched")
EPSILON = 1e-12  # of the layer norms


@dataclass(frozen=True)
class Size:
    """How large an encoder is."""

    layers: int = 6
    width: int = 384
    heads: int = 12
    inner: int = 1536
    tokens: int = 128
    words: int = 2000
    """In the vocabulary; looking rows up takes as long among fewer."""


MINI = Size()
TINY = Size(layers=2, width=32, heads=4, inner=64, tokens=8, words=50)
Weights = Mapping[str, np.ndarray]


def weights(size: Size = MINI, seed: int = 0) -> Weights:
    """Return random weights [in, out], named as BERT's are, with norms that do something."""
    random = np.random.default_rng(seed)
    found = {
        "embeddings.word": random.normal(0, 0.05, (size.words, size.width)),
        "embeddings.position": random.normal(0, 0.02, (size.tokens, size.width)),
    }
    norms = ["embeddings.norm"]
    for layer in range(size.layers):
        name = f"layer.{layer}"
        norms += [f"{name}.attention.norm", f"{name}.output.norm"]
        for part, (read, made) in _products(size).items():
            found[f"{name}.{part}.weight"] = random.normal(0, read**-0.5, (read, made))
            found[f"{name}.{part}.bias"] = random.normal(0, 0.1, made)
    for name in norms:
        found[f"{name}.weight"] = random.uniform(0.5, 1.5, size.width)
        found[f"{name}.bias"] = random.normal(0, 0.1, size.width)
    return {name: value.astype(np.float32) for name, value in found.items()}


def _products(size: Size) -> dict[str, tuple[int, int]]:
    """Return how wide what each product reads and makes is."""
    square = (size.width, size.width)
    return {
        "query": square,
        "key": square,
        "value": square,
        "attention": square,
        "inner": (size.width, size.inner),
        "output": (size.inner, size.width),
    }


def texts(batch: int, size: Size = MINI, seed: int = 1) -> dict[str, np.ndarray]:
    """Return made-up texts of different lengths, by input name."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, size.words, (batch, size.tokens))
    lengths = random.integers(size.tokens // 4, size.tokens + 1, (batch, 1))
    mask = np.arange(size.tokens) < lengths
    return {
        "input_ids": np.where(mask, ids, 0).astype(np.int32),
        "attention_mask": mask.astype(np.int32),
    }


def save(form: str, path: str, size: Size = MINI, given: Weights | None = None) -> None:
    """Save an encoder as a SavedModel, with these weights; this is done in a child process."""
    import tensorflow as tf

    found = weights(size) if given is None else given
    module = tf.Module()
    if form == "keras":
        model = _keras(found, size)
        module.kept = [variable.value for variable in model.variables]

        def call(*inputs):
            return model(list(inputs))

    else:
        call = _plain(form, found, size)
    inputs = [
        tf.TensorSpec((None, size.tokens), tf.int32, name=name)
        for name in ("input_ids", "attention_mask")
    ]

    @tf.function(input_signature=inputs)
    def serve(input_ids, attention_mask):
        hidden = call(input_ids, attention_mask)
        kept = tf.cast(attention_mask, tf.float32)[:, :, tf.newaxis]
        count = tf.maximum(tf.reduce_sum(kept, 1), 1e-9)
        return {"hidden": hidden, "embedding": tf.reduce_sum(hidden * kept, 1) / count}

    tf.saved_model.save(module, path, signatures=serve)


def _keras(found: Weights, size: Size):
    """Return a Keras model with these weights."""
    import keras

    def norm(name):
        layer = keras.layers.LayerNormalization(epsilon=EPSILON)
        settings.append((layer, [found[f"{name}.weight"], found[f"{name}.bias"]]))
        return layer

    def dense(name, activation=None):
        weight, bias = found[f"{name}.weight"], found[f"{name}.bias"]
        layer = keras.layers.Dense(len(bias), activation=activation)
        settings.append((layer, [weight, bias]))
        return layer

    def attention(name):
        depth = size.width // size.heads
        values = []
        for part in ("query", "key", "value"):
            values.append(found[f"{name}.{part}.weight"].reshape(size.width, size.heads, depth))
            values.append(found[f"{name}.{part}.bias"].reshape(size.heads, depth))
        out = found[f"{name}.attention.weight"].reshape(size.heads, depth, size.width)
        layer = keras.layers.MultiHeadAttention(size.heads, depth)
        settings.append((layer, [*values, out, found[f"{name}.attention.bias"]]))
        return layer

    settings = []
    words = keras.layers.Embedding(size.words, size.width)
    settings.append((words, [found["embeddings.word"]]))
    ids = keras.Input((size.tokens,), dtype="int32", name="input_ids")
    mask = keras.Input((size.tokens,), dtype="int32", name="attention_mask")
    x = norm("embeddings.norm")(words(ids) + found["embeddings.position"])
    keep = keras.ops.cast(mask, "bool")[:, None, :]
    for number in range(size.layers):
        name = f"layer.{number}"
        x = norm(f"{name}.attention.norm")(x + attention(name)(x, x, attention_mask=keep))
        inner = dense(f"{name}.inner", lambda x: keras.ops.gelu(x, approximate=False))(x)
        x = norm(f"{name}.output.norm")(x + dense(f"{name}.output")(inner))
    model = keras.Model([ids, mask], x)
    for layer, values in settings:
        layer.set_weights(values)
    return model


def _plain(form: str, found: Weights, size: Size):
    """Return a function that computes with constants, by TensorFlow's own ops."""
    import tensorflow as tf

    depth = size.width // size.heads

    def norm(x, name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        scale, offset = found[f"{name}.weight"], found[f"{name}.bias"]
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, EPSILON)

    def dense(x, name):
        weight, bias = found[f"{name}.weight"], found[f"{name}.bias"]
        if form == "bert":
            return tf.nn.bias_add(tf.matmul(x, weight), bias)
        return tf.raw_ops.BatchMatMulV2(x=x, y=weight) + bias

    def heads(x, name):
        """Return [batch, heads, tokens, depth]."""
        if form == "bert":
            rows = tf.reshape(dense(x, name), [-1, size.tokens, size.heads, depth])
            return tf.transpose(rows, [0, 2, 1, 3])
        weight = found[f"{name}.weight"].reshape(size.width, size.heads, depth)
        made = tf.raw_ops.BatchMatMulV2(x=x[:, tf.newaxis], y=weight.transpose(1, 0, 2))
        return made + found[f"{name}.bias"].reshape(size.heads, 1, depth)

    def attention(x, name, hidden):
        query, key, value = (heads(x, f"{name}.{part}") for part in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) * depth**-0.5 + hidden
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        shape = [-1, size.width] if form == "bert" else [-1, size.tokens, size.width]
        return dense(tf.reshape(mixed, shape), f"{name}.attention")

    def call(ids, mask):
        x = tf.gather(tf.constant(found["embeddings.word"]), ids) + found["embeddings.position"]
        hidden = (1.0 - tf.cast(mask, tf.float32))[:, tf.newaxis, tf.newaxis] * -10000.0
        if form == "bert":
            x = tf.reshape(x, [-1, size.width])
        x = norm(x, "embeddings.norm")
        for number in range(size.layers):
            name = f"layer.{number}"
            x = norm(x + attention(x, name, hidden), f"{name}.attention.norm")
            inner = tf.nn.gelu(dense(x, f"{name}.inner"), approximate=False)
            x = norm(x + dense(inner, f"{name}.output"), f"{name}.output.norm")
        return tf.reshape(x, [-1, size.tokens, size.width])

    return call


def outputs_of(content: bytes, outputs: list[str], fed: Mapping[str, np.ndarray]) -> list:
    """Return what a frozen encoder gives; this is done in a child process."""
    return Session(content).run(outputs, dict(fed))


if __name__ == "__main__":
    save(*sys.argv[1:])
