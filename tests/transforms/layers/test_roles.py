"""Generated graphs in which a large constant is read in each role: what is stored in 8 bits."""

import functools
import re
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.constant_readers import Readings, Roles
from deploykit.transforms.runtime.differences import compare
from tests import pairwise
from tests.support import build, run, tf, transform

FORMS = [
    "quantize_weights(minimum_size=16)",
    "quantize_weights(minimum_size=16, per_channel=false)",
]
SEEDS = [0, 1, 2]
WIDE = 1024  # channels of a batch norm
# Each output channel keeps 30 dB for independent inputs of unit variance; a few samples in which
# chance has it otherwise, summed over all channels, stay well above this.
BAR = 25.0


class Maker:
    """Makes what a case needs: inputs, and constants whose names start with the case's."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.feeds: dict[str, np.ndarray] = {}

    def size(self) -> int:
        return int(self.rng.integers(5, 9))

    def fed(self, *shape, whole_below=None):
        """Return an input: normal values, or whole numbers."""
        name = f"{self.name}/x{len(self.feeds)}"
        value = self.rng.normal(size=shape).astype(np.float32)
        if whole_below is not None:
            value = self.rng.integers(0, whole_below, shape, np.int32)
        self.feeds[name] = value
        return tf.compat.v1.placeholder(value.dtype, shape, name=name)

    def held(self, *shape, values=None):
        """Return a constant; what lies along an axis differs in size, though not by much."""
        if values is None:
            values = self.rng.normal(size=shape)
            for axis, size in enumerate(shape):
                along = [size if i == axis else 1 for i in range(len(shape))]
                values *= self.rng.uniform(0.8, 1.25, along)
        return tf.constant(np.asarray(values, np.float32), name=f"{self.name}/w")

    def spread(self, *shape, low=-5.0, high=2.0):
        """Return positive values over many orders of magnitude, as variances are."""
        return 10 ** self.rng.uniform(low, high, shape)


def conv(m):
    return tf.nn.conv2d(m.fed(1, 6, 6, 4), m.held(3, 3, 4, m.size()), 1, "SAME")


def conv3d(m):
    return tf.nn.conv3d(m.fed(1, 4, 4, 4, 3), m.held(2, 2, 2, 3, m.size()), [1] * 5, "SAME")


def any_conv(m):
    w = m.held(3, 3, 4, m.size())
    return tf.raw_ops.Conv(input=m.fed(1, 6, 6, 4), filter=w, strides=[1] * 4, padding="SAME")


def padded_conv(m):
    return tf.raw_ops.FusedPadConv2D(
        input=m.fed(1, 6, 6, 4), paddings=[[0, 0], [1, 1], [1, 1], [0, 0]],
        filter=m.held(3, 3, 4, m.size()), mode="REFLECT", strides=[1] * 4, padding="VALID",
    )  # fmt: skip


def resized_conv(m):
    return tf.raw_ops.FusedResizeAndPadConv2D(
        input=m.fed(1, 6, 6, 4), size=[8, 8], paddings=[[0, 0], [1, 1], [1, 1], [0, 0]],
        filter=m.held(3, 3, 4, m.size()), mode="REFLECT", strides=[1] * 4, padding="VALID",
    )  # fmt: skip


def conv_transpose(m):
    n = m.size()
    return tf.nn.conv2d_transpose(m.fed(1, 4, 4, 5), m.held(3, 3, n, 5), [1, 4, 4, n], 1, "SAME")


def conv3d_transpose(m):
    n = m.size()
    size = [1, 2, 2, 2, n]
    return tf.nn.conv3d_transpose(m.fed(1, 2, 2, 2, 3), m.held(2, 2, 2, n, 3), size, 1, "SAME")


def depthwise(m):
    n = m.size()
    w = m.held(3, 3, n, int(m.rng.integers(1, 3)))
    return tf.nn.depthwise_conv2d(m.fed(1, 6, 6, n), w, [1] * 4, "SAME")


def depthwise_transpose(m):
    n = m.size()
    return tf.nn.depthwise_conv2d_backprop_input(
        [1, 6, 6, n], m.held(3, 3, n, 2), m.fed(1, 6, 6, 2 * n), [1] * 4, "SAME"
    )


def product(m, a: bool, b: bool, first: bool = False, op: str = "MatMul"):
    k, n = m.size(), m.size() + 3
    batch = [] if op in ("MatMul", "SparseMatMul") else [3]
    x, w = [*batch, *((k, 4) if a else (4, k))], [*batch, *((n, k) if b else (k, n))]
    x, w = (m.held(*x), m.fed(*w)) if first else (m.fed(*x), m.held(*w))
    if op == "MatMul":
        return tf.raw_ops.MatMul(a=x, b=w, transpose_a=a, transpose_b=b)
    if op == "SparseMatMul":
        return tf.raw_ops.SparseMatMul(a=x, b=w, transpose_a=a, transpose_b=b)
    types = {"Tout": tf.float32} if op == "BatchMatMulV3" else {}
    return getattr(tf.raw_ops, op)(x=x, y=w, adj_x=a, adj_y=b, **types)


def shared_by_batches(m):
    k = m.size()
    return tf.raw_ops.BatchMatMulV2(x=m.fed(3, 4, k), y=m.held(k, 9))


def einsum(m, equation: str, first: bool = False):
    sizes = {label: m.size() for label in "abcdehlr"}
    x, w = equation.split("->")[0].split(",")
    x, w = ([sizes[i] for i in part.replace("...", "b")] for part in (x, w))
    x, w = (m.held(*x), m.fed(*w)) if first else (m.fed(*x), m.held(*w))
    return tf.raw_ops.Einsum(inputs=[x, w], equation=equation)


def lstm_cell(m):
    zeros, state = tf.zeros([3]), m.fed(2, 3)
    cell = tf.raw_ops.LSTMBlockCell(
        x=m.fed(2, 6), cs_prev=state, h_prev=m.fed(2, 3), w=m.held(9, 12), wci=zeros, wcf=zeros,
        wco=zeros, b=tf.zeros([12]),
    )  # fmt: skip
    return cell.h


def lstm(m, op: str):
    zeros = tf.zeros([3])
    return getattr(tf.raw_ops, op)(
        seq_len_max=tf.constant(4, tf.int64), x=m.fed(4, 2, 6), cs_prev=m.fed(2, 3),
        h_prev=m.fed(2, 3), w=m.held(9, 12), wci=zeros, wcf=zeros, wco=zeros, b=tf.zeros([12]),
    ).h  # fmt: skip


def gru_cell(m):
    return tf.raw_ops.GRUBlockCell(
        x=m.fed(2, 6), h_prev=m.fed(2, 4), w_ru=m.held(10, 8), w_c=m.held(10, 4),
        b_ru=tf.zeros([8]), b_c=tf.zeros([4]),
    ).h  # fmt: skip


@contextmanager
def control_flow(version: int):
    v1 = tf.compat.v1
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        v1.enable_control_flow_v2()


def in_loop(m, version: int):
    n = m.size()
    x, w = m.fed(2, n), m.held(n, n)
    with control_flow(version):
        return tf.compat.v1.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, tf.tanh(y @ w) + x), (tf.constant(0), x)
        )[1]


def in_branch(m, version: int):
    n = m.size()
    x, w = m.fed(2, n), m.held(n, n)
    with control_flow(version):
        return tf.compat.v1.cond(x[0, 0] > 0, lambda: x @ w, lambda: tf.matmul(x, w, False, True))


def in_function(m):
    n = m.size()
    w = m.held(n, n + 2)

    @tf.function
    def inner(x, w):
        return tf.matmul(x, tf.transpose(w)), w

    y, same = inner(m.fed(3, n + 2), w)
    return tf.matmul(y, same)


def moved(m):
    """Read weights through a random chain of ops that move them."""
    shape = (m.size(), m.size(), m.size())
    there = m.rng.normal(size=shape)
    steps = []
    for kind in m.rng.choice(["transpose", "reshape", "expand", "same"], 3):
        if kind == "transpose":
            order = m.rng.permutation(there.ndim)
            steps.append(functools.partial(tf.transpose, perm=np.argsort(order)))
            there = there.transpose(order)
        elif kind == "reshape":
            cut = int(m.rng.integers(1, there.ndim))
            steps.append(functools.partial(tf.reshape, shape=there.shape))
            there = there.reshape(*there.shape[: cut - 1], -1, *there.shape[cut + 1 :])
        elif kind == "expand":
            axis = int(m.rng.integers(0, there.ndim))
            steps.append(functools.partial(tf.squeeze, axis=[axis]))
            there = np.expand_dims(there, axis)
        else:
            steps.append(tf.stop_gradient)
    w = m.held(values=there)
    for step in reversed(steps):
        w = step(w)
    return tf.einsum("abc,bcd->ad", m.fed(2, *shape[:2]), w)


def split(m, axis: int, op: str):
    """Read parts of weights, as a ConvLSTM does with its gates."""
    w = m.held(3, 3, 4, 12)
    if op == "Split":
        parts = tf.split(w, 2, axis)
    else:
        half = [n // 2 if i == axis else n for i, n in enumerate(w.shape)]
        rest = [n // 2 if i == axis else 0 for i, n in enumerate(w.shape)]
        parts = [tf.slice(w, [0] * 4, half), w[tuple(slice(n, None) for n in rest)]]
    x = m.fed(1, 6, 6, 2 if axis == 2 else 4)
    return tf.nn.conv2d(x, parts[0], 1, "SAME") - tf.nn.conv2d(tf.abs(x), parts[1], 1, "SAME")


def in_half(m):
    n = m.size()
    w = tf.cast(m.held(n, 9), tf.bfloat16)
    return tf.cast(tf.matmul(tf.cast(m.fed(4, n), tf.bfloat16), w), tf.float32)


def two_ways(m):
    n = m.size()
    w = m.held(n, n)
    x = m.fed(4, n)
    return tf.matmul(x, w) + tf.matmul(x, w, transpose_b=True)


def tied(m):
    w = m.held(20, 6)
    return tf.matmul(tf.gather(w, m.fed(4, whole_below=20)), w, transpose_b=True)


LAYERS = {
    "conv": conv,
    "conv3d": conv3d,
    "any_conv": any_conv,
    "padded_conv": padded_conv,
    "resized_conv": resized_conv,
    "conv_transpose": conv_transpose,
    "conv3d_transpose": conv3d_transpose,
    "depthwise": depthwise,
    "depthwise_transpose": depthwise_transpose,
    **{
        f"{op}_{a:d}{b:d}{first:d}": functools.partial(product, a=a, b=b, first=first, op=op)
        for op in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul")
        for a in (False, True)
        for b in (False, True)
        for first in (False, True)
    },
    "shared_by_batches": shared_by_batches,
    "einsum_dense": functools.partial(einsum, equation="abc,cd->abd"),
    "einsum_heads": functools.partial(einsum, equation="abc,cde->abde"),
    "einsum_out": functools.partial(einsum, equation="abcd,cde->abe"),
    "einsum_first": functools.partial(einsum, equation="ec,abc->abe", first=True),
    "einsum_dots": functools.partial(einsum, equation="...c,cd->...d"),
    "einsum_experts": functools.partial(einsum, equation="bec,ecd->bed"),
    "einsum_positions": functools.partial(einsum, equation="bhld,lrd->bhlr"),
    "einsum_turned": functools.partial(einsum, equation="abc,dec->adbe"),
    "lstm_cell": lstm_cell,
    "lstm": functools.partial(lstm, op="BlockLSTM"),
    "lstm_v2": functools.partial(lstm, op="BlockLSTMV2"),
    "gru_cell": gru_cell,
    "loop_v1": functools.partial(in_loop, version=1),
    "loop_v2": functools.partial(in_loop, version=2),
    "branch_v1": functools.partial(in_branch, version=1),
    "branch_v2": functools.partial(in_branch, version=2),
    "function": in_function,
    "moved": moved,
    **{
        f"{op}_{axis}": functools.partial(split, axis=axis, op=op)
        for op in ("Split", "Slice")
        for axis in (2, 3)
    },
    "half": in_half,
    "two_ways": two_ways,
    "tied": tied,
}


def gather(m, axis: int, batch_dims: int = 0):
    w = m.held(3, 12, 7) if axis else m.held(12, 7)
    indices = m.fed(*([3] * batch_dims), 4, whole_below=7 if axis == -1 else 12)
    return tf.raw_ops.GatherV2(params=w, indices=indices, axis=axis, batch_dims=batch_dims)


def gather_nd(m):
    return tf.gather_nd(m.held(4, 5, 8), m.fed(6, 2, whole_below=4))


def old_gather(m):
    return tf.raw_ops.Gather(params=m.held(12, 7), indices=m.fed(4, whole_below=12))


def row_sums(m, op: str):
    sizes = {"num_segments": 3} if op.endswith("Segments") else {}
    indices, segments = m.fed(5, whole_below=12), tf.constant([0, 0, 1, 2, 2])
    return getattr(tf.raw_ops, op)(
        data=m.held(12, 7), indices=indices, segment_ids=segments, **sizes
    )


def sparse_product(m, adjoint: bool):
    w = m.held(7, 12) if adjoint else m.held(12, 7)
    return tf.raw_ops.SparseTensorDenseMatMul(
        a_indices=tf.constant([[0, 3], [1, 5]], tf.int64), a_values=m.fed(2),
        a_shape=tf.constant([2, 12], tf.int64), b=w, adjoint_b=adjoint,
    )  # fmt: skip


def one_hot(m, transposed: bool):
    picks = tf.reshape(tf.one_hot(m.fed(2, 2, whole_below=12), 12), [4, 12])
    w = m.held(7, 12) if transposed else m.held(12, 7)
    return tf.matmul(picks, w, transpose_b=transposed)


def one_hot_einsum(m):
    return tf.raw_ops.Einsum(
        inputs=[tf.one_hot(m.fed(2, 2, whole_below=12), 12), m.held(12, 7)], equation="abv,vd->abd"
    )


def listed_table(m):
    """Look up what a loop then reads from a list of tensors."""
    rows = tf.gather(m.held(12, 7), m.fed(4, whole_below=12))
    values = tf.raw_ops.TensorListFromTensor(tensor=rows, element_shape=[7])
    return tf.raw_ops.TensorListStack(
        input_handle=values, element_shape=[7], element_dtype=tf.float32
    )


def looked_up_in_loop(m, version: int, nested: bool = False):
    """Look rows up as a decoder does, and add others to them; the loop is in another one."""
    ids, w = m.fed(4, whole_below=12), m.held(12, 7)

    def step(i, total):
        rows = tf.gather(w, (ids + i) % 12)
        return i + 1, tf.tanh(rows + tf.gather(w, ids)) + total

    def loop(start):
        return tf.compat.v1.while_loop(lambda i, _: i < 3, step, (tf.constant(0), start))[1]

    with control_flow(version):
        if not nested:
            return loop(tf.zeros([4, 7]))
        return tf.compat.v1.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, loop(y)), (tf.constant(0), tf.zeros([4, 7]))
        )[1]


def looked_up_in_branch(m, version: int):
    ids, w = m.fed(4, whole_below=12), m.held(12, 7)
    rows = tf.gather(w, ids)
    with control_flow(version):
        return tf.compat.v1.cond(
            ids[0] > 5, lambda: rows + tf.gather(w, ids[::-1]), lambda: tf.gather(w, ids) * 2.0
        )


def looked_up_in_case(m):
    ids, w = m.fed(4, whole_below=12), m.held(12, 7)
    rows = tf.gather(w, ids)
    branches = [lambda: rows + tf.gather(w, ids[::-1]), lambda: rows, lambda: tf.gather(w, ids)]
    with control_flow(2):
        return tf.switch_case(ids[0] % 3, branches)


def looked_up_in_function(m):
    @tf.function
    def sums(w, ids):
        rows = tf.gather(w, ids)
        return rows, rows + tf.gather(w, ids[::-1])

    @tf.function
    def outer(w, ids):
        rows, both = sums(w, ids)
        return rows + both, sums(w, ids)[0]

    first, second = outer(m.held(12, 7), m.fed(4, whole_below=12))
    return first + second


TABLES = {
    **{
        f"{name}_v{version}": functools.partial(make, version=version)
        for name, make in {
            "in_loop": looked_up_in_loop,
            "in_nested_loop": functools.partial(looked_up_in_loop, nested=True),
            "in_branch": looked_up_in_branch,
        }.items()
        for version in (1, 2)
    },
    "in_case": looked_up_in_case,
    "in_function": looked_up_in_function,
    "gather_0": functools.partial(gather, axis=0),
    "gather_1": functools.partial(gather, axis=1),
    "gather_last": functools.partial(gather, axis=-1),
    "gather_batch": functools.partial(gather, axis=1, batch_dims=1),
    "gather_nd": gather_nd,
    "old_gather": old_gather,
    **{
        f"{kind}{ending}": functools.partial(row_sums, op=f"SparseSegment{kind}{ending}")
        for kind in ("Mean", "SqrtN", "Sum")
        for ending in ("", "WithNumSegments")
    },
    "sparse_product": functools.partial(sparse_product, adjoint=False),
    "sparse_product_adjoint": functools.partial(sparse_product, adjoint=True),
    "listed_table": listed_table,
    "one_hot": functools.partial(one_hot, transposed=False),
    "one_hot_transposed": functools.partial(one_hot, transposed=True),
    "one_hot_einsum": one_hot_einsum,
}


def fused_batch_norm(m, op: str):
    vectors = [m.rng.normal(size=WIDE), m.rng.normal(size=WIDE), m.rng.normal(size=WIDE)]
    scale, offset, mean, variance = (m.held(values=v) for v in (*vectors, m.spread(WIDE)))
    x = m.fed(1, 2, 2, WIDE)
    return getattr(tf.raw_ops, op)(
        x=x, scale=scale, offset=offset, mean=mean, variance=variance, is_training=False
    ).y


def keras_batch_norm(m):
    variance, gamma = m.held(values=m.spread(WIDE)), m.held(WIDE)
    scale = tf.raw_ops.Rsqrt(x=variance + 1e-3) * gamma
    return m.fed(2, WIDE) * scale + (m.held(WIDE) - m.held(WIDE) * scale)


def layer_norm(m):
    x = m.fed(2, WIDE)
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    gamma = m.held(values=m.spread(WIDE, low=-3))
    return tf.nn.batch_normalization(x, mean, variance, m.held(WIDE), gamma, 1e-3)


def prelu(m):
    x = m.fed(2, 6, 6)
    return tf.nn.relu(x) - m.held(6, 6) * tf.nn.relu(-x)


def mask(m):
    hidden = np.triu(np.full((8, 8), -1e9), 1) + m.rng.normal(size=(8, 8))
    return tf.nn.softmax(m.fed(2, 8, 8) + m.held(values=hidden))


def exact(make: Callable) -> Callable:
    """Return a case in which a constant leads to a step of its reader."""
    return lambda m: make(m, m.held(values=m.rng.permutation(64).reshape(8, 8) / 3))


def steep_table(m):
    rows = tf.gather(m.held(values=m.spread(8, 32)), m.fed(3, whole_below=8))
    return m.fed(3, 32) * tf.raw_ops.Rsqrt(x=rows + 1e-3)


def whole_table(m):
    rows = tf.gather(m.held(values=m.rng.integers(0, 5000, (8, 9))), m.fed(3, whole_below=8))
    return tf.cast(tf.cast(tf.reshape(rows, [-1]), tf.int32) % 7, tf.float32)


def dequantize(m):
    codes = tf.cast(tf.reshape(tf.range(64) % 100, [2, 32]), tf.qint8)
    high = m.held(values=m.spread(32))
    return tf.raw_ops.Dequantize(
        input=codes, min_range=-high, max_range=high, mode="SCALED", axis=1
    )


def fake_quant(m):
    high = m.held(values=m.spread(32))
    return tf.quantization.fake_quant_with_min_max_vars_per_channel(m.fed(4, 32), -high, high)


def changing_loop(m):
    """The state of a loop, which starts with a constant, is a factor: of that one time alone."""
    n = m.size()
    with control_flow(2):
        return tf.compat.v1.while_loop(
            lambda i, _: i < 2,
            lambda i, y: (i + 1, tf.matmul(y, y) / 10),
            (tf.constant(0), m.held(n, n)),
        )[1]


def also_added(m):
    w = m.held(6, 6)
    return tf.matmul(m.fed(6, 6), w) + w


def through_an_unknown_shape(m):
    w = tf.reshape(m.held(6, 8), tf.add(m.fed(2, whole_below=1), [8, 6]))
    return tf.matmul(m.fed(2, 8), w)


OTHERS = {
    "fused_batch_norm": functools.partial(fused_batch_norm, op="FusedBatchNorm"),
    "fused_batch_norm_v3": functools.partial(fused_batch_norm, op="FusedBatchNormV3"),
    "keras_batch_norm": keras_batch_norm,
    "layer_norm": layer_norm,
    "prelu": prelu,
    "mask": mask,
    "positions": lambda m: m.fed(2, 6, 8) + m.held(6, 8),
    "bias": lambda m: tf.nn.bias_add(m.fed(2, 32), m.held(32)),
    "scale": lambda m: m.fed(2, 32) * m.held(values=m.spread(32)),
    "einsum_scale": functools.partial(einsum, equation="abc,bc->abc"),
    "einsum_diagonal": functools.partial(einsum, equation="ab,bb->ab"),
    "divisor": lambda m: m.fed(2, 32) / m.held(values=m.spread(32)),
    "comparison": exact(lambda m, w: tf.cast(w > 10.4, tf.float32) * m.fed(8, 8)),
    "threshold": exact(lambda m, w: tf.where(m.fed(8, 8) * 20 > w, 1.0, 0.0)),
    "selected": exact(lambda m, w: tf.where(m.fed(8, 8) > 0, w, 0.0)),
    "best": exact(lambda m, w: tf.gather(m.fed(8, 2), tf.argmax(w / 100 + 50, 1))),
    "limit": exact(lambda m, w: tf.range(0.0, w[2, 3]) + m.fed(1)),
    "rounded": exact(lambda m, w: tf.floor(w) + m.fed(8, 8)),
    "whole": exact(lambda m, w: tf.cast(tf.cast(w, tf.int32) % 3, tf.float32) + m.fed(8, 8)),
    "sorted": lambda m: tf.cast(
        tf.searchsorted(m.held(values=np.sort(m.spread(64))), tf.abs(m.fed(8))), tf.float32
    ),
    "exponent": lambda m: tf.pow(tf.abs(m.fed(32)), m.held(values=m.spread(32, low=-3))),
    "clipped": lambda m: tf.raw_ops.Minimum(x=m.fed(32), y=m.held(values=m.spread(32))),
    "dilation": lambda m: tf.nn.dilation2d(
        m.fed(1, 6, 6, 4), m.held(3, 3, 4), [1] * 4, "SAME", "NHWC", [1] * 4
    ),
    "steep_table": steep_table,
    "whole_table": whole_table,
    "dequantize": dequantize,
    "fake_quant": fake_quant,
    "changing_loop": changing_loop,
    "also_added": also_added,
    "unknown_shape": through_an_unknown_shape,
}


NOT_LINEAR = {"lstm_cell", "lstm", "lstm_v2", "gru_cell", "loop_v1", "loop_v2", "branch_v1",
              "branch_v2"}  # fmt: skip
KINDS = {"layers": LAYERS, "tables": TABLES, "others": OTHERS}


@functools.cache
def net(kind: str, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return one graph of all cases of a kind, each with an output of its name, and what is fed."""
    cases = KINDS[kind]
    makers = [Maker(name, seed) for name in cases]

    def make():
        for maker, case in zip(makers, cases.values(), strict=True):
            tf.identity(case(maker), name=f"{maker.name}/y")

    graph = build(make, [], [f"{name}/y" for name in cases])
    feeds = {name: value for maker in makers for name, value in maker.feeds.items()}
    graph.inputs = tuple(feeds)
    return graph, feeds


