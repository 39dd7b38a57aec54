"""The kinds of layers that the matrix of Keras models is made of, each with samples for it.

They are written once for both: `keras` is Keras 3, `tf_keras` Keras 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLES = 3


@dataclass(frozen=True)
class Kind:
    """Layers that follow each other, and samples of what the first one takes."""

    layers: Callable[[], list[Any]]
    samples: np.ndarray
    tolerance: float = 1e-5
    """Bar on the error relative to the largest answer; half precision has 8 or 11 bits."""


@dataclass(frozen=True)
class Twice:
    """A layer that is given the same tensor twice, as an attention to itself is."""

    layer: Any

    def __call__(self, values: Any) -> Any:
        return self.layer(values, values)


def kinds(keras: Any) -> dict[str, Kind]:
    """Return the kinds by name."""
    layers = keras.layers
    return (
        _layers(layers)
        | _convolutions(layers)
        | _sequences(layers)
        | _preprocessing(layers)
        | _augmentation(layers)
    )


def floats(*shape: int) -> np.ndarray:
    """Return normal numbers for all samples."""
    return np.random.default_rng([0, *shape]).normal(size=(SAMPLES, *shape)).astype(np.float32)


def integers(high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    """Return numbers below `high` for all samples."""
    return np.random.default_rng([0, *shape]).integers(0, high, (SAMPLES, *shape)).astype(dtype)


def texts(*values: str) -> np.ndarray:
    """Return one text a sample, or several."""
    return np.array(values, object).reshape(SAMPLES, -1)


def adapted(layer: Any, data: np.ndarray) -> Any:
    """Return a layer that has learned from data."""
    layer.adapt(data)
    return layer


def _layers(of: Any) -> dict[str, Kind]:
    def half(name: str) -> Callable[[], list[Any]]:
        return lambda: [
            of.Conv2D(4, 3, dtype=name),
            of.BatchNormalization(dtype=name),
            of.GlobalAveragePooling2D(dtype=name),
            of.Dense(2, dtype="float32"),
        ]

    return {
        "dense": Kind(lambda: [of.Dense(3, "relu"), of.Dense(2, "softmax")], floats(4)),
        "batch_norm": Kind(lambda: [of.Conv2D(4, 3), of.BatchNormalization()], floats(8, 8, 3)),
        "layer_norm": Kind(lambda: [of.Dense(5), of.LayerNormalization()], floats(4)),
        "group_norm": Kind(lambda: [of.GroupNormalization(groups=2)], floats(5, 4)),
        "unit_norm": Kind(lambda: [of.UnitNormalization()], floats(5)),
        "spectral_norm": Kind(lambda: [of.SpectralNormalization(of.Dense(3))], floats(4)),
        "dropout": Kind(
            lambda: [of.Dense(4), of.Dropout(0.5), of.GaussianNoise(0.1), of.GaussianDropout(0.2)],
            floats(4),
        ),
        "embedding": Kind(
            lambda: [of.Embedding(7, 3), of.GlobalAveragePooling1D()], integers(7, 5, dtype="int32")
        ),
        "activations": Kind(
            lambda: [of.LeakyReLU(), of.PReLU(), of.ELU(), of.Softmax()], floats(4)
        ),
        "shapes": Kind(
            lambda: [
                of.Reshape((2, 6)),
                of.Permute((2, 1)),
                of.Flatten(),
                of.RepeatVector(2),
                of.ZeroPadding1D(1),
                of.UpSampling1D(2),
                of.Cropping1D(1),
            ],
            floats(3, 4),
        ),
        "pooling": Kind(
            lambda: [of.MaxPooling2D(2), of.AveragePooling2D(2), of.GlobalMaxPooling2D()],
            floats(8, 8, 3),
        ),
        "half": Kind(half("mixed_float16"), floats(8, 8, 3), 2e-3),
        "bfloat16": Kind(half("mixed_bfloat16"), floats(8, 8, 3), 2e-2),
        "double": Kind(lambda: [of.Dense(4, dtype="float64")], floats(4).astype("float64")),
    }


def _convolutions(of: Any) -> dict[str, Kind]:
    line, plane, space = floats(9, 4), floats(8, 8, 4), floats(5, 5, 5, 4)
    first = {"data_format": "channels_first"}
    return {
        "conv1d": Kind(lambda: [of.Conv1D(4, 3)], line),
        "conv2d": Kind(lambda: [of.Conv2D(4, 3, strides=2, padding="same")], plane),
        "conv2d_dilated": Kind(lambda: [of.Conv2D(4, 3, dilation_rate=2)], plane),
        "conv3d": Kind(lambda: [of.Conv3D(4, 2)], space),
        "conv1d_transposed": Kind(lambda: [of.Conv1DTranspose(4, 3, strides=2)], line),
        "conv2d_transposed": Kind(lambda: [of.Conv2DTranspose(4, 3, strides=2)], plane),
        "conv3d_transposed": Kind(lambda: [of.Conv3DTranspose(4, 2, strides=2)], space),
        "separable1d": Kind(lambda: [of.SeparableConv1D(4, 3)], line),
        "separable2d": Kind(lambda: [of.SeparableConv2D(4, 3, depth_multiplier=2)], plane),
        "depthwise1d": Kind(lambda: [of.DepthwiseConv1D(3)], line),
        "depthwise2d": Kind(lambda: [of.DepthwiseConv2D(3, depth_multiplier=2)], plane),
        "grouped1d": Kind(lambda: [of.Conv1D(4, 3, groups=2)], line),
        "grouped2d": Kind(lambda: [of.Conv2D(4, 3, groups=2, padding="same")], plane),
        "grouped3d": Kind(lambda: [of.Conv3D(6, 2, groups=2, strides=2)], space),
        "grouped3d_dilated": Kind(lambda: [of.Conv3D(4, 2, groups=4, dilation_rate=2)], space),
        "first_grouped2d": Kind(lambda: [of.Conv2D(4, 3, groups=2, **first)], floats(4, 8, 8)),
        "first_conv3d": Kind(lambda: [of.Conv3D(4, 2, strides=2, **first)], floats(2, 4, 4, 4)),
        "first_grouped3d": Kind(lambda: [of.Conv3D(4, 2, groups=2, **first)], floats(4, 4, 4, 4)),
    }


def _sequences(of: Any) -> dict[str, Kind]:
    series = floats(5, 4)
    masked = series * (np.arange(5)[:, None] < np.array([5, 3, 2])[:, None, None])
    return {
        "lstm": Kind(lambda: [of.LSTM(3, dropout=0.2, recurrent_dropout=0.2)], series),
        "lstm_sequence": Kind(lambda: [of.LSTM(3, return_sequences=True), of.LSTM(2)], series),
        "gru": Kind(lambda: [of.GRU(3, dropout=0.3)], series),
        "gru_reset_before": Kind(lambda: [of.GRU(3, reset_after=False)], series),
        "bidirectional": Kind(lambda: [of.Bidirectional(of.LSTM(3))], series),
        "cells": Kind(lambda: [of.RNN([of.LSTMCell(3), of.GRUCell(2)])], series),
        "conv_lstm": Kind(lambda: [of.ConvLSTM2D(3, 2)], floats(4, 5, 5, 2)),
        "attention": Kind(lambda: [Twice(of.MultiHeadAttention(2, 3)), of.Dense(2)], series),
        "time_distributed": Kind(lambda: [of.TimeDistributed(of.Dense(2))], series),
        "masking": Kind(lambda: [of.Masking(0.0), of.LSTM(3)], masked.astype(np.float32)),
        "masked_embedding": Kind(
            lambda: [of.Embedding(7, 3, mask_zero=True), of.GRU(3)],
            np.array([[1, 2, 3, 0, 0], [1, 1, 1, 1, 1], [4, 0, 0, 0, 0]], np.int32),
        ),
    }


def _preprocessing(of: Any) -> dict[str, Kind]:
    words, few = texts("b a c", "d", "a a b"), texts("a", "x", "b", "c", "c", "c")
    learned = np.array(["a b", "c a", "b b zz"])
    vocabulary = ["a", "b", "c"]
    return {
        "normalization": Kind(
            lambda: [adapted(of.Normalization(), floats(4) * 3 + 1), of.Dense(2)], floats(4)
        ),
        "rescaling": Kind(lambda: [of.Rescaling(1 / 255, -1)], floats(4)),
        "resizing": Kind(lambda: [of.Resizing(5, 6), of.CenterCrop(4, 4)], floats(8, 8, 3)),
        "discretization": Kind(lambda: [of.Discretization([-0.5, 0.0, 0.5])], floats(4)),
        "hashing": Kind(lambda: [of.Hashing(11)], words),
        "string_lookup": Kind(lambda: [of.StringLookup(vocabulary=vocabulary)], few),
        "string_lookup_learned": Kind(
            lambda: [adapted(of.StringLookup(output_mode="multi_hot"), few.ravel())], few
        ),
        "string_lookup_inverse": Kind(
            lambda: [of.StringLookup(vocabulary=vocabulary, invert=True)], integers(4, 2)
        ),
        "integer_lookup": Kind(
            lambda: [of.IntegerLookup(vocabulary=[5, 6, 7]), of.Embedding(9, 2)],
            np.array([[5, 1], [6, 7], [9, 5]], np.int64),
        ),
        "text_vectorization": Kind(
            lambda: [
                of.TextVectorization(vocabulary=vocabulary, output_sequence_length=4),
                of.Embedding(9, 3),
                of.GlobalAveragePooling1D(),
                of.Dense(2),
            ],
            words,
        ),
        "text_vectorization_learned": Kind(
            lambda: [adapted(of.TextVectorization(output_mode="tf_idf"), learned), of.Dense(2)],
            words,
        ),
        "category_encoding": Kind(
            lambda: [of.CategoryEncoding(4, output_mode="multi_hot")], integers(4, 2)
        ),
    }


def _augmentation(of: Any) -> dict[str, Kind]:
    return {
        "augmentation": Kind(
            lambda: [
                of.RandomFlip(),
                of.RandomRotation(0.1),
                of.RandomZoom(0.1),
                of.RandomContrast(0.2),
                of.RandomTranslation(0.1, 0.1),
                of.Conv2D(2, 3),
            ],
            floats(8, 8, 3),
        )
    }
