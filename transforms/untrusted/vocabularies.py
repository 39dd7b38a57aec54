"""The vocabulary files of a model's tables: files of the model, and no others.

TensorFlow opens any path in a model. A malicious model could read a file of the machine that
freezes it, and the frozen graph would publish its contents.
"""

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deploykit.transforms.common.errors import GraphError, LimitError, RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.protos import AssetFileDef, MetaGraphDef
from deploykit.transforms.untrusted.files import check_regular, readable_size
from deploykit.transforms.untrusted.side_effects import READING_FILES, Effect, effects_in

MAX_BYTES = 1 << 30  # of a vocabulary, as the frozen graph contains it and is limited to 2 GiB


@dataclass(frozen=True)
class Vocabularies:
    """The locations of a model's files."""

    assets: Mapping[str, Path] = field(default_factory=dict)
    """Files by the names of the nodes that contain their paths."""
    folder: Path | None = None
    """The folder of the model; no path may lead out of it."""

    @classmethod
    def of(cls, meta: MetaGraphDef, path: Path) -> "Vocabularies":
        """Find the files. RefusedError: one is elsewhere. GraphError: the list is damaged.

        `path` is the folder of a SavedModel, or the prefix of a checkpoint.
        """
        assets = {
            producer_name(asset.tensor_info.name): path / "assets" / _own_name(asset.filename)
            for asset in _assets(meta)
        }
        return cls(assets, path if path.is_dir() else path.parent)

    def put_into(self, graph: Graph) -> None:
        """Set the nodes with paths of files to the current paths of these files."""
        for name, path in self.assets.items():
            if name in graph:
                graph.replace(graph[name], _constant(name, path))

    def check(self, graph: Graph) -> None:
        """Raise FileError for a file that is read but missing. LimitError: it is too large."""
        for name, path in self.assets.items():
            if name in graph:
                _check_size(path)

    def take_from_beside(self, graph: Graph) -> None:
        """Make tables read the files of the same names next to the model.

        LimitError: a file is too large.
        """
        for node in graph:
            path = _path_read(graph, node) if node.op in READING_FILES else ""
            if path and self.folder is not None:
                is_own = self._is_own(path)
                own = Path(path) if is_own else self.folder / Path(path).name
                if own.is_file():
                    _check_size(own)
                if own.is_file() and not is_own:
                    name = producer_name(_source(graph, node.data_inputs[1]))
                    graph.replace(graph[name], _constant(name, own))

    def effects(self, graph: Graph) -> list[Effect]:
        """Return the effects of a graph except for reading the model's files.

        Functions that are not inlined do not show the path of the file that they read, so each
        counts.
        """
        nodes = {f"node '{node.name}'" for node in graph if node.op in READING_FILES}
        results = [effect for effect in effects_in(graph) if effect.where not in nodes]
        for node in graph:
            if node.op in READING_FILES and not self._is_own(path := _path_read(graph, node)):
                what = f"the file {path}" if path else "a file whose name it computes"
                does = (
                    f"reads {what}, which is not one of the model's files; copy it into "
                    f"{self.folder or 'a folder with the model'}, or save the model as a "
                    "SavedModel, which takes its files along"
                )
                results.append(Effect(f"node '{node.name}'", node.op, does))
        return results

    def refuse_side_effects(self, graph: Graph, allowed: Container[str] = ()) -> None:
        """Raise RefusedError if a graph has other effects than reading the model's files.

        `allowed` are permitted ops.
        """
        for effect in self.effects(graph):
            if effect.op not in allowed:
                raise RefusedError(
                    "reads-file", what=effect.where, op=effect.op, reason=effect.does
                )

    def refuse_paths(self, graph: Graph, before: Graph) -> None:
        """Raise GraphError if a frozen graph needs the path of a file, which it cannot contain.

        `before` is the graph as it was read: when TensorFlow loads a SavedModel, it replaces the
        path by that of the SavedModel's copy.
        """
        for name, path in self.assets.items():
            if name not in graph or name not in before or graph.is_input(name):
                continue
            if (graph[name].op, graph[name].attrs) == (before[name].op, before[name].attrs):
                readers = [consumer.name for consumer in graph.consumers(name)]
                raise GraphError(
                    "asset-path-in-graph",
                    node=name,
                    file=path.name,
                    readers=readers or ["the caller"],
                )

    def _is_own(self, path: str) -> bool:
        """Return whether a file is one of the model's assets, or next to the model."""
        beside = bool(path) and Path(path).parent == self.folder
        return beside or Path(path) in self.assets.values()


def forget_reading(graph: Graph, table: str) -> None:
    """Remove the control inputs that fill a table from a file in each call."""
    for reading in [reader for reader in graph.readers(table) if reader.op in READING_FILES]:
        for waiting in graph.consumers(reading.name):
            graph.replace(waiting, waiting.without_control_inputs(f"^{reading.name}"))


def _assets(meta: MetaGraphDef) -> list[AssetFileDef]:
    """Return the vocabulary files: TensorFlow 1 stores them in a collection."""
    from google.protobuf.message import DecodeError

    packed = meta.collection_def["saved_model_assets"].any_list.value
    try:
        return list(meta.asset_file_def) or [AssetFileDef.FromString(item.value) for item in packed]
    except DecodeError:
        raise GraphError("assets-damaged") from None


def _own_name(filename: str) -> str:
    """Return the name of a file in the folder of assets. RefusedError: it leads elsewhere."""
    if filename in ("", ".", "..") or "/" in filename or "\0" in filename:
        raise RefusedError("asset-outside", name=filename)
    return filename


def _check_size(path: Path) -> None:
    size = check_regular(path).st_size
    if size > MAX_BYTES:
        raise LimitError(
            "vocabulary-too-large",
            source=path,
            size=readable_size(size),
            most=readable_size(MAX_BYTES),
        )


def _path_read(graph: Graph, node: Node) -> str:
    """Return the path of the file that fills a table; '': the path is computed."""
    constant = graph.constant(_source(graph, node.data_inputs[1]))
    values = [] if constant is None else constant.value.reshape(-1).tolist()
    return os.fsdecode(values[0]) if len(values) == 1 and isinstance(values[0], bytes) else ""


def _source(graph: Graph, tensor: str) -> str:
    """Return the tensor whose value a tensor has; TensorFlow 2 stores paths in variables."""
    tensor = graph.source(tensor)
    read = graph.producer(tensor)
    if read.op == "ReadVariableOp":
        variable = _variable(graph, read)
        setters = [
            n for n in graph if n.op == "AssignVariableOp" and _variable(graph, n) == variable
        ]
        if len(setters) == 1:
            return graph.source(setters[0].data_inputs[1])
    return tensor


def _variable(graph: Graph, node: Node) -> object:
    """Return the identity of the variable that a node reads or sets."""
    handle = graph.producer(graph.source(node.inputs[0]))
    return handle.attr("shared_name") or handle.name


def _constant(name: str, path: Path) -> Node:
    return Node.constant(name, np.array(str(path), object))