def stored(before: Graph, after: Graph) -> dict[str, bool]:
    """Say of each constant of the cases whether it is in 8 bits now."""
    held = [n.name for n in before if n.op == "Const" and re.fullmatch(r"\w+/w(_\d+)?", n.name)]
    assert {name.split("/")[0] for name in held} == {t.split("/")[0] for t in before.outputs}
    return {name: after[name].op != "Const" for name in held}


def below_the_bar(before: Graph, after: Graph, feeds: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the cases whose output is not what it was, with the signal-to-noise ratio in dB."""
    found = compare(run(before, feeds), run(after, feeds))
    names = [tensor.split("/")[0] for tensor in before.outputs]
    clear = {n: -np.inf if d.fault else d.sqnr_db for n, d in zip(names, found, strict=True)}
    return {name: decibels for name, decibels in clear.items() if not decibels >= BAR}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "seed",
    pairwise.drawn("weights_and_tables_alone_are_stored_and_all_outputs_hold", SEEDS, 1, quick=1),
)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_tables_alone_are_stored_and_all_outputs_hold(kind, seed, form):
    before, feeds = net(kind, seed)
    after = transform(before, form)
    wrong = [name for name, done in stored(before, after).items() if done == (kind == "others")]
    assert not wrong
    assert not below_the_bar(before, after, feeds)


@pytest.mark.parametrize("form", FORMS)
def test_outputs_do_not_hold_where_every_role_is_allowed(form, monkeypatch):
    role = Roles.channels
    monkeypatch.setattr(Roles, "channels", lambda *args: role(*args) or ())
    before, feeds = net("others", 0)
    after = transform(before, form)
    assert any(stored(before, after).values())
    low = below_the_bar(before, after, feeds)
    assert {"fused_batch_norm", "fused_batch_norm_v3", "keras_batch_norm", "divisor"} <= set(low)


def test_a_role_that_is_not_known_is_seen(monkeypatch):
    monkeypatch.setattr(Roles, "channels", lambda *args: None)
    before, _ = net("layers", 0)
    assert not any(stored(before, transform(before, FORMS[0])).values())


def parts(rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[tuple]:
    """Return two channels along these axes, and two elements of the first one, as indices."""
    first, second = ([int(rng.integers(n)) for n in shape] for _ in range(2))
    other = [first[i] if i in axes else (first[i] + 1) % n for i, n in enumerate(shape)]
    changed = rng.choice([i for i in axes if shape[i] > 1])
    second[changed] = (first[changed] + 1) % shape[changed]
    one, two = ([v if i in axes else slice(None) for i, v in enumerate(v)] for v in (first, second))
    return [tuple(one), tuple(two), tuple(first), tuple(other)]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
def test_channels_are_what_makes_outputs_of_their_own(seed):
    """Two channels reach no output in common; two elements of a channel reach one."""
    before, feeds = net("layers", seed)
    graph, rng, values = before.copy(), np.random.default_rng(seed), []
    readings = Readings(before)
    for name in stored(before, before):
        node = before[name]
        found = readings.of(node)
        if len(found) == 1 and not found[0].is_moved and name.split("/")[0] not in NOT_LINEAR:
            axes = found[0].channels(node.shape)
            values.append((name, node.shape, parts(rng, node.shape, axes)))
            attrs = {"dtype": DType("float32"), "shape": node.shape}
            graph.replace(node, Node(name, "Placeholder").with_attrs(**attrs))
    assert len(values) >= 50
    graph.inputs = (*graph.inputs, *(name for name, _, _ in values))
    outputs = []
    for place in range(4):
        for name, shape, indices in values:
            feeds = {**feeds, name: np.zeros(shape, np.float32)}
            feeds[name][indices[place]] = 1
        outputs.append(dict(zip(graph.outputs, run(graph, feeds), strict=True)))
    for name, _, _ in values:
        one, two, element, other = (np.abs(found[f"{name.split('/')[0]}/y"]) for found in outputs)
        assert one.any(), name
        assert two.any(), name
        assert not (one * two).any(), name
        assert (element * other).any(), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_allowed", [False, True])
def test_the_batch_norm_of_old_files_keeps_its_vectors(form, is_allowed, monkeypatch):
    """TensorFlow takes this op in graphs of old producers alone, so it has a graph of its own."""
    maker = Maker("old", 0)
    make = functools.partial(fused_batch_norm, op="FusedBatchNorm")
    before = build(lambda: tf.identity(make(maker), name="old/y"), maker.feeds, ["old/y"])
    (fused,) = (node for node in before if node.op == "FusedBatchNorm")
    x, gamma, beta, mean, variance = fused.inputs
    attrs = {"T": DType("float32"), "variance_epsilon": 1e-3, "scale_after_normalization": True}
    node = Node(fused.name, "BatchNormWithGlobalNormalization", (x, mean, variance, beta, gamma))
    before.replace(fused, node.with_attrs(**attrs))
    before.versions.producer = 8
    if is_allowed:
        monkeypatch.setattr(Roles, "channels", lambda *_: ())
    after = transform(before, form)
    assert any(stored(before, after).values()) == is_allowed
    assert bool(below_the_bar(before, after, maker.feeds)) == is_allowed
