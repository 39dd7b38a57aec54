"""What TensorFlow itself says of a graph; this is done in a child process."""


def refusal(content: bytes) -> str | None:
    """Return why TensorFlow does not import a graph; None: it does."""
    import tensorflow as tf

    try:
        graph = tf.compat.v1.GraphDef.FromString(content)
        with tf.Graph().as_default():
            tf.import_graph_def(graph, name="")
    except Exception as error:  # TensorFlow raises whatever it likes
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None
