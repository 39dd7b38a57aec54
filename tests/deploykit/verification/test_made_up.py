"""Every kind of input: what is made up for it runs in TensorFlow, and answers differ."""

from functools import partial

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.verification.synthetic.sample_inputs import BATCH, made_up_feeds, made_up_shapes
from deploykit.verification.verify import verify
from tests.support import Containing, building, raises, random, run, showing, tf

RANGE = (-1.0, 1.0)
ANY = "any"


def placeholder(dtype="float32", shape=ANY, name="x"):
    shape = None if shape == ANY else shape
    return tf.compat.v1.placeholder(tf.as_dtype(dtype), shape, name=name)


def conv(x, *kernel):
    return tf.nn.conv2d(x, random(*kernel), 1, "SAME")


# ------------------------------------------------------------------------------- sizes


def conv_after_resize():
    x = placeholder("uint8")
    x = tf.raw_ops.ResizeBilinear(images=tf.cast(x, tf.float32), size=[8, 8])
    return conv(x, 3, 3, 3, 2)


def batch_norm_any():
    ones = np.ones(7, np.float32)
    return tf.raw_ops.FusedBatchNormV3(
        x=placeholder(), scale=ones, offset=ones, mean=ones, variance=ones, is_training=False
    )[0]


def reshape_open_square():
    x = tf.reshape(placeholder(shape=[None, None, None, 1]), [-1, 784])
    return tf.matmul(x, random(784, 2))


def positions():
    ids = placeholder("int32", [None, None])
    return tf.gather(random(30, 4), ids) + random(11, 4, seed=1)


def two_that_meet():
    x, y = placeholder(shape=[None, None]), placeholder(shape=[None, None], name="y")
    return tf.matmul(tf.concat([x, x * y], 1), random(14, 2))


def three_concatenated():
    parts = [placeholder(shape=shape, name=name) for name, shape in
             (("x", [3, None, 2]), ("y", [None, 8, 2]), ("z", ANY))]  # fmt: skip
    return tf.concat(parts, -1) + 1.0


# ------------------------------------------------------------------------------- numbers


def typed(dtype):
    x = placeholder(dtype, [None, 5])
    return tf.cast(tf.abs(x) if dtype.startswith("complex") else x, tf.float32)


def quantized(dtype):
    return tf.raw_ops.Dequantize(input=placeholder(dtype, [None, 5]), min_range=-1.0,
                                 max_range=1.0)  # fmt: skip


def ids(dtype="int64", rows=7):
    x = tf.cast(placeholder(dtype, [None, 6]), tf.int32)
    return tf.gather(random(rows, 3), tf.reshape(tf.expand_dims(x, 1), [-1]))


def ids_of_two_tables():
    x = placeholder("int32", [None, 6])
    return tf.gather(random(9, 3), x) + tf.gather(random(4, 3), x)


def classes():
    logits = tf.matmul(tf.one_hot(placeholder("int32", [None]), 10), random(10, 4))
    labels = placeholder("int64", [None], "labels")
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def lengths():
    mask = tf.sequence_mask(placeholder("int32", [None]), 12)
    return tf.cast(mask, tf.float32)


def reversed_lengths():
    x, lengths = placeholder(shape=[None, 5, 2]), placeholder("int32", [None], "n")
    return tf.raw_ops.ReverseSequence(input=x, seq_lengths=lengths, seq_dim=1, batch_dim=0)


def size_that_is_fed():
    x = placeholder(shape=[None, None, None, 3])
    return tf.image.resize(x, placeholder("int32", [2], "size"))


def sparse():
    parts = (placeholder("int64", [None, 2]), placeholder(shape=[None], name="v"),
             placeholder("int64", [2], "s"))  # fmt: skip
    return tf.sparse.to_dense(tf.sparse.SparseTensor(*parts))


