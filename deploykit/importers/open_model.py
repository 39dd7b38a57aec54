"""Opening models: a model of any kind is read once and then passed between commands."""

import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from deploykit.importers.freeze import (
    freeze_files,
    freeze_graph,
    freeze_live,
    is_live,
    name_of,
    naming_errors,
    runs_as_it_stands,
)
from deploykit.importers.graph_files import load_importable_graph
from deploykit.importers.meta_graphs import (
    DEFAULT_SIGNATURE,
    chosen_signature,
    inputs_by_alias,
    signature_sides,
)
from deploykit.importers.metadata_file import About, SignatureNames, about
from deploykit.importers.model_files import (
    ModelFiles,
    Original,
    function_to_load,
    initial_effects,
    original_of,
)
from deploykit.importers.model_source import Interface, ModelSource, source_of
from deploykit.importers.signature import check_outputs, guess_inputs, guess_outputs
from deploykit.importers.unusual_ops import leave_out_unknown_ops
from deploykit.storage.parameters import with_options
from deploykit.storage.resume_file import digest
from deploykit.transforms.common.documents import AsHtml
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.importing import ImportCheck, light_form
from deploykit.transforms.untrusted.side_effects import WAITS, Effect, effects_in, refuse
from deploykit.transforms.untrusted.validate import GraphParts, check_ends, read_graph

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class OpenedModel(AsHtml):
    """A model as a graph, with its metadata. It is read only once.

    The graph of a GraphDef file is unchanged; the graph of any other model is frozen.
    """

    graph: Graph
    interface: Interface
    """Names of its inputs and outputs, and the requested tags and signature."""
    signatures: Mapping[str, SignatureNames]
    """Its signatures: tensors by the aliases that clients use."""
    source: str
    """Path of the model, or a description if it was in memory."""
    requested: ModelSource
    files: ModelFiles | None = None
    """Files of the model; None if it was in memory."""
    is_cut: bool = False
    """Whether nodes of a GraphDef were removed that TensorFlow cannot import."""

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the model's concatenated files, or of the graph if it was in memory."""
        if self.files is not None:
            return self.files.sha256
        return digest(self.graph.serialized())

    @functools.cached_property
    def frozen(self) -> Graph:
        """The graph without variables, function calls and training switches."""
        if self.files is None or self.files.kind != "graph":
            return self.graph
        with naming_errors(self.source):
            return freeze_graph(self.graph, self.requested)

    @functools.cached_property
    def reference(self) -> Graph:
        """The graph that rewritten graphs are compared with: the original one if it can run."""
        return self.graph if runs_as_it_stands(self.graph, self.requested) else self.frozen

    def file_of(self, graph: Graph) -> str | None:
        """Return the path of the file with exactly this graph, or None."""
        is_file = self.files is not None and self.files.kind == "graph" and not self.is_cut
        if self.files is None or not is_file or graph is not self.graph:
            return None
        return str(self.files.location.path)

    @functools.cached_property
    def original(self) -> Original | None:
        """The SavedModel to run in TensorFlow for comparison with the frozen graph, or None.

        Only a SavedModel whose frozen graph has the same outputs has one.
        """
        if self.files is None or self.files.kind != "saved_model" or self.requested.pins:
            return None
        return original_of(self.files, self.graph, self.signatures)

    @functools.cached_property
    def effects(self) -> list[Effect]:
        """Side effects on files, the network or processes, including those of loading."""
        if self.files is None or self.files.kind != "saved_model":
            return effects_in(self.graph)
        return [*effects_in(self.graph), *initial_effects(self.files)]

    def refuse_effects(self, allowed: Iterable[str] = (), *, runs: bool = True) -> None:
        """Raise RefusedError if ops other than `allowed` access files, the network or processes.

        If `runs` is False, the model is not run, and ops that wait for input are only logged.
        """
        waits = [effect for effect in self.effects if effect.does == WAITS and not runs]
        for wait in waits:
            logger.info("%s: %s", self.source, wait)
        with naming_errors(self.source):
            refuse((effect for effect in self.effects if effect not in waits), allowed)

    @property
    def about(self) -> About:
        """Metadata for graphs derived from it: signatures, preprocessing and labels."""
        return about(self.graph)

    @property
    def bytes(self) -> int | None:
        """Total size of its files in bytes; None if it was in memory."""
        return None if self.files is None else self.files.location.bytes

    @property
    def nodes(self) -> int | None:
        """Number of nodes on disk; None for a Keras file, which contains layers."""
        if self.files is None or self.files.kind == "graph":
            return len(self.graph)
        return self.files.nodes


