"""A graph that is run behind a pipeline: frozen, or as it stands with variables to initialize."""

from collections.abc import Sequence

from deploykit.freezing.interface import Interface, Source
from deploykit.freezing.model_path import locate
from deploykit.freezing.open_model import open_model
from deploykit.transforms.core.checks.side_effects import refuse_side_effects
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph


def open_runnable(
    model: str,
    interface: Interface,
    fetches: Sequence[str] = (),
    init: Sequence[str] = (),
    allowed_ops: Sequence[str] = (),
) -> Graph:
    """Return a model's graph; what is fetched are its outputs.

    GraphError: a model that is frozen when it is read has no such ops. RefusedError: running it
    would reach beyond the graph.
    """
    if (fetches or init) and locate(model).kind != "graph":
        raise GraphError(
            f"{model}: --fetch and --init take a GraphDef (.pb) as it stands, and this model loses "
            "its variables when it is read; give --outputs, or write its training graph as a .pb"
        )
    graph = open_model(Source.of(model, interface)).graph
    graph.outputs = tuple(fetches) or graph.outputs
    run = graph.copy()
    run.outputs = (*graph.outputs, *init)
    run.check()
    refuse_side_effects(run, allowed_ops)
    return graph
