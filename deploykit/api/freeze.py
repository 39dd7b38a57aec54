"""A trained model becomes a frozen graph."""

import os
from dataclasses import replace
from typing import Any

from deploykit.calling.label_image import read_labels
from deploykit.freezing.graph_files import save_graph
from deploykit.freezing.open_model import open_model, path_of
from deploykit.freezing.sidecar import About, about, check_graph_output
from deploykit.input.preprocessing import preprocessing_of
from deploykit.rewriting.rewrite import Rewriting
from deploykit.text.progress import working
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import split


def freeze(
    source: Any,
    *,
    preprocess: Any = None,
    labels: Any = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> Graph:
    """Read a model and return it as a frozen graph: no variables, no function calls.

    What its callers know of it, such as the names of its signatures, is on the graph as `about`,
    and is written beside it as `X.pb.json`.

    Args:
        source: whatever `open_model` takes.
        preprocess: what becomes of photos and other data before they are fed: a JSON file, or what
            it holds. Every command that reads the graph's file finds it there.
        labels: names of the classes, in the order of the scores: a text file with one a line, or
            the names; found likewise.
        output: a `.pb` file to write too.
        force: whether to replace it where it exists.
        options: fields of `Source`: `inputs`, `outputs`, `tags`, `signature`, `pins`, `graph`. A
            boolean placeholder that is not among the inputs and is named like `is_training` is
            pinned to false without being asked.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, or has no such tags or signature. RefusedError: it holds code.

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="frozen.pb")
        >>> graph.inputs, graph.outputs
        (('images',), ('probabilities',))
    """
    if output is not None:
        check_graph_output(output, force, *path_of(source))
    with working("freeze"):
        model = open_model(source, **options)
        graph = model.frozen
    if graph is model.graph:
        graph = graph.copy()
    graph.about = _told(graph, preprocess, labels)
    size = None if output is None else save_graph(graph, output, force=force)
    graph.report = Rewriting(model, model.nodes, bytes=size)
    return graph


def _told(graph: Graph, preprocess: Any, labels: Any) -> About:
    """Return what is known of a graph, with what the user says. GraphError: it does not fit."""
    known = about(graph)
    if preprocess is not None:
        declared = preprocessing_of(preprocess)
        names = [split(tensor)[0] for tensor in graph.inputs]
        for name in declared.inputs:
            if split(name)[0] not in names:
                raise GraphError(
                    f"the preprocessing is for input '{name}', but the model's inputs are: "
                    f"{', '.join(names)}"
                )
        known = replace(known, preprocessing=declared.document())
    if isinstance(labels, str | os.PathLike):
        labels = read_labels(os.fspath(labels))
    return known if labels is None else replace(known, labels=tuple(labels))
