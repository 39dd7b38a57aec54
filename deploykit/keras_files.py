"""Keras files as graphs: loaded in safe mode, in a child process."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploykit.files import read_bytes
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
    import keras
    import tensorflow as tf

    try:
        _refuse_code(_config(path) if architecture is None else json.loads(architecture))
        if architecture is None:
            model = keras.saving.load_model(path, compile=False, safe_mode=True)
        else:
            model = keras.models.model_from_json(architecture.decode())
            model.load_weights(path)
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


def _config(path: str) -> Any:
    """Return the description of a model out of its file. GraphError: there are weights alone."""
    import h5py

    if not path.endswith(".keras"):
        with h5py.File(path, "r") as file:
            if "model_config" not in file.attrs:
                raise GraphError(
                    "the file holds weights alone; give the model's JSON file with --graph"
                )
            return json.loads(file.attrs["model_config"])
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


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
