"""A trained model with its variables turned into constants is a frozen graph."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from deploykit.checkpoints import (
    VARIABLE_OPS,
    checkpoint_prefix,
    fill_variables,
    parse_meta,
    signature_of,
)
from deploykit.files import load_graph, parse_graph_def
from deploykit.keras_files import read_keras
from deploykit.signature import guess_inputs, guess_outputs
from transforms.core import pipeline
from transforms.core.errors import Error, GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.pipeline import Step
from transforms.core.protos import MetaGraphDef
from transforms.core.validate import validate

logger = logging.getLogger("deploykit")

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
            frozen = read_keras(Path(source), inputs, outputs)
        else:
            frozen = load_graph(source, inputs, outputs)
        frozen = _resolved(frozen, dict(pins or {}), tuple(inputs))
        if prefix is not None:
            fill_variables(frozen, prefix)
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
        return len(parse_meta(meta).graph_def.node) if meta.exists() else None
    return None if path.suffix == ".keras" else len(parse_graph_def(path).node)


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
        meta = parse_meta(prefix.with_name(f"{prefix.name}.meta"))
        graph_def = meta.graph_def
    for node in graph_def.node:
        node.attr.pop("_output_shapes", None)
    graph = Graph.from_graph_def(graph_def)
    fed, fetched = signature_of(meta)
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
