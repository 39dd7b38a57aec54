"""A trained model with its variables turned into constants is a frozen graph."""

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deploykit.freezing.checkpoints import parse_meta
from deploykit.freezing.graph_files import load_graph, parse_graph_def
from deploykit.freezing.initializers import Initialisers
from deploykit.freezing.interface import Interface
from deploykit.freezing.keras.keras_files import read_keras
from deploykit.freezing.meta_graphs import answering_graph, whole_graph
from deploykit.freezing.model_path import Location, locate
from deploykit.freezing.resaving import saved_again
from deploykit.freezing.saved_models import function_to_load, parse_saved_model
from deploykit.freezing.training_switches import is_training_switch, tell_what_hides_batch_norms
from deploykit.freezing.updates import settle_updates
from deploykit.freezing.xla_convolutions import mark_convolutions, rewrite_convolutions
from deploykit.transforms.core import pipeline
from deploykit.transforms.core.errors import Error, GraphError
from deploykit.transforms.core.functions import Library, reachable
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import FLOATS
from deploykit.transforms.core.node import Node, split
from deploykit.transforms.core.ops import op_defs, output_types
from deploykit.transforms.core.pipeline import Step
from deploykit.transforms.core.protos import MetaGraphDef
from deploykit.transforms.core.stateful_ops import contents_of, held_by

logger = logging.getLogger("deploykit")


def freeze(
    source: str | Path,
    *,
    graph: str | Path | None = None,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] | None = None,
) -> Graph:
    """Read a model and return it as a frozen graph: no variables, no function calls.

    Args:
        source: a SavedModel folder, a checkpoint prefix (or its `.meta` or `.index` file, or the
            folder that holds `checkpoint`), a `.keras` or `.h5` file, or a frozen `.pb` or
            `.pbtxt` file.
        graph: what a file of values alone belongs to: the GraphDef of a checkpoint without a
            `.meta` file, or the JSON file of a Keras model whose weights are in an `.h5` file.
        inputs: the tensors that are fed; default: the signature's, or else the placeholders.
        outputs: the tensors that are fetched; default: the signature's, or else what nobody reads.
        tags: which graph of a SavedModel; default: `serve`, or the only one.
        signature: which signature; default: `serving_default`, or the only one. A SavedModel's
            function that is no signature may be named too.
        pins: placeholders to turn into constants. A boolean placeholder that is not among the
            inputs and is named like `is_training` is pinned to false without being asked.

    FileError: a file is missing or unreadable. GraphError: the model is not sound, or has no such
    tags or signature. RefusedError: it holds code.
    """
    try:
        interface = Interface(tuple(inputs), tuple(outputs), tuple(tags), signature)
        with _opened(locate(source), graph, interface) as (frozen, initialisers):
            _tell_what_is_dropped(frozen, initialisers)
            frozen = _resolved(frozen, dict(pins or {}), tuple(inputs))
            updates = settle_updates(frozen)
            _forget_idle_waits(frozen)
            frozen.prune()
            initialisers.fill(frozen, updates)
            updates.check_settled(frozen)
        rewrite_convolutions(frozen)
        frozen = _step(frozen, "remove_unused_functions") if frozen.library.function else frozen
        frozen.prune()
        frozen.check()
        _check_whole(frozen)
    except Error as error:
        raise error if str(source) in str(error) else type(error)(f"{source}: {error}") from None
    return frozen


def freeze_as(
    source: str | Path,
    interface: Interface,
    *,
    graph: str | Path | None = None,
    pins: Mapping[str, str] | None = None,
) -> Graph:
    """Freeze a model with the inputs, outputs, tags and signature of an interface."""
    return freeze(
        source,
        graph=graph,
        inputs=interface.inputs,
        outputs=interface.outputs,
        tags=interface.tags,
        signature=interface.signature,
        pins=pins,
    )


def open_graph(source: str | Path, interface: Interface) -> Graph:
    """Return the graph of a GraphDef file as it stands, and any other model frozen."""
    if locate(source).kind == "graph":
        return load_graph(source, interface.inputs, interface.outputs)
    return freeze_as(source, interface)


def _check_whole(graph: Graph) -> None:
    """Raise GraphError for what the graph's file cannot bring along: other contents, a handle."""
    for tensor in graph.inputs:
        node, port = graph.producer(tensor), split(tensor)[1]
        types = output_types(node) if node.op in op_defs() else None
        if types and types[max(port, 0)] in ("resource", "variant"):
            raise GraphError(
                f"its input '{tensor}' is a {types[port]}, a handle to what is not in the graph, "
                "so no caller could feed it; name other --inputs, or export the model again"
            )
    running = graph.copy()
    for node in map(graph.producer, graph.inputs):  # what is fed runs nothing
        running.replace(node, replace(node, inputs=()))
    running.inputs = ()
    running.prune()
    functions = Library(graph).functions
    nodes = [(node.name, node.op) for node in running if not graph.is_input(node.name)]
    for name in sorted(reachable(running)):
        nodes += [(f"{name}/{node.name}", node.op) for node in functions[name].node_def]
    for name, op in nodes:
        contents = contents_of(op)
        if contents == "refused":
            raise GraphError(
                f"node '{name}' ({op}) holds {held_by(op)}, which no frozen graph brings along; "
                "name --inputs behind it"
            )
        if op == "VarHandleOp" or (contents == "filled" and name not in graph):
            raise GraphError(
                f"node '{name}' ({op}) is a variable or table in a function that is not inlined, "
                "which cannot be filled; make it outside of the function and save the model again"
            )


