"""verify and check: compare the outputs of two models, and validate one."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.importers.freeze import naming_errors
from deploykit.importers.graph_files import graph_bytes, load_graph
from deploykit.importers.model_files import ModelFiles, meta_graph_bytes
from deploykit.importers.model_path import Checkpoint, Location, meta_bytes
from deploykit.importers.model_source import Interface, ModelSource, source_of
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.inspection.soundness import GraphMetadata, graph_metadata, meta_graph_metadata
from deploykit.rendering.progress import working
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.documents import AsHtml, Hidden, written
from deploykit.transforms.common.errors import Error, GraphError, RefusedError
from deploykit.transforms.common.flag import ALLOW_OP, Flag
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.runtime.importing import ImportCheck
from deploykit.transforms.untrusted.side_effects import cut_off
from deploykit.transforms.untrusted.vocabularies import Vocabularies
from deploykit.transforms.untrusted.wire import decoded
from deploykit.verification.verify import Verification

logger = logging.getLogger("deploykit")


@public(Command(heading="Check", runs_graph=True))
def verify(
    reference: ModelLike,
    result: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    min_sqnr: Annotated[float | None, Flag(metavar="DB")] = None,
) -> Verification:
    """Compare the outputs of two models.

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE. Also exits with 5
    if nothing was compared, because REFERENCE cannot run or has the same output for every input.

    Both run on the same inputs, without TensorFlow's graph optimizer. If an output is a Softmax,
    its input is compared too. In --json, infinite values are null, such as the signal-to-noise
    ratio of equal outputs. "verified" is false if nothing was compared.

    Args:
        reference: the model with the expected outputs; any model that `open_model` accepts.
        result: the model to compare with it.
        how: the inputs and the tolerance of the comparison.
        min_sqnr: Smallest signal-to-noise ratio allowed in dB, instead of --tolerance [default for
            a quantized RESULT: 15].

    If the reference does not run on synthetic inputs, the result has `verified=False` and a reason.
    GraphError: TensorFlow cannot load the reference, or the data does not match its inputs.

    Commands:
        deploykit verify fashion.pb optimized.pb --data models/fashion/test_1000.npz
        deploykit verify fashion.pb weights.pb --min-sqnr 20

    Example:
        >>> graph = deploykit.freeze("fashion.keras")
        >>> deploykit.verify(graph, deploykit.optimize(graph)).passed
        True
    """
    with working("verify"):
        first, second = how.opened(reference), open_model(result)
        for item in (first, second):
            item.refuse_effects(how.allow_ops)
        value = how.ready(first.graph, min_sqnr)(first.graph, second.graph)
    if value.doubt:
        logger.warning("%s: %s", first.source, value.doubt)
    return replace(value, models=(first, second))


@dataclass(frozen=True)
class ValidationReport(AsHtml):
    """The result of validating a model."""

    source: Hidden[str]
    graphs: tuple[GraphMetadata, ...]
    """The report of each graph; only a SavedModel may have several."""
    bytes: Hidden[int | None] = None
    """The size of the model's files in bytes; None for a model in memory."""

    @property
    @written()
    def sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """The reasons why the model is invalid."""
        return [problem for graph in self.graphs for problem in graph.problems]

    @property
    @written()
    def refused_ops(self) -> list[str]:
        """The ops that act on files, the network or processes and are not allowed."""
        uses = [use for graph in self.graphs for use in graph.effects if not use.allowed]
        return list(dict.fromkeys(use.op for use in uses))

    @property
    def error(self) -> Error | None:
        """The error to raise for an invalid or refused model; None if the model is accepted."""
        if self.problems:
            more = len(self.problems) - 1
            others = f" (and {more} problem{'s' * (more > 1)} more)" if more else ""
            return GraphError(
                "graph-invalid", source=self.source, problem=self.problems[0], others=others
            )
        if self.refused_ops:
            options = " ".join(f"--allow-op {op}" for op in self.refused_ops)
            uses = [use for graph in self.graphs for use in graph.effects if not use.allowed]
            feed = next((graph.feed for graph in self.graphs if graph.feed), ())
            cut = f"freeze it with {cut_off(feed)}, or " if feed else ""
            return RefusedError(
                "acts-beyond-graph",
                source=self.source,
                node=uses[0].nodes[0],
                ops=self.refused_ops,
                cut=cut,
                options=options,
            )
        return None


