"""Quantization-aware graphs, as TF-MOT, tf_keras and plain TensorFlow code leave them."""

from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.ir.graph import Graph
from tests.support import build, random, tf

C = 6
SIZE = (10, 8)


@dataclass(frozen=True)
class Block:
    """A layer with fake-quants on its weights and behind its activation."""

    kind: str = "conv"
    """conv, strided, depthwise or matmul."""
    per_channel: bool = True
    narrow: bool = True
    norm: str = "behind"
    """Where the batch norm is: behind the layer, in the weights before their fake-quant, or ''."""
    activation: str = "relu6"
    """relu6, relu or ''."""
    low: float = 0.0
    """Of the range behind the activation."""
    args: bool = False
    """Whether ranges are attributes."""
    bits: int = 8


def rounded(y, low, high, name, narrow=False, bits=8, args=False):
    """Return what a fake-quant gives of a tensor."""
    attrs = {"num_bits": bits, "narrow_range": narrow, "name": name}
    if args:
        return tf.raw_ops.FakeQuantWithMinMaxArgs(inputs=y, min=low, max=high, **attrs)
    ends = [np.asarray(end, np.float32) for end in (low, high)]
    op = "FakeQuantWithMinMaxVarsPerChannel" if ends[0].ndim else "FakeQuantWithMinMaxVars"
    return getattr(tf.raw_ops, op)(inputs=y, min=ends[0], max=ends[1], **attrs)


def rounded_weights(weights, block, name):
    """Return weights behind a symmetric fake-quant, as TF-MOT leaves them."""
    axes = tuple(range(weights.ndim - 1)) if block.per_channel else None
    peak = np.abs(weights).max(axes)
    low = -peak if block.narrow else -peak * 128 / 127
    return rounded(weights, low, peak, f"{name}/weights", block.narrow, block.bits)


def layer(y, block, name, seed=0, channels=C, weights=None):
    """Return a layer of a block, with what follows it up to the fake-quant."""
    raw, read = tf.raw_ops, y.shape[-1]
    shape = {"matmul": (read, channels), "depthwise": (3, 3, read, 1)}.get(
        block.kind, (3, 3, read, channels)
    )
    if weights is None:
        weights = random(*shape, seed=seed) / np.sqrt(np.prod(shape[:-1]) / 4).astype(np.float32)
        if block.norm == "before":
            weights = weights * random(shape[-1], seed=9, low=0.5)
        weights = rounded_weights(weights, block, name)
    stride = 2 if block.kind == "strided" else 1
    window = {"strides": [1, stride, stride, 1], "padding": "SAME", "name": name}
    if block.kind == "matmul":
        y = raw.MatMul(a=y, b=weights, name=name)
    elif block.kind == "depthwise":
        y = raw.DepthwiseConv2dNative(input=y, filter=weights, **window)
    else:
        y = raw.Conv2D(input=y, filter=weights, **window)
    count = y.shape[-1]
    y = tf.nn.bias_add(y, random(count, seed=3) / 4, name=f"{name}/biased")
    if block.norm == "behind" and block.kind != "matmul":
        gamma = random(count, seed=4, low=0.4, high=1.6)
        gamma[-1] *= -1  # its codes change their sign
        gamma[0] = 0  # as a pruned channel has it
        y = raw.FusedBatchNormV3(
            x=y, scale=gamma, offset=random(count, seed=5) / 4, mean=random(count, seed=6) / 8,
            variance=random(count, seed=7, low=0.5), is_training=False, name=f"{name}/norm",
        )[0]  # fmt: skip
    if block.activation:
        y = getattr(tf.nn, block.activation)(y, name=f"{name}/activation")
    return y


def made(y, block, name, seed=0, channels=C, high=1.9, weights=None):
    """Return a layer of a block with the fake-quant behind it."""
    y = layer(y, block, name, seed, channels, weights)
    low = block.low if block.activation else -1.7
    return rounded(y, low, high, f"{name}/out", args=block.args)


def image(channels=C, low=-1.0, high=1.0):
    """Return an input behind its fake-quant."""
    x = tf.compat.v1.placeholder(tf.float32, (None, *SIZE, channels), name="x")
    return rounded(x, low, high, "x/rounded")


def net(make, outputs=("out",)) -> Graph:
    """Return the graph that a function builds, with the input x."""
    graph = build(make, ("x",), outputs)
    graph.prune()
    return graph


def one_block(block: Block) -> Graph:
    """Return two layers of a block, and a product or a layer of C classes behind them."""

    def make():
        y = image()
        if block.kind == "matmul":
            y = tf.reshape(y, [-1, int(np.prod(SIZE)) * C])
        y = made(y, block, "first", 1)
        y = made(y, replace(block, kind="conv" if block.kind == "strided" else block.kind),
                 "second", 2)  # fmt: skip
        if block.kind != "matmul":
            y = tf.reshape(y, [-1, int(np.prod(y.shape[1:]))])
        last = replace(block, kind="matmul", norm="", activation="", args=False)
        tf.identity(made(y, last, "last", 3, 10, high=1.6), name="out")

    return net(make)


def feeds(count: int = 32) -> dict[str, np.ndarray]:
    """Return images whose values are not those of the input's fake-quant."""
    return {"x": random(count, *SIZE, C, seed=count)}
