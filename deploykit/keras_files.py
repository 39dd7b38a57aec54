"""Keras files as graphs: loaded in safe mode, in a child process."""

import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploykit.files import read_bytes
from deploykit.keras_2 import in_words_of_keras_3
from transforms.core.child import call
from transforms.core.errors import Error, GraphError, RefusedError
from transforms.core.graph import Graph
from transforms.core.protos import GraphDef


def read_keras(path: Path, architecture: Path | None = None) -> Graph:
    """Return a Keras file as a frozen graph, with the model's own inputs and outputs.

    `architecture` is the JSON file of a model whose weights alone are in the file.
    FileError: it cannot be read. RefusedError: it holds code. GraphError: it is damaged.
    """
    env = {"KERAS_BACKEND": "tensorflow"}
    description = None if architecture is None else read_bytes(architecture)
    content, fed, fetched = call(
        "deploykit.keras_files:freeze_keras", str(path), description, env=env
    )
    return Graph.from_graph_def(GraphDef.FromString(content), fed, fetched)


def freeze_keras(path: str, architecture: bytes | None) -> tuple[bytes, list[str], list[str]]:
    """Return a Keras file as GraphDef bytes, inputs and outputs; this is done in a child process.

    RefusedError: the file holds code (a Lambda layer). GraphError: it is damaged.
    """
    import tensorflow as tf

    try:
        model = _load(path, architecture)
        if not getattr(model, "inputs", None):
            raise GraphError("the model was saved before it saw an input, so its shapes are open")
    except Error:
        raise
    except Exception as error:  # Keras raises whatever the damage happens to cause
        text = " ".join(str(error).split())
        raise GraphError(f"Keras cannot load the model: {text[:300]}") from None
    specs = [tf.TensorSpec(t.shape, t.dtype, name=t.name) for t in model.inputs]

    @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]
    def answer(*tensors: tf.Tensor) -> list[tf.Tensor]:
        answers = model(tf.nest.pack_sequence_as(model.input, tensors), training=False)
        pairs = zip(tf.nest.flatten(answers), model.output_names, strict=True)
        return [tf.identity(tensor, name) for tensor, name in pairs]

    return frozen_function(answer.get_concrete_function(), model.output_names)


def _load(path: str, architecture: bytes | None) -> Any:
    """Load a model whole, or its weights into what its JSON file describes. RefusedError: code."""
    import keras

    if path.endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            _refuse_code(json.loads(archive.read("config.json")))
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    import h5py

    with h5py.File(path, "r") as file:
        found = file.attrs.get("model_config", architecture)
        if found is None:
            raise GraphError(
                "the file holds weights alone; give the model's JSON file with --graph"
            )
        config = json.loads(found)
        _refuse_code(config)
        if "layer_names" in file.attrs or "model_weights" in file:
            return _load_hdf5(file, config)
    model = keras.models.model_from_json(found.decode())
    model.load_weights(path)
    return model


def _load_hdf5(file: Any, config: Any) -> Any:
    """Load a model in the format of Keras 2, which Keras 3 writes too; the weights may be alone."""
    import h5py
    import keras

    weights = file.get("model_weights", file)
    if str(weights.attrs.get("keras_version", "")).startswith(("1.", "2.")):
        config = in_words_of_keras_3(config)
    with tempfile.TemporaryDirectory() as folder:
        joined = f"{folder}/model.h5"
        with h5py.File(joined, "w") as model:
            model.attrs["model_config"] = json.dumps(config)
            model.copy(weights, "model_weights")
        return keras.saving.load_model(joined, compile=False, safe_mode=True)


def _refuse_code(config: Any) -> None:
    """Raise RefusedError for a Lambda layer: it holds a function, which is code."""
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.get("class_name") in ("Lambda", "__lambda__"):
                raise RefusedError("the model holds a Lambda layer, which is code (rewrite it)")
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def frozen_function(
    function: Any, outputs: Sequence[str] = ()
) -> tuple[bytes, list[str], list[str]]:
    """Return a traced function as GraphDef bytes, inputs and outputs; done in a child process.

    `outputs` are the names that the function's results bear in its graph, where they do.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(function)
    graph_def = frozen.graph.as_graph_def()
    nodes = {node.name for node in graph_def.node}
    fetched = [tensor.name for tensor in frozen.outputs]
    for place, name in enumerate(outputs):
        if name in nodes:
            fetched[place] = name
    return graph_def.SerializeToString(), [tensor.name for tensor in frozen.inputs], fetched
