"""Small models that read variables inside loops and branches, from Keras, TensorFlow 2 and 1."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 3
Built = tuple[Path, np.ndarray, np.ndarray]
"""The folder of a SavedModel, an input of it, and its output."""


def keras_models() -> dict[str, Callable[[Path], Built]]:
    """Return what writes a Keras model by name; each has a loop or branch that reads variables."""
    import keras
    from keras import layers

    steps = (5, 4)
    found = {
        "lstm": (steps, lambda: [layers.LSTM(6, return_sequences=True), layers.LSTM(3)]),
        "gru": (steps, lambda: [layers.GRU(6), layers.Dense(2)]),
        "gru_before": (steps, lambda: [layers.GRU(6, reset_after=False)]),
        "simple_rnn": (steps, lambda: [layers.SimpleRNN(6)]),
        "bidirectional": (steps, lambda: [layers.Bidirectional(layers.LSTM(4))]),
        "stacked_cells": (
            steps, lambda: [layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)])]
        ),
        "masked": (steps, lambda: [layers.Masking(), layers.LSTM(4), layers.Dense(2)]),
        "conv_lstm": ((4, 6, 6, 2), lambda: [layers.ConvLSTM2D(3, 3), layers.Flatten()]),
    }  # fmt: skip

    def writer(shape: tuple[int, ...], parts: Callable[[], list[Any]]) -> Callable[[Path], Built]:
        def write(folder: Path) -> Built:
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input(shape, name="x"), *parts()])
            for weight in model.weights:  # biases that start as zeros would hide a wrong read
                weight.assign(np.random.default_rng(5).normal(0, 0.4, weight.shape))
            values = _values(ROWS, *shape)
            model.export(folder, verbose=False)
            return folder, values, np.asarray(model(values))

        return write

    return {f"keras_{name}": writer(shape, parts) for name, (shape, parts) in found.items()}


def tf2_models() -> dict[str, Callable[[Path], Built]]:
    """Return what writes a `tf.Module` by name."""
    import tensorflow as tf

    class Weights(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.square = tf.Variable(_values(4, 4), name="square")
            self.wide = tf.Variable(_values(4, 6), name="wide")
            self.bias = tf.Variable(_values(4), name="bias")

    def map_fn(w: Any, x: Any) -> Any:
        return tf.map_fn(lambda row: tf.linalg.matvec(w.square, row) + w.bias, x)

    def scan(w: Any, x: Any) -> Any:
        return tf.scan(lambda s, row: tf.tanh(tf.linalg.matvec(w.square, s) + row), x, w.bias)

    def foldl_of_rows(w: Any, x: Any) -> Any:
        return x + tf.foldl(lambda total, row: total + row * w.bias, w.square, w.bias)

    def while_loop(w: Any, x: Any) -> Any:
        return tf.while_loop(
            lambda n, _: n < tf.shape(w.wide)[1] - 2,
            lambda n, value: (n + 1, tf.tanh(value @ w.square)),
            (0, x),
        )[1]

    def cond(w: Any, x: Any) -> Any:
        return tf.cond(
            tf.reduce_sum(x) > 0, lambda: x @ w.square + w.bias, lambda: x * w.bias - 1.0
        )

    def switch_case(w: Any, x: Any) -> Any:
        branches = [lambda: x @ w.square, lambda: x + w.bias, lambda: x * w.bias]
        return tf.switch_case(tf.shape(x)[0] % 3, branches)

    def gather_in_loop(w: Any, x: Any) -> Any:
        def step(n: Any, value: Any) -> Any:
            rows = tf.gather(w.square, [n, (n + 1) % 4]), tf.gather_nd(w.bias, [[n]])
            return n + 1, tf.tanh(value + tf.reduce_sum(rows[0], 0) * rows[1])

        return tf.while_loop(lambda n, _: n < 4, step, (0, x))[1]

    def cond_in_loop(w: Any, x: Any) -> Any:
        def step(n: Any, value: Any) -> Any:
            return n + 1, tf.cond(n % 2 == 0, lambda: value @ w.square, lambda: value + w.bias)

        return tf.while_loop(lambda n, _: n < 3, step, (0, x))[1]

    def loop_in_loop(w: Any, x: Any) -> Any:
        def inner(value: Any) -> Any:
            return tf.while_loop(
                lambda n, _: n < 2, lambda n, v: (n + 1, tf.tanh(v @ w.square)), (0, value)
            )[1]

        return tf.while_loop(lambda n, _: n < 2, lambda n, v: (n + 1, inner(v)), (0, x))[1]

    @tf.function
    def product(values: Any, weights: Any) -> Any:
        return values @ weights

    def calls_of_two_shapes(w: Any, x: Any) -> Any:
        def step(n: Any, value: Any) -> Any:
            wide = product(value, w.wide)
            return n + 1, tf.tanh(product(wide[:, :4], w.square) + wide[:, 2:])

        return tf.while_loop(lambda n, _: n < 2, step, (0, x))[1]

    def reads_of_shape(w: Any, x: Any) -> Any:
        def step(n: Any, value: Any) -> Any:
            return n + 1, value @ w.square + tf.cast(tf.shape(w.wide)[1], tf.float32)

        return tf.while_loop(lambda n, _: n < 2, step, (0, x))[1]

    makers = (map_fn, scan, foldl_of_rows, while_loop, cond, switch_case, gather_in_loop,
              cond_in_loop, loop_in_loop, calls_of_two_shapes, reads_of_shape)  # fmt: skip

    def writer(compute: Callable[[Any, Any], Any]) -> Callable[[Path], Built]:
        def write(folder: Path) -> Built:
            module, values = Weights(), _values(ROWS, 4)
            taken = tf.TensorSpec([None, 4], tf.float32, name="x")
            traced = tf.function(lambda x: {"y": compute(module, x)}, input_signature=[taken])
            module.traced = traced
            tf.saved_model.save(module, str(folder), signatures=traced)
            return folder, values, traced(tf.constant(values))["y"].numpy()

        return write

    return {f"tf2_{maker.__name__}": writer(maker) for maker in makers}


def tf1_models() -> dict[str, Callable[[Path], Built]]:
    """Return what writes a graph of TensorFlow 1 by name, with loops of both forms."""
    import tensorflow.compat.v1 as tf

    def while_loop(square: Any, bias: Any, x: Any) -> Any:
        return tf.while_loop(
            lambda n, _: n < 3, lambda n, value: (n + 1, tf.tanh(value @ square + bias)), (0, x)
        )[1]

    def cond(square: Any, bias: Any, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ square, lambda: x + bias)

    def writer(compute: Callable[..., Any], functions: bool, resource: bool) -> Any:
        def write(folder: Path) -> Built:
            before = tf.control_flow_v2_enabled()
            (tf.enable_control_flow_v2 if functions else tf.disable_control_flow_v2)()
            try:
                with tf.Graph().as_default(), tf.Session() as session:
                    return _saved_by_session(tf, session, folder, compute, resource)
            finally:
                (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()

        return write

    return {
        f"tf1_{compute.__name__}_{'functions' if functions else 'switches'}_"
        f"{'resource' if resource else 'reference'}": writer(compute, functions, resource)
        for compute in (while_loop, cond)
        for functions in (False, True)
        for resource in (False, True)
        if resource or not functions
    }


def _saved_by_session(
    tf: Any, session: Any, folder: Path, compute: Callable[..., Any], resource: bool
) -> Built:
    values = _values(ROWS, 4)
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    square, bias = (
        tf.get_variable(name, initializer=_values(*shape), use_resource=resource)
        for name, shape in (("square", (4, 4)), ("bias", (4,)))
    )
    y = tf.identity(compute(square, bias, x), name="y")
    session.run(tf.global_variables_initializer())
    tf.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})
    return folder, values, session.run(y, {x: values})


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(0.1, 0.5, shape).astype(np.float32)