def batch_that_is_fed():
    x, batch = placeholder(shape=[None, 6]), placeholder("int32", [], "batch")
    state = tf.zeros([batch, 2])
    return tf.concat([tf.reshape(x, [batch, -1]), state], 1)


def lengths_in_a_loop(version):
    (tf.compat.v1.enable_control_flow_v2 if version == 2
     else tf.compat.v1.disable_control_flow_v2)()  # fmt: skip
    lengths = placeholder("int32", [None])
    sums = tf.while_loop(
        lambda i, s: i < 5,
        lambda i, s: (i + 1, s + tf.cast(i < lengths, tf.float32)),
        (0, tf.zeros_like(lengths, tf.float32)),
    )
    tf.compat.v1.disable_control_flow_v2()
    return sums[1]


def rate_with_default():
    keep = tf.compat.v1.placeholder_with_default(np.float32(1), [], name="x")
    return tf.sqrt(keep) * placeholder(shape=[None, 3], name="y")


# ------------------------------------------------------------------------------- strings


def table(keys, values, texts):
    raw = tf.raw_ops
    handle = raw.HashTableV2(key_dtype=tf.as_dtype(keys.dtype), value_dtype=tf.float32,
                             shared_name="t", name="table")  # fmt: skip
    raw.LookupTableImportV2(table_handle=handle, keys=keys, values=values)
    return raw.LookupTableFindV2(table_handle=handle, keys=texts, default_value=np.float32(-9))


def words_compared():
    x = placeholder("string", [None, 1])
    return tf.cast(tf.equal(x, np.array(["red", "green"])), tf.float32)


def words_cut():
    x = tf.raw_ops.StringSplitV2(input=tf.strings.lower(placeholder("string", [None])), sep="")
    return tf.strings.to_hash_bucket_fast(x.values, 99)


def raw_bytes():
    x = tf.io.decode_raw(placeholder("string", [None]), tf.uint8)
    return tf.cast(tf.reshape(x, [-1, 6, 4]), tf.float32)


def zipped_raw():
    x = tf.io.decode_compressed(placeholder("string", [None]), "ZLIB")
    return tf.io.decode_raw(x, tf.int16)


def picture(op, **attrs):
    x = getattr(tf.raw_ops, op)(contents=placeholder("string"), **attrs)
    return tf.cast(x, tf.float32) / 255


def pictures_in_a_loop(version):
    def decoded(content):
        return tf.image.resize(tf.image.decode_jpeg(content, channels=3), [8, 8])

    if version == 1:
        tf.compat.v1.disable_control_flow_v2()
    else:
        tf.compat.v1.enable_control_flow_v2()
    try:
        return tf.map_fn(decoded, placeholder("string", [None]), fn_output_signature=tf.float32)
    finally:
        tf.compat.v1.disable_control_flow_v2()


def examples_any():
    features = {"x": tf.io.FixedLenFeature([3], tf.float32)}
    return tf.io.parse_example(placeholder("string"), features)["x"]


def csv():
    x, i, w = tf.io.decode_csv(placeholder("string", [None]), [[0.0], [0], [""]])
    found = tf.gather(random(3, 1), i)[:, 0] + x
    return found + tf.cast(tf.strings.length(w), tf.float32)


def examples(op):
    v1 = tf.io
    features = {
        "x": v1.FixedLenFeature([3], tf.float32),
        "id": v1.FixedLenFeature([], tf.int64),
        "word": v1.FixedLenFeature([1], tf.string),
        "many": v1.VarLenFeature(tf.int64),
    }
    if op == "single":
        found = v1.parse_single_example(placeholder("string", []), features)
    else:
        found = v1.parse_example(placeholder("string", [None]), features)
    known = table(np.array([b"in", b"out"]), np.float32([1, 2]), found["word"])
    row = tf.gather(random(5, 3), found["id"])
    more = tf.reduce_sum(tf.gather(random(4), found["many"].values))
    return found["x"] + row + known + more


