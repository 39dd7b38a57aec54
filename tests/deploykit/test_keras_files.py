"""Keras files: Keras 3 and 2, whole or weights alone, with code in them, damaged."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import deploykit
from tests.support import ops, run
from transforms.core.errors import FileError, GraphError, RefusedError

pytestmark = pytest.mark.usefixtures("in_process")

KERAS_2 = Path(__file__).parents[1] / "data" / "keras_2"


@pytest.fixture(scope="module")
def model():
    """Return a model of two inputs and two outputs, with a half-precision layer."""
    import keras

    keras.utils.set_random_seed(1)
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b", dtype="int32")
    half = keras.layers.Dense(4, dtype="mixed_float16", bias_initializer="ones")(a)
    total = keras.layers.Add()([half, keras.layers.Dense(4)(b)])
    outputs = [keras.layers.Dense(3, name="y")(total), keras.layers.Dense(2, name="z")(total)]
    return keras.Model({"a": a, "b": b}, outputs)


@pytest.fixture(scope="module")
def feeds() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"a": random.normal(size=(2, 4)).astype(np.float32), "b": np.ones((2, 4), np.int32)}


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_keras_3(model, feeds, name, tmp_path):
    model.save(tmp_path / name)
    graph = deploykit.freeze(tmp_path / name)
    assert graph.inputs == ("a", "b")
    assert graph.outputs == ("y", "z")
    for found, expected in zip(run(graph, feeds), model(feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert deploykit.freeze(tmp_path / name, outputs=["z"]).outputs == ("z",)


def test_keras_3_weights_alone(model, feeds, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    (tmp_path / "model.json").write_text(model.to_json())
    graph = deploykit.freeze(tmp_path / "model.weights.h5", graph=tmp_path / "model.json")
    np.testing.assert_allclose(run(graph, feeds)[0], model(feeds)[0], rtol=1e-6)


def keras_2_weights(folder: Path) -> Path:
    """Write the weights alone, as `save_weights` of Keras 2 does."""
    path = folder / "weights.h5"
    with h5py.File(KERAS_2 / "model.h5") as source, h5py.File(path, "w") as weights:
        for name in source["model_weights"]:
            source.copy(f"model_weights/{name}", weights)
        weights.attrs.update(source["model_weights"].attrs)
    return path


@pytest.mark.parametrize("alone", [False, True])
def test_keras_2(alone, tmp_path):
    if alone:
        graph = deploykit.freeze(keras_2_weights(tmp_path), graph=KERAS_2 / "model.json")
    else:
        graph = deploykit.freeze(KERAS_2 / "model.h5")
    assert graph.inputs == ("image",)
    assert graph.outputs == ("probabilities",)
    with np.load(KERAS_2 / "expected.npz") as expected:
        found = run(graph, {"image": expected["image"]})[0]
        np.testing.assert_allclose(found, expected["probabilities"], rtol=1e-5)
    assert "FusedBatchNormV3" not in ops(deploykit.optimize(graph))


def test_code_is_refused(tmp_path):
    import keras

    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Lambda(lambda t: t * 2)(x))
    paths = [KERAS_2 / "lambda.h5", tmp_path / "lambda.keras", tmp_path / "lambda.h5"]
    for path in paths[1:]:
        model.save(path)
    for path in paths:
        with pytest.raises(RefusedError, match=rf"{path.name}: the model holds a Lambda layer"):
            deploykit.freeze(path)


def test_damaged_files(tmp_path):
    whole = (KERAS_2 / "model.h5").read_bytes()
    damages = {
        "cut.h5": (whole[: len(whole) // 2], "Keras cannot load the model"),
        "no.h5": (b"not HDF5 at all", "Keras cannot load the model"),
        "no.keras": (b"not a zip archive", "Keras cannot load the model"),
    }
    for name, (content, message) in damages.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphError, match=f"{name}: {message}"):
            deploykit.freeze(tmp_path / name)
    with pytest.raises(GraphError, match="weights alone; give the model's JSON file with --graph"):
        deploykit.freeze(keras_2_weights(tmp_path))
    with pytest.raises(FileError, match="No such file"):
        deploykit.freeze(tmp_path / "missing.h5")


def test_weights_of_another_model(tmp_path):
    shutil.copy(KERAS_2 / "model.json", tmp_path)
    text = (tmp_path / "model.json").read_text().replace('"filters": 6', '"filters": 7')
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(GraphError, match=r"Keras cannot load the model: .*shape"):
        deploykit.freeze(keras_2_weights(tmp_path), graph=tmp_path / "model.json")
