"""The files of a model, whose contents are parsed at most once, and SavedModels of all versions."""

import functools
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploykit.importers.graph_files import graph_bytes
from deploykit.importers.initializers import Initialisers
from deploykit.importers.meta_graphs import (
    functions,
    read_meta_graph,
    signature_sides,
    signatures,
    tags_of,
    whole_graph,
)
from deploykit.importers.metadata_file import SignatureNames
from deploykit.importers.model_path import Location, locate, meta_bytes
from deploykit.importers.model_source import ModelSource
from deploykit.importers.unusual_ops import has_boolean_placeholder
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef, MetaGraphDef, NodeDef, SavedModel
from deploykit.transforms.untrusted.side_effects import Effect, may_act
from deploykit.transforms.untrusted.validate import GraphParts, survey
from deploykit.transforms.untrusted.wire import binary_form, check_growth, decoded, fields

logger = logging.getLogger("deploykit")

CALL = "__call__"
_SERVE = "serve"
_SERVING = frozenset({_SERVE})
_UNUSABLE = ("tpu", "train")  # tags of graphs that do not run here or that train; worst first
_NOT_FOR_SERVING = frozenset({*_UNUSABLE, "eval"})

_META_GRAPHS = 2  # the field of a SavedModel


def meta_graph_bytes(path: Path) -> list[bytes]:
    """Return the serialized MetaGraphDefs of a `saved_model.pb` or `.pbtxt`.

    GraphError: the file is damaged, or too large once decoded.
    """
    content = read_bytes(path)
    try:
        if path.suffix == ".pbtxt":
            content = binary_form(content, SavedModel)
        check_growth(content, SavedModel)
    except GraphError as error:
        raise GraphError("not-a", what="a SavedModel", reason=error) from None
    metas = [content[begin:end] for _, begin, end in fields(content, _META_GRAPHS)]
    if not metas:
        raise GraphError("saved-model-without-graph")
    return metas


def parse_saved_model(path: Path, tags: Sequence[str] = ()) -> MetaGraphDef:
    """Return the MetaGraphDef with exactly these tags from a `saved_model.pb` or `.pbtxt`.

    An empty tag selects the graph without tags. The default is the graph tagged `serve`, or the
    only one that can run here, which is logged. If several have the same tags, the first one is
    used with a warning, as in TensorFlow.
    GraphError: the file is damaged, or no MetaGraphDef has the tags; it lists the existing tags.
    """
    by_tags: dict[frozenset[str], list[bytes]] = {}
    for meta in meta_graph_bytes(path):
        by_tags.setdefault(frozenset(tags_of(meta)), []).append(meta)
    expected = frozenset(filter(None, tags)) if tags else _default_tags(list(by_tags))
    if expected not in by_tags:
        raise GraphError(
            "saved-model-tags-missing", wanted=_shown(expected), known=_listed(by_tags)
        )
    first, *others = by_tags[expected]
    if others:
        logger.warning(
            "the SavedModel has %d graphs with %s: using the first one, as TensorFlow does",
            len(others) + 1,
            _shown(expected),
        )
    return read_meta_graph(first)


def _default_tags(known: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the tags of the graph to use if the caller specifies none.

    Graphs with `serve` among their tags are preferred. TF1 Hub modules have one graph without tags
    and one tagged `train`. GraphError: several graphs remain.
    """
    if _SERVING in known:
        return _SERVING
    left = [tags for tags in known if tags >= _SERVING] or list(known)
    for unusable in _UNUSABLE:
        left = [tags for tags in left if unusable not in tags] or left
    if len(left) > 1:
        raise GraphError("saved-model-tags-ambiguous", tag=_SERVE, known=_listed(known))
    chosen = ",".join(sorted(left[0]))
    unfit = ", ".join(sorted(left[0] & _NOT_FOR_SERVING))
    logger.log(
        logging.WARNING if unfit else logging.INFO,
        "no graph has exactly the tag '%s': using the one %s%s (--tags \"%s\")",
        _SERVE,
        f"tagged '{chosen}'" if chosen else "without tags",
        f", though graphs for {unfit} may give other outputs, or fail" if unfit else "",
        chosen,
    )
    return left[0]


def _shown(tags: Iterable[str]) -> str:
    names = ",".join(sorted(tags))
    return f"the tags {names}" if names else "no tags"


def _listed(known: Iterable[frozenset[str]]) -> list[str]:
    """Return the tags of each graph, with the option that selects a graph without tags."""
    return [",".join(sorted(item)) or '(none: --tags "")' for item in known]


def function_to_load(meta: MetaGraphDef, name: str | None) -> str | None:
    """Return the function that needs TensorFlow's loader, or None if a signature is used.

    It is the requested function; without signatures, `__call__` or the only function.
    """
    known = functions(meta)
    if name is not None:
        return name if name in known and name not in signatures(meta) else None
    if signatures(meta):
        return None
    if len(known) > 1 and CALL not in known:
        return None
    return CALL if CALL in known else next(iter(known), None)


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
