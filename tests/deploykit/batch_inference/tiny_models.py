"""A model that is small enough to be computed by hand."""

import numpy as np

from deploykit.transforms.ir.protos import GraphDef

WEIGHTS = np.random.default_rng(7).normal(size=(4, 3)).astype(np.float32)


def tiny_model(batch=None):
    """Return a GraphDef from `x` [rows, 4] to `scores` [rows, 3]."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (batch, 4), "x")
        tf.matmul(x, tf.constant(WEIGHTS), name="scores")
    found: GraphDef = graph.as_graph_def()
    return found


def scores_of(rows):
    """Return what the model answers, computed by NumPy."""
    return rows @ WEIGHTS
