"""Keras files as graphs: loaded in safe mode, in a child process."""

from collections.abc import Iterable
from pathlib import Path

from deploykit.files import read_bytes
from transforms.core.child import call
from transforms.core.errors import GraphError, RefusedError
from transforms.core.graph import Graph
from transforms.core.protos import GraphDef


def read_keras(path: Path, inputs: Iterable[str], outputs: Iterable[str]) -> Graph:
    """Return a Keras file as a frozen graph; inputs and outputs default to the model's own.

    FileError: it cannot be read. RefusedError: it holds code. GraphError: it is damaged.
    """
    read_bytes(path)
    env = {"KERAS_BACKEND": "tensorflow"}
    content, fed, fetched = call("deploykit.keras_files:freeze_keras", str(path), env=env)
    graph = Graph.from_graph_def(GraphDef.FromString(content), fed, fetched)
    graph.inputs = tuple(inputs) or graph.inputs
    graph.outputs = tuple(outputs) or graph.outputs
    graph.check()
    return graph


def freeze_keras(path: str) -> tuple[bytes, list[str], list[str]]:
    """Return a Keras file as GraphDef bytes, inputs and outputs; this is done in a child process.

    RefusedError: the file holds code (a Lambda layer). GraphError: it is damaged.
    """
    import keras
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # Keras raises whatever the damage happens to cause
        text = " ".join(str(error).split())
        if "safe_mode" in text or "unsafe" in text:
            raise RefusedError(
                "the model holds a Lambda layer, which is code (rewrite it)"
            ) from None
        raise GraphError(f"Keras cannot load the model: {text[:300]}") from None
    specs = [tf.TensorSpec(t.shape, t.dtype, name=t.name) for t in model.inputs]

    @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]
    def answer(*tensors: tf.Tensor) -> list[tf.Tensor]:
        answers = model(tf.nest.pack_sequence_as(model.input, tensors), training=False)
        pairs = zip(tf.nest.flatten(answers), model.output_names, strict=True)
        return [tf.identity(tensor, name) for tensor, name in pairs]

    frozen = convert_variables_to_constants_v2(answer.get_concrete_function())
    graph_def = frozen.graph.as_graph_def()
    nodes = {node.name for node in graph_def.node}
    fetched = [
        name if name in nodes else tensor.name
        for name, tensor in zip(model.output_names, frozen.outputs, strict=True)
    ]
    return graph_def.SerializeToString(), [tensor.name for tensor in frozen.inputs], fetched
