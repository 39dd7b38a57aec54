"""Checks a SavedModel before TensorFlow loads it: a bad one could crash the server process.

A SavedModel can run ops on loading, so its proto is checked before. This is not a sandbox.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from deploykit.serving.protocol.signatures import HIDDEN
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.untrusted.checkpoint_index import check_index
from deploykit.transforms.untrusted.side_effects import (
    READING_FILES,
    READING_OPS,
    RESTORING_OPS,
    effects_in,
    refuse_side_effects,
)
from deploykit.transforms.untrusted.validate import check_ends, validate
from deploykit.transforms.untrusted.vocabularies import Vocabularies

_INIT = "__saved_model_init_op"
_INIT_KEYS = ("saved_model_main_op", "legacy_init_op")


def check_safe(meta: MetaGraphDef, folder: Path, allowed: Iterable[str] = ()) -> None:
    """Check the nodes that loading and serving a model run.

    GraphError: a node or variables that would crash TensorFlow, or a missing tensor.
    FileError: a file of its variables is missing. RefusedError: an op with effects outside the
    model that is not in `allowed`.
    """
    variables = folder / "variables" / "variables"
    if os.path.lexists(f"{variables}.index"):
        check_index(str(variables))
    graph = Graph.from_graph_def(meta.graph_def)
    validate(graph)  # the whole graph, because TensorFlow imports all of it
    at_load, at_call = (
        list(_run_at_load(meta)),
        [
            info.name
            for name, signature in meta.signature_def.items()
            if not name.startswith(HIDDEN)
            for info in signature.outputs.values()
            if info.name
        ],
    )
    expected = list(dict.fromkeys([*at_call, *at_load]))
    for tensor in expected:
        if tensor.split(":")[0].lstrip("^") not in graph:
            raise GraphError("signature-node-missing", tensor=tensor)
    graph.inputs, graph.outputs = (), tuple(expected)
    check_ends(graph)
    graph.prune()
    refuse_side_effects(graph, [*READING_OPS, *allowed])
    allowed = [*RESTORING_OPS, *allowed]  # for the model's variables
    if any(effect.op in READING_FILES for effect in effects_in(graph)):
        # TensorFlow passes the paths of the model's files only to the ops that run on loading.
        _refuse_foreign_files(graph, at_load, Vocabularies.of(meta, folder), allowed)
        _refuse_foreign_files(graph, at_call, Vocabularies(folder=folder), allowed)


def _refuse_foreign_files(
    graph: Graph, outputs: list[str], files: Vocabularies, allowed: Iterable[str]
) -> None:
    """Raise RefusedError if outputs need a table initialized from a file outside the model."""
    run = graph.copy()
    run.outputs = tuple(outputs)
    if outputs:
        run.prune()
        inline_functions(run)  # the call node passes the path of the file to the function
        files.put_into(run)
        files.refuse_side_effects(run, tuple(allowed))


def _run_at_load(meta: MetaGraphDef) -> Iterable[str]:
    """Yield the names of the nodes that initialize variables and tables."""
    if _INIT in meta.signature_def:
        yield from (info.name for info in meta.signature_def[_INIT].outputs.values() if info.name)
    for key in _INIT_KEYS:
        if key in meta.collection_def:
            yield from meta.collection_def[key].node_list.value
    if meta.saver_def.restore_op_name:
        yield meta.saver_def.restore_op_name
