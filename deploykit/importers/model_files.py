"""The files of a model, whose contents are parsed at most once."""

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.importers.checkpoints import meta_bytes
from deploykit.importers.graph_files import graph_bytes
from deploykit.importers.initializers import Initialisers
from deploykit.importers.meta_graphs import read_meta_graph, signature_sides, whole_graph
from deploykit.importers.metadata_file import SignatureNames
from deploykit.importers.model_path import Location, locate
from deploykit.importers.model_source import ModelSource
from deploykit.importers.saved_models import parse_saved_model
from deploykit.importers.training_switches import has_boolean_placeholder
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef, MetaGraphDef, NodeDef
from deploykit.transforms.untrusted.graph_parts import GraphParts
from deploykit.transforms.untrusted.side_effects import Effect, may_act
from deploykit.transforms.untrusted.validate import survey
from deploykit.transforms.untrusted.wire import decoded


class ModelFiles:
    """A model on disk, with its selected graph."""

    def __init__(self, source: ModelSource) -> None:
        """Locate the model. FileError: the path does not exist or contains no model."""
        self.location: Location = locate(source.model)
        self._source = source

    @property
    def path(self) -> str:
        """The path as the user wrote it."""
        return str(self._source.model)

    @property
    def kind(self) -> str:
        """Kind of the model: graph, checkpoint, saved_model or keras."""
        return self.location.kind

    @functools.cached_property
    def meta(self) -> MetaGraphDef:
        """The MetaGraphDef of a SavedModel, a `.meta` file or a separate graph file."""
        if self._source.graph is not None:
            with naming(self._source.graph):
                content = graph_bytes(read_bytes(self._source.graph))
                survey(GraphParts.read(content))
                return MetaGraphDef(graph_def=decoded(content, GraphDef))
        if self.kind == "saved_model":
            return parse_saved_model(self.location.proto, self._source.tags)
        content = meta_bytes(self.location.proto)
        with naming(self.location.proto):
            return read_meta_graph(content)

    @functools.cached_property
    def nodes(self) -> int | None:
        """Number of nodes on disk; None for a GraphDef or a Keras file."""
        if self.kind in ("graph", "keras"):
            return None
        return sum(1 for _ in self.nodes_on_disk())

    def nodes_on_disk(self) -> Iterator[NodeDef]:
        """Yield the nodes of the graph and of its functions."""
        yield from self.meta.graph_def.node
        for body in self.meta.graph_def.library.function:
            yield from body.node_def

    @functools.cached_property
    def bytes(self) -> int:
        """Total size of the files in bytes."""
        return self.location.bytes

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the concatenated files."""
        digest = hashlib.sha256()
        for path in self.location.files:
            with Path(path).open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        return digest.hexdigest()


@dataclass(frozen=True)
class Original:
    """A SavedModel, with its tensors by the corresponding tensors of its frozen graph."""

    folder: str
    tags: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def original_of(
    files: ModelFiles, graph: Graph, signatures: Mapping[str, SignatureNames]
) -> Original | None:
    """Return the SavedModel signature that a graph was frozen from, to run it in TensorFlow.

    None: the model has a boolean placeholder, the tensors differ, or loading the model has side
    effects other than reading its files.
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
    try:
        if initial_effects(files):
            return None
    except GraphError:
        return None
    return Original(str(files.location.path), tuple(meta.meta_info_def.tags), inputs, outputs)


def initial_effects(files: ModelFiles) -> list[Effect]:
    """Return the side effects of loading a SavedModel, besides reading its vocabulary files."""
    if not any(may_act(node.op) for node in files.nodes_on_disk()):
        return []
    whole, location = whole_graph(files.meta), files.location
    return Initialisers.of(files.meta, whole, location.checkpoint, location.path).effects()
