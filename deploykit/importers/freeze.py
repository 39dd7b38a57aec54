"""Freezing: a trained model's variables are converted to constants."""

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploykit.importers.initializers import Initialisers
from deploykit.importers.keras.keras_files import package_of, read_keras, write_model
from deploykit.importers.meta_graphs import answering_graph, whole_graph
from deploykit.importers.model_files import ModelFiles, function_to_load
from deploykit.importers.model_source import ModelSource
from deploykit.importers.resaving import Resaved, read_again, saved_again, write_function
from deploykit.importers.unusual_ops import (
    is_training_switch,
    mark_convolutions,
    rewrite_convolutions,
    tell_what_hides_batch_norms,
)
from deploykit.importers.updates import settle_updates
from deploykit.transforms.common.errors import Error, GraphError, failed
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.functions import Library, reachable
from deploykit.transforms.ir.graph import Graph, no_collection
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    PLACEHOLDER_OPS,
    VARIABLE_OPS,
    op_defs,
    output_types,
)
from deploykit.transforms.ir.pipeline import Step
from deploykit.transforms.ir.stateful_ops import contents_of, state_held_by
from deploykit.transforms.layers.layers import FLOATS
from deploykit.transforms.runtime.tensorflow_start import quiet
from deploykit.transforms.untrusted.side_effects import cut_off, inputs_behind, run_part
from deploykit.transforms.untrusted.vocabularies import Vocabularies

logger = logging.getLogger("deploykit")


def freeze_files(files: ModelFiles, source: ModelSource) -> Graph:
    """Freeze a model on disk, as `deploykit.freeze` does.

    FileError: a file is missing or unreadable. GraphError: the model is invalid, or lacks the
    requested tags or signature. RefusedError: it contains code.
    """
    with naming_errors(files.path), _opened(files, source) as (graph, initialisers):
        return _frozen(graph, initialisers, source)


def freeze_graph(graph: Graph, source: ModelSource) -> Graph:
    """Return a copy of a graph without variables, function calls and training switches."""
    graph = source.interface.put_on(graph.copy())
    is_path = isinstance(source.model, str | os.PathLike)
    path = Path(source.model) if is_path else None
    folder = path if path is None or path.is_dir() else path.parent
    return _frozen(graph, Initialisers(graph.copy(), files=Vocabularies(folder=folder)), source)


def freeze_written(folder: str, written: Resaved, source: ModelSource) -> Graph:
    """Freeze a model that was just written as a SavedModel."""
    graph, initialisers = read_again(folder, written)
    return _frozen(source.interface.put_on(graph), initialisers, source)


def runs_as_it_stands(graph: Graph, source: ModelSource) -> bool:
    """Return whether a graph can run unfrozen with the same outputs as its frozen form.

    It cannot if a placeholder is pinned, or if a variable or table must be initialized.
    """
    ops = {op for op in graph.ops if contents_of(op) in ("filled", "refused")}
    ops |= PLACEHOLDER_OPS | VARIABLE_OPS
    pins = dict(source.pins)
    unsettled = {
        node.name
        for node in graph
        if node.op in ops
        or (node.op in FEEDABLE_OPS and (node.name in pins or is_training_switch(node)))
        if not graph.is_input(node.name)
    }
    return not unsettled or unsettled.isdisjoint(graph.ancestors(map(producer_name, graph.outputs)))


@contextlib.contextmanager
def naming_errors(path: object) -> Iterator[None]:
    """Add the model's path to errors of the block that lack it."""
    try:
        yield
    except Error as error:
        raise error if str(path) in str(error) else error.within(path) from None


@no_collection()
def _frozen(frozen: Graph, initialisers: Initialisers, source: ModelSource) -> Graph:
    """Return a validated graph with variables converted to constants."""
    about = frozen.about
    _tell_what_is_dropped(frozen, initialisers)
    frozen = _resolved(frozen, dict(source.pins), tuple(source.inputs))
    frozen.prune()  # outputs need neither savers nor optimizers
    updates = settle_updates(frozen)
    _forget_idle_waits(frozen)
    frozen.prune()
    initialisers.fill(frozen, updates)
    updates.check_settled(frozen)
    rewrite_convolutions(frozen)
    frozen = _step(frozen, "remove_unused_functions") if frozen.library.function else frozen
    frozen.prune()
    frozen.check()
    initialisers.files.refuse_paths(frozen, initialisers.whole)
    _check_whole(frozen)
    frozen.about = about
    return frozen