def open_model(model: Any, *, needs_output: bool = True, **options: Any) -> OpenedModel:
    """Read a model and return it with its metadata.

    Args:
        model: a SavedModel folder, a checkpoint prefix (or its `.meta` or `.index` file, or the
            folder with the file `checkpoint`), a `.keras` or `.h5` file, a frozen `.pb` or
            `.pbtxt` file, or a folder that `ship` wrote. Also an in-memory `keras.Model`, a
            `tf.function` with an input signature, a GraphDef, a Graph, or a `ModelSource`.
        needs_output: whether a GraphDef without a recognizable output is refused.
        options: fields of `ModelSource`: `inputs`, `outputs`, `tags`, `signature`, `pins`, `graph`.

    FileError: a file is missing or unreadable. GraphError: the model is invalid, or lacks the
    requested tags, signature, input or output. RefusedError: it contains code. TypeError: the
    object is not a model.

    Example:
        >>> model = deploykit.open_model("fashion.keras")
        >>> model.graph.inputs
        ('images',)
    """
    if isinstance(model, OpenedModel):
        return _narrowed(model, options) if options else model
    (source,) = with_options("open_model", options, source_of(model))
    model = source.model
    if isinstance(model, OpenedModel):
        arguments = {field_.name: getattr(source, field_.name) for field_ in fields(source)}
        return open_model(model, **{k: v for k, v in arguments.items() if v and k != "model"})
    if isinstance(model, str | os.PathLike):
        return open_files(ModelFiles(source), source, needs_output)
    if isinstance(model, Graph):
        return _opened(source.interface.put_on(model.copy()), source, "a graph")
    if type(model).__name__ == "GraphDef":
        return _opened(_of_graph_def(model, source), source, "a GraphDef")
    if is_live(model):
        return _opened(freeze_live(model, source), source, name_of(model))
    raise TypeError(
        f"a {type(model).__name__} is not a model; pass a path, a keras.Model, a tf.function, a "
        "GraphDef or a Graph"
    )


def open_models(models: Any, **options: Any) -> dict[str, OpenedModel]:
    """Open several models; return them by name: the keys of a mapping, or their sources.

    Args:
        models: a model that `open_model` accepts, a list of them, or a mapping from names.
        options: options of `open_model`, applied to all models.

    It raises the errors of `open_model`.
    """
    if isinstance(models, Mapping):
        return {str(name): open_model(item, **options) for name, item in models.items()}
    opened_models: dict[str, OpenedModel] = {}
    for entry in models if isinstance(models, list | tuple) else (models,):
        model = open_model(entry, **options)
        name, count = model.source, 1
        while name in opened_models:
            count += 1
            name = f"{model.source} ({count})"
        opened_models[name] = model
    return opened_models


def path_of(model: Any) -> tuple[str, ...]:
    """Return a tuple with the path of a model, or () if it is in memory."""
    path = model.model if isinstance(model, ModelSource) else model
    if isinstance(path, OpenedModel):
        return () if path.files is None else (path.source,)
    return (os.fspath(path),) if isinstance(path, str | os.PathLike) else ()


def open_files(files: ModelFiles, source: ModelSource, needs_output: bool = True) -> OpenedModel:
    """Open a model on disk; contents that `files` has already parsed are reused."""
    if files.kind != "graph":
        with ImportCheck() as tensorflow:
            graph = freeze_files(files, source)
            with naming(files.path):
                tensorflow.check(light_form(GraphParts.of(graph)))
        signatures = _signatures(files, source, graph)
        graph.about = About(signatures)
        return _opened(graph, source, files.path, files)
    graph, is_cut = load_importable_graph(
        files.location.path, source.inputs, source.outputs, needs_output=needs_output
    )
    source = replace(source, inputs=graph.inputs) if is_cut else source  # cutting may rename inputs
    return replace(_opened(graph, source, files.path, files), is_cut=is_cut)


