"""A model that is run behind a pipeline: frozen, or as it stands with variables to initialize."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.input.piping import InputPipelineOptions
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph


def open_runnable(
    model: Any, piping: InputPipelineOptions, allow_ops: Sequence[str] = (), **options: Any
) -> OpenedModel:
    """Return a model whose outputs are what is fetched; `model` and `options` as for `open_model`.

    GraphError: a model that is frozen when it is read has no such ops. RefusedError: running it
    would reach beyond the graph.
    """
    opened = open_model(model, **options)
    if (piping.run_ops or piping.init) and not _stands(opened):
        raise GraphError("graph-as-it-stands", source=opened.source)
    graph = opened.graph.copy()
    graph.outputs = tuple(piping.run_ops) or graph.outputs
    run = graph.copy()
    run.outputs = (*graph.outputs, *piping.init)
    run.check()
    found = replace(opened, graph=run)
    found.refuse_effects(allow_ops)
    return replace(opened, graph=graph)


def _stands(model: OpenedModel) -> bool:
    """Say whether a model's graph is as it was given, not frozen."""
    if model.files is not None:
        return model.files.kind == "graph"
    return isinstance(model.requested.model, Graph)