@public(Command())
def check(
    model: ModelLike, *, allow_ops: Annotated[Collection[str], ALLOW_OP] = ()
) -> ValidationReport:
    """Validate a model before any part of it runs.

    Exits with 2 if the model is invalid. Examples: a node does not match its op, an output needs an
    op that TensorFlow does not know, or a function calls itself endlessly. A model is also invalid
    if it requests far more memory than its file size, or if TensorFlow's importer rejects it.

    Exits with 3 if the model is valid but contains ops that act on files, the network or processes.
    Ops that store the variables of a SavedModel or a checkpoint are allowed. All findings are
    always printed.

    deploykit checks the bytes of the file before it decodes them, and runs TensorFlow in a separate
    process.

    Args:
        model: any model that `open_model` accepts; a `ModelSource` may name outputs.
        allow_ops: Accept this op, which acts on files, the network or processes; may be repeated.

    An invalid model raises no error: the result has `problems`, and `error` is the error to raise.
    FileError: a file of the model or of its variables is missing or unreadable. GraphError: the
    model lacks the named input, output, tags or signature. RefusedError: an asset file is outside
    the model's folder.

    Commands:
        deploykit check models/fashion/fashion.keras
        deploykit check model.pb --allow-op ReadFile --json

    Example:
        >>> found = deploykit.check("fashion.keras")
        >>> found.problems, found.refused_ops
        ([], [])
    """
    source = source_of(model)
    with working("check"), ImportCheck() as tensorflow:
        if not path_of(source):
            opened = open_model(source)
            content = b"".join(opened.graph.serialized())
            facts = graph_metadata(content, tensorflow, allow_ops)
            facts.check_custom_ops(are_needed=True)
            return ValidationReport(opened.source, (facts,))
        files = ModelFiles(source)
        with naming_errors(files.path):
            try:
                graphs = _graphs(files, source, tensorflow, allow_ops)
            except GraphError as error:
                graphs = (GraphMetadata(problems=[str(error).removeprefix(f"{files.path}: ")]),)
        are_needed = _needs_custom_ops(source, graphs)
        for facts in graphs:
            facts.check_custom_ops(are_needed)
        return ValidationReport(files.path, graphs, files.location.bytes)


def _needs_custom_ops(source: ModelSource, graphs: Sequence[GraphMetadata]) -> bool:
    """Return whether the outputs need an op that TensorFlow does not have.

    GraphError: the model lacks an input, output, tags or signature that the source names.
    """
    is_named = source.interface != Interface()
    custom = [use.op for facts in graphs for use in facts.custom_ops]
    if any(facts.problems for facts in graphs) or not (custom or is_named):
        return True
    try:
        open_model(source)
    except GraphError as error:
        if is_named and not any(op in str(error) for op in custom):
            raise
        return True
    return False


def _graphs(
    files: ModelFiles, source: ModelSource, tensorflow: ImportCheck, allow_ops: Collection[str]
) -> tuple[GraphMetadata, ...]:
    """Return the reports of the graphs in a model's files. GraphError: they cannot be read."""
    path = files.location.proto if source.graph is None else source.graph
    if files.kind == "keras":
        content = b"".join(open_model(source).graph.serialized())
    elif files.kind == "graph" or source.graph is not None:
        content = graph_bytes(read_bytes(path))
    else:
        is_saved, proto = files.kind == "saved_model", files.location.proto
        result = meta_graph_bytes(proto) if is_saved else [meta_bytes(proto)]
        graphs = tuple(meta_graph_metadata(item, tensorflow, allow_ops) for item in result)
        for item in result:
            Vocabularies.of(decoded(item, MetaGraphDef), files.location.path)
        _check_values(files.location, graphs)
        return graphs
    answering = partial(load_graph, path, source.inputs, source.outputs)
    return (graph_metadata(content, tensorflow, allow_ops, answering=answering),)


def _check_values(location: Location, graphs: Sequence[GraphMetadata]) -> None:
    """Check the files with the values of a model's variables, and add their problems to a graph.

    FileError: a file is missing or cannot be read.
    """
    values = location.checkpoint or Checkpoint(location.path / "variables", "variables")
    if not any(graph.variables for graph in graphs) and not values.files:
        return
    try:
        values.check()
    except GraphError as error:
        graphs[0].problems.append(str(error))
