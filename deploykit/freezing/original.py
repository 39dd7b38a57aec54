"""A SavedModel as TensorFlow itself loads and runs it, beside the graph that was frozen of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploykit.freezing.initializers import Initialisers
from deploykit.freezing.meta_graphs import signature_sides, whole_graph
from deploykit.freezing.model_files import ModelFiles
from deploykit.freezing.sidecar import SignatureNames
from deploykit.freezing.training_switches import has_boolean_placeholder
from deploykit.transforms.core.errors import GraphError, RefusedError
from deploykit.transforms.core.graph import Graph


@dataclass(frozen=True)
class Original:
    """A SavedModel, and its tensors by those of the graph that was frozen of it."""

    folder: str
    tags: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def original_of(
    files: ModelFiles, graph: Graph, signatures: Mapping[str, SignatureNames]
) -> Original | None:
    """Return how TensorFlow runs the signature that a graph was frozen of.

    None: a placeholder is pinned in the graph, the tensors are others, or loading the model would
    do more than read its own files.
    """
    name, meta = next(iter(signatures), ""), files.meta
    if name not in meta.signature_def or has_boolean_placeholder(meta.graph_def.node):
        return None
    known = signatures[name]
    inputs, outputs = (
        {tensor: side[alias] for alias, tensor in ours.items() if alias in side}
        for side, ours in zip(
            signature_sides(meta, name), (known.inputs, known.outputs), strict=True
        )
    )
    if set(inputs) != set(graph.inputs) or set(outputs) != set(graph.outputs):
        return None
    location = files.location
    try:
        whole = whole_graph(meta)
        Initialisers.of(meta, whole, location.checkpoint, location.path).refuse_side_effects()
    except (GraphError, RefusedError):
        return None
    return Original(str(location.path), tuple(meta.meta_info_def.tags), inputs, outputs)
