"""Keras applications with random weights and random batch norms: fresh ones do nothing."""

import sys


def save(name: str, path: str) -> None:
    """Save a network of keras.applications as a `.keras` file; this is done in a child process."""
    import keras

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None)
    randomise(model)
    model.save(path)


def randomise(model) -> None:
    """Give each batch norm of a Keras model random values."""
    import keras
    import numpy as np

    random = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            size = layer.moving_mean.shape[0]
            gamma, variance = random.uniform(0.5, 1.5, size), random.uniform(0.5, 2, size)
            beta, mean = random.normal(0, 0.2, (2, size))
            scaled = [gamma] if layer.scale else []
            layer.set_weights([*scaled, beta, mean, variance])


if __name__ == "__main__":
    save(*sys.argv[1:])
