"""A trained model becomes a frozen graph."""

import os
from typing import Any

from deploykit.freezing.graph_files import save_graph
from deploykit.freezing.open_model import open_model, path_of
from deploykit.freezing.sidecar import check_graph_output
from deploykit.text.progress import working
from deploykit.transforms.core.graph import Graph


def freeze(
    source: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> Graph:
    """Read a model and return it as a frozen graph: no variables, no function calls.

    What its callers know of it, such as the names of its signatures, is on the graph as `about`,
    and is written beside it as `X.pb.json`.

    Args:
        source: whatever `open_model` takes.
        output: a `.pb` file to write too.
        force: whether to replace it where it exists.
        options: fields of `Source`: `inputs`, `outputs`, `tags`, `signature`, `pins`, `graph`. A
            boolean placeholder that is not among the inputs and is named like `is_training` is
            pinned to false without being asked.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, or has no such tags or signature. RefusedError: it holds code.

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="fashion.pb")
        >>> graph.inputs, graph.outputs
        (('image',), ('scores',))
    """
    if output is not None:
        check_graph_output(output, force, *path_of(source))
    with working("freeze"):
        model = open_model(source, **options)
        graph = model.frozen
    if graph is model.graph:
        graph = graph.copy()
    graph.report = model
    if output is not None:
        save_graph(graph, output, force=force)
    return graph
