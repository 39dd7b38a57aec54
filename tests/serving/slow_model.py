"""A model that computes as long as it is told to."""

from pathlib import Path

LONG = 20_000_000  # minutes


def slow(folder: Path, version: int = 1) -> Path:
    """Write a model that counts to x, one op at a time; return its folder."""
    import tensorflow as tf

    class Slow(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="x")])
        def count(self, x):
            reached = tf.constant(0)
            while reached < x:
                reached += 1
            return {"y": reached}

    model = Slow()
    tf.saved_model.save(model, str(folder / str(version)), signatures=model.count)
    return folder