def pictures_in_an_example():
    found = tf.io.parse_single_example(
        placeholder("string", []), {"image": tf.io.FixedLenFeature([], tf.string)}
    )
    return tf.cast(tf.image.decode_jpeg(found["image"]), tf.float32)


def numbers_in_texts(kind, dtype="float32"):
    """Return a graph that makes numbers of texts, behind ops that cut or change these."""
    x = placeholder("string", [None])
    texts = {
        "cut": lambda: tf.strings.split(x, ",").values,
        "cut at spaces": lambda: tf.strings.split(x).values,
        "cut, dense": lambda: tf.strings.split(x, ";").to_tensor("0"),
        "cut in v1": lambda: tf.compat.v1.string_split(x, ",").values,
        "characters": lambda: tf.strings.bytes_split(x).values,
        "replaced": lambda: tf.strings.regex_replace(x, "[^0-9.-]", ""),
        "stripped": lambda: tf.strings.strip(tf.strings.lower(x)),
        "substring": lambda: tf.strings.substr(x, 1, 3),
        "joined": lambda: tf.strings.join([x, placeholder("string", [None], "y")], "."),
        "if empty": lambda: tf.where(tf.equal(x, ""), tf.fill(tf.shape(x), "0"), x),
    }[kind]()
    number = tf.strings.to_number(texts, tf.as_dtype(dtype))
    return tf.gather(random(7, 2), number) if dtype == "int64" else number


def columns_in_a_text():
    x = tf.strings.to_number(tf.strings.split(placeholder("string", [None]), ",").values)
    return tf.matmul(tf.reshape(x, [-1, 5]), random(5, 3))


def images_by_their_kind():
    x = placeholder("string", [])
    return tf.cast(tf.image.decode_image(tf.io.decode_base64(x), channels=3), tf.float32)


def sparse_kind(kind, shape=None):
    """Return a graph that is fed with a sparse tensor in three parts."""
    x = tf.compat.v1.sparse_placeholder(tf.float32, shape, name="x")
    other = tf.compat.v1.sparse_placeholder(tf.float32, shape, name="y")
    return {
        "dense": lambda: tf.sparse.to_dense(x),
        "product": lambda: tf.sparse.sparse_dense_matmul(x, random(9, 2)),
        "narrow": lambda: tf.sparse.sparse_dense_matmul(x, random(2, 3)),
        "dense product": lambda: tf.matmul(tf.sparse.to_dense(x), random(7, 2)),
        "sum": lambda: tf.sparse.to_dense(tf.sparse.add(x, other)),
        "concatenated": lambda: tf.sparse.to_dense(tf.sparse.concat(1, [x, other])),
        "reshaped": lambda: tf.sparse.to_dense(tf.sparse.reshape(x, [-1])),
        "filled": lambda: tf.sparse.to_dense(tf.sparse.fill_empty_rows(x, 0.5)[0]),
    }[kind]()


def ragged(kind):
    values, splits = placeholder(shape=[None]), placeholder("int64", [None], "splits")
    rows = tf.RaggedTensor.from_row_splits(values, splits, validate=kind == "checked")
    return tf.reduce_sum(rows, 1) if kind == "sum" else rows.to_tensor()


LONGER = (conv_after_resize, batch_norm_any, reshape_open_square, positions,
          two_that_meet, three_concatenated, ids_of_two_tables, classes, lengths,
          reversed_lengths, size_that_is_fed, batch_that_is_fed, sparse,
          rate_with_default, words_compared, words_cut, raw_bytes, zipped_raw, csv,
          examples_any, pictures_in_an_example, columns_in_a_text,
          images_by_their_kind)  # fmt: skip
TYPES = ("float16", "bfloat16", "float64", "complex64", "complex128", "int8",
         "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")  # fmt: skip