def model_bytes(source: str | Path) -> int:
    """Return the size of a model on disk: its file, or all of its files."""
    return locate(source).bytes


def model_nodes(source: str | Path, tags: Sequence[str] = ()) -> int | None:
    """Return the number of nodes that a model has on disk; a Keras file holds layers instead."""
    location = locate(source)
    if location.kind == "graph":
        return len(parse_graph_def(location.proto).node)
    if location.kind == "keras" or not location.proto.exists():
        return None
    meta = parse_meta_graph(location, tags)
    bodies = meta.graph_def.library.function
    return len(meta.graph_def.node) + sum(len(function.node_def) for function in bodies)


@contextlib.contextmanager
def _opened(
    location: Location, graph_file: str | Path | None, interface: Interface
) -> Iterator[tuple[Graph, Initialisers]]:
    """Yield the graph that answers, variables still in it, and what gives them their values."""
    if location.kind == "graph":
        graph = load_graph(location.path, interface.inputs, interface.outputs)
        yield graph, Initialisers(graph.copy())
        return
    if location.kind == "keras":
        architecture = None if graph_file is None else Path(graph_file)
        with read_keras(location.path, architecture) as (graph, initialisers):
            yield interface.put_on(graph), initialisers
        return
    if graph_file is not None:
        meta = MetaGraphDef(graph_def=parse_graph_def(graph_file))
    else:
        meta = parse_meta_graph(location, interface.tags)
    whole = whole_graph(meta)
    initialisers = Initialisers.of(meta, whole, location.checkpoint, location.path)
    function = function_to_load(meta, interface.signature)
    if function is None:
        yield answering_graph(whole, meta, interface), initialisers
        return
    initialisers.refuse_side_effects()
    if interface.signature is None:
        logger.info("it has no signature; its function '%s' is frozen (--signature)", function)
    arguments = (str(location.path), list(meta.meta_info_def.tags), function)
    with saved_again("deploykit.freezing.loaded_functions:resave", *arguments) as (graph, own):
        yield interface.put_on(graph), own


def parse_meta_graph(location: Location, tags: Sequence[str]) -> MetaGraphDef:
    """Return what a SavedModel or a checkpoint's `.meta` file says of its graph."""
    if location.kind == "saved_model":
        return parse_saved_model(location.proto, tags)
    return parse_meta(location.proto)


def _step(graph: Graph, transform: str, arguments: dict[str, object] | None = None) -> Graph:
    """Return the graph after one transform."""
    (result,) = pipeline.run(graph, [Step(transform, arguments or {})])
    return result.graph


def _resolved(graph: Graph, pins: dict[str, str], inputs: tuple[str, ...]) -> Graph:
    """Return the graph with functions inlined and placeholders pinned."""
    if graph.library.function:
        mark_convolutions(graph)
        graph = _step(graph, "inline_functions")
    for node in graph:
        if is_training_switch(node) and node.name not in (*inputs, *pins):
            logger.info("placeholder '%s' pinned to false (--pin %s=...)", node.name, node.name)
            pins[node.name] = "false"
    for name, value in pins.items():
        graph = _step(graph, "pin_placeholder", {"name": name, "value": value})
    tell_what_hides_batch_norms(graph)
    return _step(graph, "remove_unused_functions") if graph.library.function else graph


def _tell_what_is_dropped(graph: Graph, initialisers: Initialisers) -> None:
    """Log the trained values that no output needs: users may fetch them, such as transitions."""
    dropped = [node.name for node in graph if _is_unread_value(graph, node)]
    there = {node.name for node in graph}  # Keras 3 exports a variable as `name` and as `name_1`
    there |= {re.sub(r"_\d+$", "", name) for name in there}
    dropped += [name for name in initialisers.trained if name not in there]
    if dropped:
        shown = ", ".join(f"'{name}'" for name in dropped[:3])
        more = f" and {len(dropped) - 3} more" if len(dropped) > 3 else ""
        logger.info("dropped, as no output needs it: %s%s (--outputs keeps it)", shown, more)


def _is_unread_value(graph: Graph, node: Node) -> bool:
    """Say whether a node gives an array of floats as it is stored, and nobody asks for it."""
    if node.op not in ("Const", "Identity") or graph.consumers(node.name):
        return False
    constant = None if graph.is_output(node.name) else graph.constant(node.name)
    return constant is not None and constant.attr("dtype") in FLOATS and constant.shape != ()


def _forget_idle_waits(graph: Graph) -> None:
    """Drop control edges that order nothing: those from where nothing before has an effect.

    TensorFlow 2 lets a function's results wait for all that read variables, so each result would
    keep alive what the others need. Below a Switch an edge also tells whether a node runs.
    """
    kept = Library(graph).acting(graph) | graph.conditional_names()
    for node in graph:
        idle = {i for i in node.control_inputs if i[1:] not in kept}
        if idle:
            graph.replace(node, node.without_control_inputs(*idle))