def _check_whole(graph: Graph) -> None:
    """Raise GraphError for state that a graph file cannot store, and for handles as inputs."""
    for tensor in graph.inputs:
        node, port = graph.producer(tensor), split(tensor)[1]
        types = output_types(node) if node.op in op_defs() else None
        if types and types[max(port, 0)] in ("resource", "variant"):
            raise GraphError("input-is-handle", name=tensor, type=types[port])
    held = any(op == "VarHandleOp" or contents_of(op) != "nothing" for op in graph.ops)
    if not held and not graph.library.function:
        return
    running = run_part(graph)
    functions = Library(graph).functions
    nodes = [(node.name, node.op) for node in running]
    for name in sorted(reachable(running)):
        nodes += [(f"{name}/{node.name}", node.op) for node in functions[name].node_def]
    for name, op in nodes:
        contents = contents_of(op)
        if contents == "refused":
            raise GraphError(
                "state-not-frozen",
                name=name,
                op=op,
                what=state_held_by(op),
                advice=cut_off(_behind_contents(graph)),
            )
        if op == "VarHandleOp" or (contents == "filled" and name not in graph):
            raise GraphError("state-in-function", name=name, op=op)


def _behind_contents(graph: Graph) -> tuple[str, ...]:
    """Return the tensors to feed instead of the outputs of queues, iterators and similar ops."""
    holding = [node.name for node in graph if contents_of(node.op) == "refused"]
    return inputs_behind(graph, {node.name for name in holding for node in graph.consumers(name)})


@contextlib.contextmanager
def _opened(files: ModelFiles, source: ModelSource) -> Iterator[tuple[Graph, Initialisers]]:
    """Yield the inference graph with its variables, and their initializers."""
    location, interface = files.location, source.interface
    if location.kind == "keras":
        architecture = None if source.graph is None else Path(source.graph)
        with read_keras(location.path, architecture) as (graph, initialisers):
            yield interface.put_on(graph), initialisers
        return
    meta = files.meta
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
    with saved_again("deploykit.importers.resaving:resave", *arguments) as (graph, own):
        yield interface.put_on(graph), own


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
    """Log trained values that no output needs, because users may fetch them."""
    dropped = [node.name for node in graph if _is_unread_value(graph, node)]
    if initialisers.trained:
        there = {node.name for node in graph}
        # Keras 3 exports a variable as `name` and as `name_1`.
        there |= {re.sub(r"_\d+$", "", name) for name in there}
        dropped += [name for name in initialisers.trained if name not in there]
    if dropped:
        shown = ", ".join(f"'{name}'" for name in dropped[:3])
        more = f" and {len(dropped) - 3} more" if len(dropped) > 3 else ""
        logger.info("dropped, as no output needs it: %s%s (--outputs keeps it)", shown, more)


def _is_unread_value(graph: Graph, node: Node) -> bool:
    """Return whether a node is a stored float array that is neither read nor fetched."""
    if node.op not in ("Const", "Identity") or graph.consumers(node.name):
        return False
    constant = None if graph.is_output(node.name) else graph.constant(node.name)
    return constant is not None and constant.attr("dtype") in FLOATS and constant.shape != ()


def _forget_idle_waits(graph: Graph) -> None:
    """Remove control edges from nodes that neither have a side effect nor follow one.

    TensorFlow 2 makes all results of a function wait for all variable reads, so each result would
    retain the inputs of the others. Below a Switch, an edge also decides whether a node runs.
    """
    retained = Library(graph).acting(graph) | graph.conditional_names()
    for node in graph:
        idle = {i for i in node.control_inputs if i[1:] not in retained}
        if idle:
            graph.replace(node, node.without_control_inputs(*idle))


def is_live(model: Any) -> bool:
    """Return whether an object is a Keras model or a tf.function, without importing either."""
    names = ("get_concrete_function", "structured_input_signature")
    return is_keras(model) or any(hasattr(model, name) for name in names)


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
