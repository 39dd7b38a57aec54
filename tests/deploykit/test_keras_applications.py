"""The main job on a whole Keras network with random statistics; long, so `make test-slow`."""

import pytest

import deploykit
from deploykit.verification import verify
from tests.support import ops
from transforms.core.child import call


def save(name: str, path: str) -> None:
    """Save a Keras application whose batch norms are not the identity; done in a child."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None)
    random = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            size = layer.moving_mean.shape[0]
            gamma, variance = random.uniform(0.5, 1.5, size), random.uniform(0.5, 2, size)
            beta, mean = random.normal(0, 0.2, (2, size))
            scaled = [gamma] if layer.scale else []
            layer.set_weights([*scaled, beta, mean, variance])
    model.save(path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("MobileNetV2", 52), ("ResNet50", 53)])
def test_every_batch_norm_folds_and_8_bits_are_close(name, count, tmp_path):
    path = tmp_path / "model.keras"
    call("tests.deploykit.test_keras_applications:save", name, str(path))
    frozen = deploykit.freeze(path)
    assert ops(frozen)["Rsqrt"] == count
    optimized = deploykit.optimize(frozen)
    assert not {"Rsqrt", "Mul", "Sub"} & set(ops(optimized))
    found = verify(frozen, optimized)
    assert found.passed, found
    quantized = deploykit.transform(optimized, "quantize_weights")
    found = verify(frozen, quantized)
    assert found.passed, found
    sizes = [sum(map(len, graph.serialized())) for graph in (frozen, quantized)]
    assert sizes[1] <= 0.27 * sizes[0]
