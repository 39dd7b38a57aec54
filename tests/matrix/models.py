"""Keras models of one kind of layers in every form that Keras has, and the ways to write them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.matrix.kinds import Kind
from tests.support import tf

SHORT = 2  # samples that a Sequential without Input is called on first


def forms(keras: Any, kind: Kind) -> dict[str, Callable[[], Any]]:
    """Return what makes a model in each form."""
    shape, dtype = kind.samples.shape[1:], kind.samples.dtype.name.replace("object", "string")

    def given() -> Any:
        return keras.Input(shape, dtype=dtype, name="given")

    def sequential() -> Any:
        return keras.Sequential([given(), *kind.layers()])

    def sequential_called() -> Any:
        return _called(keras.Sequential(kind.layers()), kind.samples[:SHORT])

    def sequential_built() -> Any:
        model = keras.Sequential(kind.layers())
        model.build((None, *shape))
        return model

    def functional() -> Any:
        result = start = given()
        for layer in kind.layers():
            result = layer(result)
        return keras.Model(start, result)

    def nested() -> Any:
        start = given()
        return keras.Model(start, keras.Sequential(kind.layers(), name="inner")(start))

    def nested_first() -> Any:
        inner = keras.Sequential(kind.layers(), name="inner")
        return keras.Sequential([given(), inner, keras.layers.Flatten()])

    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = kind.layers()
            self.tracked = [getattr(part, "layer", part) for part in self.parts]

        def call(self, values: Any, training: bool = False) -> Any:
            for part in self.parts:
                values = part(values)
            return values

    def subclassed() -> Any:
        return _called(Subclassed(), kind.samples)

    makers = (sequential, sequential_called, sequential_built, functional, nested, nested_first,
              subclassed)  # fmt: skip
    return {maker.__name__: maker for maker in makers}


def writers(keras: Any, kind: Kind) -> dict[str, Callable[[Any, Path], Path]]:
    """Return what writes a model into a folder, by the kind of file.

    AssertionError: Keras does not read what it has written, or reads another model.
    """

    def save(name: str) -> Callable[[Any, Path], Path]:
        def write(model: Any, folder: Path) -> Path:
            model.save(folder / name)
            read = keras.models.load_model(folder / name, compile=False)
            _check_takes(read.inputs[0], kind)
            answers = [
                np.asarray(each(tf.constant(kind.samples), training=False))
                for each in (model, read)
            ]
            if answers[0].dtype.kind == "f":
                np.testing.assert_allclose(*answers, rtol=1e-2, atol=1e-4)
            return folder / name

        return write

    def signed(path: Path) -> Path:
        if kind.samples.dtype == object:  # Keras takes what it does not know for floats
            signature = tf.saved_model.load(str(path)).signatures["serving_default"]
            _check_takes(*signature.structured_input_signature[1].values(), kind)
        return path

    def export(model: Any, folder: Path) -> Path:
        model.export(str(folder / "exported"))
        return signed(folder / "exported")

    def saved_model(model: Any, folder: Path) -> Path:
        tf.saved_model.save(model, str(folder / "saved"))
        return signed(folder / "saved")

    return {
        ".keras": save("model.keras"),
        ".h5": save("model.h5"),
        "export": export,
        "saved_model": saved_model,
    }


def _check_takes(tensor: Any, kind: Kind) -> None:
    """Check that a model, as it was written, takes the samples it was made for."""
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    assert (dtype == "string") == (kind.samples.dtype == object), f"it takes {dtype}"
    assert len(tensor.shape) == kind.samples.ndim, f"it takes the shape {tensor.shape}"


def randomise(model: Any) -> None:
    """Move the weights of a model, so that none is the identity.

    What a Normalization has learned stays: Keras 2 computes with a copy of it.
    """
    random = np.random.default_rng(1)
    for variable in model.variables:
        value = np.asarray(variable)
        name = getattr(variable, "name", "").split(":")[0].rpartition("/")[2]
        if value.dtype.name.startswith("float") and name not in ("mean", "variance", "count"):
            moved = value + random.uniform(0.05, 0.3, value.shape)
            variable.assign(moved.astype(value.dtype))


def _called(model: Any, samples: np.ndarray) -> Any:
    model(tf.constant(samples))
    return model
