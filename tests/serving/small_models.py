"""SavedModels for tests: y = x / 2 + n to predict, classify and regress, as upstream tests have."""

from pathlib import Path


def half_plus(folder: Path, add: float, version: int = 123) -> Path:
    """Write a model with the signatures for predict, classify and regress; return its folder.

    The version directory has leading zeros, which count for nothing.
    """
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        texts = tf1.placeholder(tf.string, [None], name="tf_example")
        parsed = tf.io.parse_example(texts, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        x = tf1.placeholder_with_default(parsed["x"], [None, 1], name="x")
        half, more = tf1.Variable(0.5), tf1.Variable(float(add))
        y = tf.add(half * x, more, name="y")
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(folder / f"{version:08}"))
        examples, number, answer = map(tf1.saved_model.build_tensor_info, (texts, x, y))
        signature = tf1.saved_model.build_signature_def
        where = "tensorflow/serving/"
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": signature({"x": number}, {"y": answer}, f"{where}predict"),
                "classify_x_to_y": signature(
                    {"inputs": examples}, {"scores": answer}, f"{where}classify"
                ),
                "regress_x_to_y": signature(
                    {"inputs": examples}, {"outputs": answer}, f"{where}regress"
                ),
            },
        )
        builder.save()
    return folder
