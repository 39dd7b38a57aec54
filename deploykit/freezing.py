"""A trained model with its variables turned into constants is a frozen graph."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from deploykit.files import load_graph, parse_graph_def, read_bytes
from deploykit.signature import guess_inputs, guess_outputs
from transforms.core import pipeline
from transforms.core.child import call
from transforms.core.errors import Error, FileError, GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.pipeline import Step
from transforms.core.protos import GraphDef, MetaGraphDef
from transforms.core.tensors import Array, DType
from transforms.core.validate import validate

logger = logging.getLogger("deploykit")

VARIABLE_OPS = frozenset({"Variable", "VariableV2", "VarHandleOp", "VarHandlesOp"})
_REFERENCE_OPS = frozenset(
    {"RefEnter", "RefExit", "RefIdentity", "RefMerge", "RefNextIteration", "RefSwitch"}
)
_UPDATE_OPS = ("Assign", "ResourceApply", "ResourceScatter", "ScatterUpdate", "ScatterAdd")
_TRAINING_SWITCH = re.compile(r"(^|_)(is_)?(train|training|trainable|learning_phase)(_|$)|istrain")


def freeze(
    source: str | Path,
    *,
    graph: str | Path | None = None,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    pins: Mapping[str, str] | None = None,
) -> Graph:
    """Read a model and return it as a frozen graph: no variables, no function calls.

    Args:
        source: a checkpoint prefix (or its `.meta` or `.index` file, or the folder that holds
            `checkpoint`), a `.keras` file, or a frozen `.pb` or `.pbtxt` file.
        graph: the GraphDef file that belongs to a checkpoint without a `.meta` file.
        inputs: the tensors that are fed; default: the signature's, or else the placeholders.
        outputs: the tensors that are fetched; default: the signature's, or else what nobody reads.
        pins: placeholders to turn into constants. A boolean placeholder that is not among the
            inputs and is named like `is_training` is pinned to false without being asked.

    FileError: a file is missing or unreadable. GraphError: the model is not sound.
    """
    prefix = checkpoint_prefix(Path(source))
    try:
        if prefix is not None:
            frozen = _read_checkpoint_graph(prefix, graph, inputs, outputs)
        elif Path(source).suffix == ".keras":
            frozen = _read_keras(Path(source), inputs, outputs)
        else:
            frozen = load_graph(source, inputs, outputs)
        frozen = _resolved(frozen, dict(pins or {}), tuple(inputs))
        if prefix is not None:
            _fill_variables(frozen, prefix)
        _refuse_variables(frozen)
        frozen.prune()
        frozen.check()
    except Error as error:
        raise error if str(source) in str(error) else type(error)(f"{source}: {error}") from None
    return frozen


def open_model(
    source: str | Path, inputs: Iterable[str] = (), outputs: Iterable[str] = ()
) -> Graph:
    """Return the graph of a GraphDef file as it stands, and any other model frozen."""
    path = Path(source)
    if path.suffix == ".keras" or checkpoint_prefix(path) is not None:
        return freeze(path, inputs=inputs, outputs=outputs)
    return load_graph(path, inputs, outputs)


def model_bytes(source: str | Path) -> int:
    """Return the size of a model on disk: its file, or the files of its checkpoint."""
    path = Path(source)
    prefix = checkpoint_prefix(path)
    if prefix is None:
        return path.stat().st_size
    return sum(f.stat().st_size for f in prefix.parent.iterdir() if f.stem == prefix.name)


def model_nodes(source: str | Path) -> int | None:
    """Return the number of nodes that a model has on disk; a Keras file holds layers instead."""
    path = Path(source)
    prefix = checkpoint_prefix(path)
    if prefix is not None:
        meta = prefix.with_name(f"{prefix.name}.meta")
        return len(_parse_meta(meta).graph_def.node) if meta.exists() else None
    return None if path.suffix == ".keras" else len(parse_graph_def(path).node)


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


def _read_checkpoint_graph(
    prefix: Path, graph_file: str | Path | None, inputs: Iterable[str], outputs: Iterable[str]
) -> Graph:
    """Return the graph that belongs to a checkpoint, pruned to its outputs, variables still in it.

    The proto is pruned before anything imports it: gradients in a training graph carry shapes that
    today's TensorFlow rejects.
    """
    if graph_file is not None:
        graph_def, meta = parse_graph_def(graph_file), MetaGraphDef()
    else:
        meta = _parse_meta(prefix.with_name(f"{prefix.name}.meta"))
        graph_def = meta.graph_def
    for node in graph_def.node:
        node.attr.pop("_output_shapes", None)
    graph = Graph.from_graph_def(graph_def)
    fed, fetched = _signature(meta)
    graph.outputs = tuple(outputs) or fetched or _said("output", guess_outputs(graph))
    graph.inputs = tuple(inputs)
    for tensor in (*graph.inputs, *graph.outputs):
        graph.producer(tensor)
    graph.prune()
    if not graph.inputs:
        present = tuple(tensor for tensor in fed if tensor.split(":")[0] in graph)
        graph.inputs = present or guess_inputs(graph)
    validate(graph)
    return _step(graph, "remove_device")


def _parse_meta(path: Path) -> MetaGraphDef:
    from google.protobuf.message import DecodeError

    if not path.exists():
        raise FileError(f"{path}: not found; give the checkpoint's graph with --graph")
    try:
        return MetaGraphDef.FromString(read_bytes(path))
    except DecodeError:
        raise GraphError(f"{path}: this is no MetaGraphDef; it may be cut short") from None


def _signature(meta: MetaGraphDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the inputs and outputs of the default signature, empty where there is none."""
    if "serving_default" not in meta.signature_def:
        return (), ()
    signature = meta.signature_def["serving_default"]
    fed, fetched = (
        tuple(info.name for _, info in sorted(side.items()))
        for side in (signature.inputs, signature.outputs)
    )
    return fed, fetched