QUANTIZED = ("quint8", "qint8", "quint16", "qint16", "qint32")  # fmt: skip
TEXTS = ("cut", "cut at spaces", "cut, dense", "cut in v1", "characters", "replaced", "stripped",
         "substring", "joined", "if empty")  # fmt: skip
SPARSE = ("dense", "product", "narrow", "dense product", "sum", "concatenated", "reshaped",
          "filled")  # fmt: skip
KINDS = {
    "conv_any": lambda: conv(placeholder(), 3, 3, 5, 2),
    "conv_open_channels": lambda: conv(placeholder(shape=[None, None, None, None]), 3, 3, 5, 2),
    "conv_after_transpose": lambda: conv(tf.transpose(placeholder(), [0, 2, 3, 1]), 3, 3, 4, 2),
    "depthwise_after_normalising": lambda: tf.nn.depthwise_conv2d(
        (placeholder() - 0.5) * 2.0, random(3, 3, 6, 2), [1, 1, 1, 1], "SAME"
    ),
    "transposed_conv": lambda: tf.nn.conv2d_transpose(
        placeholder(), random(3, 3, 2, 5), [4, 96, 96, 2], 1
    ),
    "conv3d": lambda: tf.nn.conv3d(
        placeholder(shape=[1, 8, 8, 8, None]), random(2, 2, 2, 3, 2), [1, 1, 1, 1, 1], "SAME"
    ),
    "matmul_any": lambda: tf.matmul(tf.nn.relu(placeholder()), random(7, 3)),
    "matmul_transposed": lambda: tf.matmul(
        placeholder(shape=[None, None]), random(3, 7), transpose_b=True
    ),
    "matmul_of_stored_half": lambda: tf.matmul(
        placeholder(), tf.cast(random(7, 3).astype(np.float16), tf.float32)
    ),
    "bias_any": lambda: tf.raw_ops.BiasAdd(value=placeholder(), bias=random(9)),
    "vector_any": lambda: placeholder() * random(9),
    "reshape_any": lambda: tf.matmul(tf.reshape(placeholder(), [-1, 12]), random(12, 2)),
    "picked_any": lambda: tf.reduce_sum(placeholder()[:, 2, 1:], axis=1),
    "unpacked_any": lambda: tf.add_n(tf.unstack(placeholder(), 3, axis=1)),
    "softmax_any": lambda: tf.nn.softmax(placeholder() * 3.0),
    "one_number": lambda: placeholder() * 2.0,
    "ids_on_another_axis": lambda: tf.gather(random(40, 3), placeholder("int32", [None]), axis=1),
    "ids_with_offsets": lambda: tf.gather(
        random(12, 3), placeholder("int32", [None, 3]) + np.array([0, 3, 7], np.int32)
    ),
    "ids_in_a_picture": lambda: tf.gather_nd(random(5, 6, 3), placeholder("int64", [None, 2])),
    "ids_of_what_is_fed": lambda: tf.gather(
        placeholder(shape=[None, 5]), placeholder("int32", [None], "i"), axis=1
    ),
    "shape_that_is_fed": lambda: (
        tf.reshape(placeholder(shape=[None, 6]), placeholder("int32", [2], "shape")) * 1.0
    ),
    "slice_that_is_fed": lambda: (
        tf.slice(random(8, 3), placeholder("int32", [2], "b"), placeholder("int32", [2]))
        + placeholder(shape=[None, 1], name="y")
    ),
    "segments": lambda: tf.math.segment_sum(
        placeholder(shape=[None, 3]), placeholder("int32", [None], "s")
    ),
    "divided": lambda: tf.cast(np.int32(1000) // placeholder("int32", [None]), tf.float32),
    "switch": lambda: tf.where(
        placeholder("bool", [None, 4]), placeholder(shape=[None, 4], name="y"), 0.0
    ),
    "words": lambda: tf.strings.to_hash_bucket_fast(placeholder("string", [None]), 1000),
    "words_any": lambda: tf.strings.length(placeholder("string")),
    "digits": lambda: tf.strings.to_number(placeholder("string", [None, 3])),
    "base64_of_png": lambda: tf.image.decode_png(tf.io.decode_base64(placeholder("string", []))),
    "sound": lambda: tf.audio.decode_wav(placeholder("string", []), 1, 800).audio,
    "words_of_a_table": lambda: table(
        np.array([b"up", b"down", b"left"]), np.float32([1, 2, 3]), placeholder("string", [None, 4])
    ),
    "numbers_of_a_table": lambda: table(
        np.int64([500, 900, 7]), np.float32([1, 2, 3]), placeholder("int64", [None, 4])
    ),
    **{make.__name__: make for make in LONGER},
    **{dtype: partial(typed, dtype) for dtype in TYPES},
    **{dtype: partial(quantized, dtype) for dtype in QUANTIZED},
    "ids": ids,
    "ids_int32": partial(ids, "int32", 2),
    "ids_float32": partial(ids, "float32", 50),
    "lengths_in_a_loop_of_v1": partial(lengths_in_a_loop, 1),
    "lengths_in_a_loop_of_v2": partial(lengths_in_a_loop, 2),
    **{op: partial(picture, op) for op in ("DecodeJpeg", "DecodeGif", "DecodeBmp", "DecodeImage")},
    "DecodePng": partial(picture, "DecodePng", channels=3),
    "pictures_in_a_loop_of_v1": partial(pictures_in_a_loop, 1),
    "pictures_in_a_loop_of_v2": partial(pictures_in_a_loop, 2),
    "examples_many": partial(examples, "many"),
    "examples_single": partial(examples, "single"),
    **{f"texts, {kind}": partial(numbers_in_texts, kind) for kind in TEXTS},
    "int64 of texts, cut": partial(numbers_in_texts, "cut", "int64"),
    "int64 of texts, stripped": partial(numbers_in_texts, "stripped", "int64"),
    **{f"sparse, {kind}": partial(sparse_kind, kind) for kind in SPARSE},
    "sparse, open": partial(sparse_kind, "dense", [None, None]),
    "sparse, product of 9": partial(sparse_kind, "product", [None, 9]),
    **{f"ragged, {kind}": partial(ragged, kind) for kind in ("checked", "dense", "sum")},
}
FILLS_A_TABLE = ("examples_many", "examples_single", "words_of_a_table", "numbers_of_a_table")


def built(make) -> Graph:
    """Return the graph with the placeholders as inputs, in their order."""

    with building((), ["out"]) as graph:
        tf.identity(make(), name="out")
    graph.inputs = [n.name for n in graph if n.op.startswith("Placeholder")]
    return graph


def answers(graph: Graph, feeds) -> np.ndarray:
    """Return what a graph answers to all feeds together; a table is filled first."""
    from deploykit.transforms.runtime.session import Session

    session = Session(b"".join(graph.serialized()))
    filling = [n.name for n in graph if n.op == "LookupTableImportV2"]
    if filling:
        session._session.run([session.graph.get_operation_by_name(name) for name in filling])
    return np.concatenate([np.ravel(session.run(["out"], feed)[0]) for feed in feeds])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_up_runs(kind):
    graph = built(KINDS[kind])
    feeds, reason = made_up_feeds(graph, RANGE)
    assert not reason
    found = answers(graph, feeds).astype(np.float64)
    assert np.isfinite(found).all()
    assert len(np.unique(found)) > 1
    if kind in FILLS_A_TABLE:
        assert found.min() > -8  # every key is in the table
    again, _ = made_up_feeds(graph, RANGE)
    for feed, same in zip(feeds, again, strict=True):
        for name, array in feed.items():
            np.testing.assert_array_equal(array, same[name])


def test_what_cannot_be_made_up_is_said():
    for type_ in ("resource", "variant"):
        node = Node("x", "Placeholder").with_attrs(dtype=DType(type_), shape=())
        found = made_up_feeds(Graph([node], ["x"], ["x"]), RANGE)
        assert found == ([], showing("dtype-not-generated", name=Containing("x"), dtype=type_))


@pytest.mark.parametrize(("batch", "count"), [(None, 1), (1, 4), (2, 2), (3, 2), (4, 1), (9, 1)])
def test_there_are_four_samples_or_more_and_they_differ(batch, count):
    graph = built(lambda: placeholder(shape=[batch, 3]) * 2.0)
    feeds, _ = made_up_feeds(graph, RANGE)
    assert [feed["x"].shape for feed in feeds] == [(batch or BATCH, 3)] * count
    samples = np.concatenate([feed["x"] for feed in feeds])
    assert len(np.unique(samples, axis=0)) == len(samples) >= BATCH


def test_shapes_that_are_asked_for():
    graph = built(KINDS["conv_any"])
    feeds, _ = made_up_feeds(graph, RANGE, {"x": (1, 16, 8, 5)})
    assert [feed["x"].shape for feed in feeds] == [(1, 16, 8, 5)] * 4
    with raises(GraphError, "unknown-name", kind="input", name="y", known=["x"]):
        made_up_feeds(graph, RANGE, {"y": (1,)})
    with raises(GraphError, "input-size-fixed", shape="1,8,8,8,?", got="2,8,8,8,3"):
        made_up_feeds(built(KINDS["conv3d"]), RANGE, {"x": (2, 8, 8, 8, 3)})


def test_shapes_of_the_second_graph():
    unknown = built(lambda: placeholder() * 1.0)
    named = built(lambda: placeholder(shape=[None, 7], name="renamed") * 1.0)
    assert made_up_shapes(unknown, {}) == {"x": ()}
    assert made_up_shapes(unknown, {}, named) == {"x": (BATCH, 7)}
    assert made_up_shapes(named, {}, unknown) == {"renamed": (BATCH, 7)}
    assert made_up_shapes(unknown, {}, built(KINDS["matmul_any"])) == {"x": (BATCH, 7)}


def test_a_comparison_without_any_shape(in_process):
    graph, other = built(KINDS["matmul_any"]), built(KINDS["matmul_any"])
    assert verify(graph, other).passed
    constant = next(n for n in other if n.op == "Const")
    other.replace(constant, constant.with_value(constant.value * 1.01))
    assert not verify(graph, other).passed
    assert verify(graph, graph, shapes={"x": (2, 7)}).passed


def test_every_sample_of_a_fixed_batch_is_compared(in_process):
    """The third of four feeds alone tells these two apart."""
    graph = built(lambda: placeholder(shape=[1]) * 1.0)
    feeds, _ = made_up_feeds(graph, RANGE)
    values = [feed["x"].item() for feed in feeds]
    assert len(values) == BATCH
    assert run(graph, feeds[2]) == [np.float32(values[2])]

    def off_at_the_third():
        x = placeholder(shape=[1])
        return x * tf.where(tf.equal(x, np.float32(values[2])), 2.0, 1.0)

    assert not verify(graph, built(off_at_the_third)).passed


@pytest.mark.sampled
def test_a_long_chain_is_walked():
    nodes = [Node("x", "Placeholder").with_attrs(dtype=DType("int32"))]
    nodes += [
        Node(f"n{i}", "Identity", (f"n{i - 1}" if i else "x",)).with_attrs(T=DType("int32"))
        for i in range(20000)
    ]
    table, axis = Node.constant("t", random(3, 2)), Node.constant("a", np.int32(0))
    nodes += [table, axis, Node("out", "GatherV2", ("t", "n19999", "a"))]
    feeds, _ = made_up_feeds(Graph(nodes, ["x"], ["out"]), RANGE, {"x": (1000,)})
    assert set(feeds[0]["x"].tolist()) == {0, 1, 2}
