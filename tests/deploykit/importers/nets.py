"""Five small nets that want photos in different ranges, and photos whose answers tell the range."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE, CLASSES, COUNT = 16, 4, 80
Pixels = np.ndarray


def photos(seed: int = 0) -> tuple[Pixels, np.ndarray]:
    """Return shapes on grounds of any colour, and which of four colours each shape has."""
    random = np.random.default_rng(seed)
    labels = np.arange(COUNT) % CLASSES
    colours = np.array([[40, 40, 60], [200, 70, 60], [90, 170, 90], [220, 210, 190]])
    pixels = np.broadcast_to(random.integers(0, 256, (COUNT, 1, 1, 3)), (COUNT, SIZE, SIZE, 3))
    pixels = pixels + random.integers(-20, 21, pixels.shape)
    for photo, label in zip(pixels, labels, strict=True):
        top, left = random.integers(2, 6, 2)
        photo[top : top + 8, left : left + 8] = colours[label] + random.integers(-45, 46, (8, 8, 3))
    return pixels.clip(0, 255).astype(np.uint8), labels


def write(folder: Path, pixels: Pixels, labels: np.ndarray) -> Path:
    """Write photos as PNG files, in a folder for each class."""
    import tensorflow as tf

    for number, (photo, label) in enumerate(zip(pixels, labels, strict=True)):
        place = folder / str(label) / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(tf.io.encode_png(photo).numpy())
    return folder


PREPARED: dict[str, Callable[[Pixels], Pixels]] = {
    "rescaling": lambda pixels: pixels.astype(np.float32),
    "normalization": lambda pixels: pixels.astype(np.float32),
    "zero_to_one": lambda pixels: pixels.astype(np.float32) / 255,
    "minus_one_to_one": lambda pixels: pixels.astype(np.float32) / 127.5 - 1,
    "bytes": lambda pixels: pixels,
}


MEAN, DEVIATION = np.array([120.0, 110.0, 100.0]), np.array([70.0, 60.0, 65.0])


@functools.cache
def _weights() -> list[np.ndarray]:
    """Return the weights of a net that was trained on photos from 0 to 1."""
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), *_layers()])
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    pixels, labels = photos()
    model.fit(PREPARED["zero_to_one"](pixels), labels, batch_size=16, epochs=12, verbose=0)
    return model.get_weights()


def _layers() -> list[Any]:
    from keras import layers

    return [
        layers.Conv2D(12, 3, activation="relu", strides=2),
        layers.Conv2D(16, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(CLASSES),
    ]


def net(name: str) -> Any:
    """Return a net that takes photos as `PREPARED` makes them.

    All give the same answers: the first layer's weights are moved to what they are fed, where
    0..1 is x * factor + offset.
    """
    import keras
    from keras import layers

    first, factor, offset = {
        "rescaling": ([layers.Rescaling(1 / 255)], 1, 0),
        "normalization": (
            [layers.Normalization(mean=MEAN, variance=DEVIATION**2)], DEVIATION / 255, MEAN / 255
        ),
        "zero_to_one": ([], 1, 0),
        "minus_one_to_one": ([], 0.5, 0.5),
        "bytes": ([layers.Rescaling(1 / 127.5, offset=-1)], 0.5, 0.5),
    }[name]  # fmt: skip
    dtype = "uint8" if name == "bytes" else "float32"
    model = keras.Sequential(
        [keras.Input((SIZE, SIZE, 3), dtype=dtype, name="photo"), *first, *_layers()]
    )
    kernel, bias, *rest = _weights()
    scale, shift = (np.broadcast_to(each, 3).reshape(3, 1) for each in (factor, offset))
    own = [each for each in model.layers if not each.name.startswith(("resc", "norm"))]
    moved = [kernel * scale, bias + (kernel * shift).sum((0, 1, 2)), *rest]
    for layer in own:
        layer.set_weights([moved.pop(0) for _ in layer.get_weights()])
    return model


def accuracy(model: Any, values: Pixels, labels: np.ndarray) -> float:
    """Return how often a net of Keras is right."""
    return float((model.predict(values, verbose=0).argmax(1) == labels).mean())
