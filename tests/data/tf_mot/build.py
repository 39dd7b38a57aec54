"""Write the files of this folder with TF-MOT, in an environment of its own.

    python -m venv tfmot && tfmot/bin/pip install \
        "tensorflow-cpu<2.17" "tf_keras<2.17" tensorflow-model-optimization
    TF_USE_LEGACY_KERAS=1 tfmot/bin/python tests/data/tf_mot/build.py

They are kept because TF-MOT needs an older TensorFlow than the tests do. Each is a frozen graph of
a small image classifier, trained on models/fashion/test_1000.npz for a minute.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tf_keras import layers

HERE = Path(__file__).parent
DATA = np.load(HERE.parents[2] / "models/fashion/test_1000.npz")
ANNOTATED = {"second", "third"}


def normed(x, layer, is_active=True):
    """Return a layer with the batch norm behind it, and ReLU6."""
    x = layers.BatchNormalization()(layer(x))
    return layers.ReLU(6.0)(x) if is_active else x


def mobile():
    """Return a net with every structure that TF-MOT treats in a way of its own."""
    image = tf_keras.Input((28, 28, 1))
    first = normed(image, layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False))
    deep = normed(first, layers.DepthwiseConv2D(3, padding="same", use_bias=False))
    deep = normed(deep, layers.Conv2D(16, 1, use_bias=False), False)
    both = layers.Add()([deep, normed(first, layers.Conv2D(16, 1, use_bias=False), False)])
    third = normed(both, layers.Conv2D(24, 3, strides=2, padding="same"))
    pooled = layers.MaxPooling2D(3, 1, padding="same")(third)
    parts = [
        normed(pooled, layers.Conv2D(8, 1)),
        normed(third, layers.Conv2D(8, 3, padding="same")),
    ]
    joined = layers.Concatenate()(parts)
    means = layers.GlobalAveragePooling2D()(joined)
    return tf_keras.Model(image, layers.Dense(10, activation="softmax")(means))


def plain():
    """Return a net without batch norms."""
    return tf_keras.Sequential(
        [
            tf_keras.Input((28, 28, 1)),
            layers.Conv2D(8, 3, strides=2, activation="relu", name="first"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="second"),
            layers.AveragePooling2D(),
            layers.Conv2D(12, 3, activation="relu", name="third"),
            layers.Flatten(),
            layers.Dense(10, name="last"),
        ]
    )


def annotated(layer):
    """Return a layer, marked where it is one of those to be quantized."""
    if layer.name in ANNOTATED:
        return tfmot.quantization.keras.quantize_annotate_layer(layer)
    return layer


def trained(model, is_softmax, rate, epochs):
    """Train a model."""
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=not is_softmax)
    model.compile(tf_keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    model.fit(DATA["images"], DATA["labels"], epochs=epochs, batch_size=32, verbose=0)
    return model


def write(model, name):
    """Write a model as a frozen graph."""
    spec = tf.TensorSpec((None, 28, 28, 1), name="image")
    call = tf.function(lambda image: model(image, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(call).graph.as_graph_def()
    for node in frozen.node:
        node.attr.pop("_output_shapes", None)
    (HERE / f"{name}.pb").write_bytes(frozen.SerializeToString())


if __name__ == "__main__":
    tf_keras.utils.set_random_seed(1)
    quantization = tfmot.quantization.keras
    model = trained(mobile(), True, 2e-3, 8)
    write(trained(quantization.quantize_model(model), True, 5e-4, 8), "mobile")
    model = trained(plain(), False, 2e-3, 8)
    write(trained(quantization.quantize_model(model), False, 5e-4, 8), "plain")
    partly = tf_keras.models.clone_model(model, clone_function=annotated)
    partly.set_weights(model.get_weights())
    write(trained(quantization.quantize_apply(partly), False, 5e-4, 8), "partly")
