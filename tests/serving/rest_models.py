"""A small SavedModel for tests of the REST API: each signature is there for one kind of value."""

from pathlib import Path


def write(folder: Path, version: int = 123, add: float = 2.0) -> Path:
    """Write `folder/00000123` with signatures of numbers, texts and several outputs."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        examples = tf1.placeholder(tf.string, name="tf_example")
        features = {
            "x": tf.io.FixedLenFeature([1], tf.float32),
            "more": tf.io.FixedLenFeature([1], tf.int64, default_value=[0]),
            "name": tf.io.FixedLenFeature([1], tf.string, default_value=[b""]),
        }
        parsed = tf.io.parse_example(tf.reshape(examples, [-1]), features)
        parsed_y = parsed["x"] * 0.5 + add + tf.cast(parsed["more"], tf.float32)
        x = tf1.placeholder(tf.float32, name="x")
        number = tf1.placeholder(tf.int32, [None], name="number")
        word = tf1.placeholder(tf.string, [None], name="word")
        slow = tf1.placeholder(tf.int64, [], name="rounds")
        grown = tf.while_loop(
            lambda n, v: n < slow,
            lambda n, v: (n + 1, tf.sin(v) + 1.0),
            [tf.constant(0, tf.int64), tf.ones([1000])],
        )[1]
        same = {
            name: tf1.placeholder(dtype, name=f"{name}_in")
            for name, dtype in {
                "float64": tf.float64, "float16": tf.float16, "bfloat16": tf.bfloat16,
                "uint8": tf.uint8, "int64": tf.int64, "uint64": tf.uint64, "bool": tf.bool,
                "complex64": tf.complex64,
            }.items()
        }  # fmt: skip
        info = tf1.saved_model.build_tensor_info
        make = tf1.saved_model.build_signature_def

        def signature(method, inputs, outputs):
            infos = [{a: info(t) for a, t in each.items()} for each in (inputs, outputs)]
            return make(*infos, f"tensorflow/serving/{method}")

        pair = {"number": number, "word": word}
        twice, said_bytes = {"twice": number * 2}, {"word_bytes": tf.identity(word)}
        more = {"said": tf.strings.join([word, "!"]), "total": tf.reduce_sum(number)}
        named = {"scores": parsed_y * 0.1, "classes": parsed["name"]}
        signatures = {
            "serving_default": signature(
                "predict", {"x": x}, {"y": tf.add(x * 0.5, add, name="y")}
            ),
            "classify_x_to_y": signature("classify", {"inputs": examples}, {"scores": parsed_y}),
            "classify_names": signature("classify", {"inputs": examples}, named),
            "regress_x_to_y": signature("regress", {"inputs": examples}, {"outputs": parsed_y}),
            "pairs": signature("predict", pair, twice | said_bytes),
            "both": signature("predict", pair, twice | said_bytes | more),
            "slow": signature("predict", {"rounds": slow}, {"y": grown}),
            "divide": signature("predict", {"x": x}, {"y": 1.0 / x}),
        }
        for name, tensor in same.items():
            signatures[name] = signature("predict", {"x": tensor}, {"y": tf.identity(tensor)})
        builder = tf1.saved_model.Builder(str(folder / f"{version:08}"))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return folder