def _said(role: str, tensors: tuple[str, ...]) -> tuple[str, ...]:
    names = ", ".join(tensors)
    logger.info("%s guessed: %s (name others with --%ss)", role, names or "none", role)
    return tensors


def _step(graph: Graph, transform: str, arguments: dict[str, object] | None = None) -> Graph:
    """Return the graph after one transform."""
    (result,) = pipeline.run(graph, [Step(transform, arguments or {})])
    return result.graph


def _resolved(graph: Graph, pins: dict[str, str], inputs: tuple[str, ...]) -> Graph:
    """Return the graph with functions inlined and placeholders pinned."""
    if graph.library.function:
        graph = _step(graph, "inline_functions")
    for node in graph:
        if _is_training_switch(node) and node.name not in (*inputs, *pins):
            logger.info("placeholder '%s' pinned to false (--pin %s=...)", node.name, node.name)
            pins[node.name] = "false"
    for name, value in pins.items():
        graph = _step(graph, "pin_placeholder", {"name": name, "value": value})
    return _step(graph, "remove_unused_functions") if graph.library.function else graph


def _is_training_switch(node: Node) -> bool:
    last = node.name.rsplit("/", 1)[-1].lower()
    return (
        node.op in ("Placeholder", "PlaceholderWithDefault")
        and node.attr("dtype") == "bool"
        and _TRAINING_SWITCH.search(last) is not None
    )


def _fill_variables(graph: Graph, prefix: Path) -> None:
    """Replace each variable by its value in the checkpoint, and each way of reading one."""
    variables = {node.name: _checkpoint_key(node) for node in graph if node.op in VARIABLE_OPS}
    if not variables:
        return
    values = call("deploykit.freezing:read_checkpoint", str(prefix), sorted(variables.values()))
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


def _refuse_variables(graph: Graph) -> None:
    """Raise GraphError for what a frozen graph cannot hold, by name."""
    for node in graph:
        if node.op in VARIABLE_OPS:
            raise GraphError(
                f"node '{node.name}' is a variable ({node.op}), so the graph is not frozen; "
                "give the checkpoint that holds its value"
            )
        if node.op.startswith(_UPDATE_OPS) and any(
            graph.constant(tensor) is not None for tensor in node.data_inputs[:1]
        ):
            raise GraphError(
                f"node '{node.name}' ({node.op}) updates a variable, which a frozen graph cannot; "
                "pin the placeholder that switches training (--pin NAME=false) or name --outputs"
            )


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


def _read_keras(path: Path, inputs: Iterable[str], outputs: Iterable[str]) -> Graph:
    read_bytes(path)
    env = {"KERAS_BACKEND": "tensorflow"}
    content, fed, fetched = call("deploykit.freezing:freeze_keras", str(path), env=env)
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

    from transforms.core.errors import RefusedError

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
