"""TF1 checkpoints: their graph, their signature, and the values of their variables."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from deploykit.files import read_bytes
from transforms.core.child import call
from transforms.core.errors import FileError, GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.protos import MetaGraphDef
from transforms.core.tensors import Array, DType

VARIABLE_OPS = frozenset({"Variable", "VariableV2", "VarHandleOp", "VarHandlesOp"})
_REFERENCE_OPS = frozenset(
    {"RefEnter", "RefExit", "RefIdentity", "RefMerge", "RefNextIteration", "RefSwitch"}
)


def checkpoint_prefix(source: Path) -> Path | None:
    """Return the prefix of the checkpoint that a path means, or None where it means none."""
    if source.is_dir() and (source / "checkpoint").is_file():
        found = re.search(rb'model_checkpoint_path: "([^"]*)"', read_bytes(source / "checkpoint"))
        if found is None:
            raise GraphError(f"{source}/checkpoint: it names no model_checkpoint_path")
        return source / Path(found.group(1).decode()).name
    if source.suffix in (".meta", ".index"):
        return source.with_suffix("")
    beside = [source.with_name(f"{source.name}{end}") for end in (".index", ".meta")]
    if not source.exists() and any(path.exists() for path in beside):
        return source
    return None


def parse_meta(path: Path) -> MetaGraphDef:
    """Read a `.meta` file. FileError: there is none. GraphError: it is damaged."""
    from google.protobuf.message import DecodeError

    if not path.exists():
        raise FileError(f"{path}: not found; give the checkpoint's graph with --graph")
    try:
        return MetaGraphDef.FromString(read_bytes(path))
    except DecodeError:
        raise GraphError(f"{path}: this is no MetaGraphDef; it may be cut short") from None


def signature_of(meta: MetaGraphDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the inputs and outputs of the default signature, empty where there is none."""
    if "serving_default" not in meta.signature_def:
        return (), ()
    signature = meta.signature_def["serving_default"]
    fed, fetched = (
        tuple(info.name for _, info in sorted(side.items()))
        for side in (signature.inputs, signature.outputs)
    )
    return fed, fetched


def fill_variables(graph: Graph, prefix: Path) -> None:
    """Replace each variable by its value in the checkpoint, and each way of reading one."""
    variables = {node.name: _checkpoint_key(node) for node in graph if node.op in VARIABLE_OPS}
    if not variables:
        return
    values = call("deploykit.checkpoints:read_checkpoint", str(prefix), sorted(variables.values()))
    for name, key in variables.items():
        node = graph[name]
        if node.attr("dtype") is not None and node.attr("shape") is not None:
            _check_variable(node, values[key])
        graph.replace(node, Node.constant(name, values[key], node.attr("dtype"), node.device))
    for node in graph:
        if node.op in _REFERENCE_OPS:
            graph.replace(node, replace(node, op=node.op.removeprefix("Ref")))
        elif node.op == "ReadVariableOp":
            read = Node(node.name, "Identity", node.inputs, device=node.device)
            graph.replace(node, read.with_attrs(T=node.attr("dtype")))
        elif node.op == "ResourceGather":
            _replace_gather(graph, node)


def _checkpoint_key(node: Node) -> str:
    return str(node.attr("shared_name") or node.name)


def _check_variable(node: Node, value: Array) -> None:
    shape = node.attr("shape")
    same = len(shape) == value.ndim and all(
        s in (-1, v) for s, v in zip(shape, value.shape, strict=True)
    )
    if not same:
        raise GraphError(
            f"node '{node.name}': the graph gives it the shape {list(shape)}, "
            f"but the checkpoint {list(value.shape)}"
        )


def _replace_gather(graph: Graph, node: Node) -> None:
    number = np.array(node.attr("batch_dims", 0), np.int32)
    axis = graph.add(Node.constant(graph.unique_name(f"{node.name}/axis"), number))
    gather = Node(node.name, "GatherV2", (*node.data_inputs, axis.name, *node.control_inputs))
    gather = gather.with_attrs(
        Tparams=node.attr("dtype"), Tindices=node.attr("Tindices"), Taxis=DType("int32"),
        batch_dims=node.attr("batch_dims", 0),
    )  # fmt: skip
    graph.replace(node, replace(gather, device=node.device))


def read_checkpoint(prefix: str, names: list[str]) -> dict[str, Array]:
    """Return tensors of a checkpoint by name; this is done in a child process.

    GraphError: it cannot be read, or lacks one of the names.
    """
    import tensorflow as tf

    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        known = reader.get_variable_to_shape_map()
        # Keras and tf.train.Checkpoint write a variable's name with this end.
        keys = {name: name for name in names} | {
            name: f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
            for name in names
            if name not in known and f"{name}/.ATTRIBUTES/VARIABLE_VALUE" in known
        }
        missing = [name for name in names if keys[name] not in known]
        if missing:
            shown = ", ".join(f"'{name}'" for name in missing[:3])
            raise GraphError(f"the checkpoint lacks {len(missing)} variables, among them {shown}")
        return {name: reader.get_tensor(key) for name, key in keys.items()}
    except GraphError:
        raise
    except Exception as error:  # TensorFlow raises whatever the damage happens to cause
        raise GraphError(f"the checkpoint cannot be read: {str(error).splitlines()[0]}") from None