def _warn_of_unused(model: OpenedModel) -> None:
    """Log options that have no effect on this model, as they may be meant for another one."""
    source, kind = model.requested, "graph" if model.files is None else model.files.kind
    is_unused = {
        "signature": source.signature is not None and source.signature not in model.signatures,
        "tags": bool(source.tags) and model.files is not None and kind in ("graph", "keras"),
        "graph": source.graph is not None and kind == "graph",
        "pins": kind == "graph" and not all(name in model.graph for name in source.pins),
    }
    for option, warns in is_unused.items():
        if warns:
            value = getattr(source, option)
            logger.warning("%s: %s %s has no effect on this model", model.source, option, value)


def _opened(
    graph: Graph, source: ModelSource, name: str, files: ModelFiles | None = None
) -> OpenedModel:
    """Return a graph as a model; without a signature, aliases are tensor names."""
    known = about(graph)
    chosen = source.signature
    if chosen is not None and chosen in known.signatures:
        known = replace(known, signatures={chosen: known.signatures[chosen]})
    elif not known.signatures:
        names = {t: t for t in graph.inputs}, {t: t for t in graph.outputs}
        known = replace(known, signatures={chosen or DEFAULT_SIGNATURE: SignatureNames(*names)})
    graph.about = known
    interface = Interface(graph.inputs, graph.outputs, tuple(source.tags), chosen)
    opened_model = OpenedModel(graph, interface, known.signatures, name, source, files)
    _warn_of_unused(opened_model)
    return opened_model


def _narrowed(model: OpenedModel, options: Mapping[str, Any]) -> OpenedModel:
    """Return an already opened model with other inputs and outputs."""
    (source,) = with_options("open_model", options, model.requested)
    graph = source.interface.put_on(model.graph.copy())
    result = _opened(graph, source, model.source, model.files)
    return replace(result, is_cut=model.is_cut)


def _of_graph_def(model: Any, source: ModelSource) -> Graph:
    """Freeze a GraphDef; it may belong to another copy of the protobuf classes."""
    graph = read_graph(model.SerializeToString())
    graph.inputs = tuple(source.inputs) or guess_inputs(graph)
    check_outputs(graph, source.outputs)
    graph.outputs = tuple(source.outputs) or guess_outputs(graph)
    check_ends(graph)
    if leave_out_unknown_ops(graph):
        source = replace(source, inputs=graph.inputs)
    return freeze_graph(graph, source)


def _signatures(files: ModelFiles, source: ModelSource, graph: Graph) -> dict[str, SignatureNames]:
    """Return the signatures of a model that was frozen from its files."""
    if files.kind == "keras" or source.graph is not None:
        return {}
    if function_to_load(files.meta, source.signature) is not None:
        return {}
    name = chosen_signature(files.meta, source.signature)
    if name is None:
        return {}
    fed, fetched = signature_sides(files.meta, name)
    if source.inputs:
        tensors = [fed.get(alias, alias) for alias in source.inputs]
        if len(graph.inputs) == len(tensors):  # cutting may have renamed them
            tensors = list(graph.inputs)
        fed = dict(zip(source.inputs, tensors, strict=True))
    if not fetched:
        raise GraphError("signature-without-outputs", name=name)
    outputs = dict(zip(source.outputs or fetched, graph.outputs, strict=True))
    method = files.meta.signature_def[name].method_name
    signature_names = SignatureNames(inputs_by_alias(graph, fed), outputs)
    return {name: replace(signature_names, method=method) if method else signature_names}


if TYPE_CHECKING:
    import tensorflow as tf

    LiveModel: TypeAlias = tf.keras.Model[Any, Any] | tf.Module
else:  # TensorFlow is not imported only for its types
    LiveModel = Any

ModelLike: TypeAlias = (
    str | os.PathLike[str] | ModelSource | OpenedModel | Graph | GraphDef | LiveModel
)
"""A SavedModel folder, a checkpoint, a Keras or GraphDef file, or a model in memory."""
ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike]
"""One model, a list of models, or models by name."""
