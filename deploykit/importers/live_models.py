"""In-memory models of the user's process: they are written to a folder and read from it.

The SavedModel importer reads that folder, so that a notebook and a file give the same graph.
"""

import tempfile
from typing import Any

from deploykit.importers.freeze import freeze_files, freeze_written
from deploykit.importers.keras.keras_files import package_of, write_model
from deploykit.importers.model_files import ModelFiles
from deploykit.importers.model_source import ModelSource
from deploykit.importers.resaving import write_function
from deploykit.transforms.common.errors import failed
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.tensorflow_start import quiet


def is_live(model: Any) -> bool:
    """Return whether an object is a Keras model or a tf.function, without importing either."""
    return is_keras(model) or _is_function(model)


def name_of(model: Any) -> str:
    """Return a name for an in-memory model."""
    name = getattr(model, "name", None) or getattr(model, "__name__", None)
    kind = "keras.Model" if is_keras(model) else "tf.function"
    return f"{kind} '{name}'" if isinstance(name, str) else kind


def freeze_live(model: Any, source: ModelSource) -> Graph:
    """Freeze an in-memory model.

    GraphError: it was never called on an input, or a function has no unique input signature.
    """
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder, quiet():
        if not is_keras(model):
            traced, retained = _traced(model)
            return freeze_written(folder, write_function(folder, traced, retained), source)
        if getattr(model, "inputs", None):
            return freeze_written(folder, write_model(folder, model), source)
        _export_subclassed(folder, model)
        written = ModelSource(folder, source.inputs, source.outputs, pins=source.pins)
        return freeze_files(ModelFiles(written), written)


def is_keras(model: Any) -> bool:
    """Return whether an object is a Keras model, without importing Keras."""
    return any(
        item.__name__ == "Model" and item.__module__.split(".")[0] in ("keras", "tf_keras")
        for item in type(model).__mro__
    )


def _is_function(model: Any) -> bool:
    return hasattr(model, "get_concrete_function") or hasattr(model, "structured_input_signature")


def _export_subclassed(folder: str, model: Any) -> None:
    """Export a subclassed Keras model, whose inputs are those that it was called on."""
    try:
        is_keras_3 = package_of(model).__name__ == "keras"  # tf_keras prints nothing
        model.export(folder, **({"verbose": False} if is_keras_3 else {}))
    except Exception as error:  # models may raise any exception
        text = " ".join(str(error).split())[:300]
        raise failed("keras-cannot-export", error, source=name_of(model), reason=text) from None


def _traced(function: Any) -> tuple[Any, list[Any]]:
    """Return the concrete function of a tf.function, and the variables that it reads."""
    if hasattr(function, "get_concrete_function"):
        try:
            function = function.get_concrete_function()
        except Exception as error:  # functions may raise any exception
            text = " ".join(str(error).split())[:200]
            raise failed("inputs-open", error, source=name_of(function), reason=text) from None
    return function, list(function.graph.variables)
