"""The values of a checkpoint, and the checkpoint keys that a graph restores."""

import os
from typing import Any, TypeVar

from deploykit.transforms.common.errors import GraphError, failed
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.transforms.untrusted.checkpoint_index import check_index

T = TypeVar("T")


def place_of(graph: Graph, tensor: str) -> tuple[str, str] | None:
    """Return the key and the slice of a tensor that a restore op reads; None: another tensor."""
    node, port = graph.producer(tensor), split(tensor)[1]
    while node.op == "Identity":
        tensor = node.inputs[0]
        node, port = graph.producer(tensor), split(tensor)[1]
    if node.op != "RestoreV2":
        return None
    names, parts = (graph.constant(i) for i in node.data_inputs[1:])
    if names is None or parts is None or max(names.value.size, parts.value.size) <= port:
        return None
    return names.value[port].decode(), parts.value[port].decode()


def read_checkpoint(prefix: str, expected: dict[T, tuple[str, str]]) -> dict[T, Array]:
    """Return tensors of a checkpoint by the keys of `expected`; call it in a child process.

    `expected` maps each name to its key in the checkpoint and the slice of the tensor: empty for
    all of it, or sizes and a `start,length` or `-` for each axis, as in `10 4 0,5:-`. GraphError:
    the checkpoint cannot be read, or lacks a key. FileError: a file cannot be read.
    """
    parts = start_tensorflow()
    if os.path.lexists(f"{prefix}.index"):  # TensorFlow 0.x wrote none
        check_index(prefix)
    try:
        reader = parts.checkpoints.NewCheckpointReader(prefix)
        keys = _keys(reader, parts.objects.TrackableObjectGraph)
        missing = [key for key, _ in expected.values() if key not in keys]
        if missing:
            raise GraphError("checkpoint-lacks", count=len(missing), names=missing[:3])
        types = reader.get_variable_to_dtype_map()
        # Several names may share a tensor, which is then read only once.
        places = list(dict.fromkeys((keys[key], part) for key, part in expected.values()))
        values = parts.restoring.restore_v2(
            prefix=prefix,
            tensor_names=[key for key, _ in places],
            shape_and_slices=[part for _, part in places],
            dtypes=[types[key] for key, _ in places],
        )
        read = {place: value.numpy() for place, value in zip(places, values, strict=True)}
        return {name: read[keys[key], part] for name, (key, part) in expected.items()}
    except GraphError:
        raise
    except Exception as error:  # TensorFlow raises different types for damaged files
        text = " ".join(str(error).split())[:300] or type(error).__name__
        raise failed("checkpoint-not-readable", error, reason=text) from None


def _keys(reader: Any, object_graph: Any) -> dict[str, str]:
    """Return the names of the variables with their keys: tf.train.Checkpoint uses paths as keys."""
    known = reader.get_variable_to_shape_map()
    keys = {key: key for key in known}
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    for key in known:
        if key.endswith(end):
            keys.setdefault(key.removesuffix(end), key)
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in known:
        content = reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        for node in object_graph.FromString(content).nodes:
            for attribute in node.attributes:
                if attribute.full_name and attribute.checkpoint_key in known:
                    keys.setdefault(attribute.full_name, attribute.checkpoint_key)
    return keys
