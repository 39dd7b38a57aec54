"""freeze: turn the variables of a model into constants."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.data.labels import ClassNames
from deploykit.data.preprocessing import declared_for
from deploykit.data.samples import open_samples, with_axes
from deploykit.importers.metadata_file import About, about
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import ModelLike, OpenedModel, open_model
from deploykit.pipelines.live_keras import Feed, checked_against_live, live_feeds, live_model
from deploykit.pipelines.rewrite import OutputFiles, Rewriting
from deploykit.rendering.progress import Work, working
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.flag import FORCE, Flag, output_flag
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import reused_children
from deploykit.verification.samples import LabelsLike, PathLike, PreprocessLike
from deploykit.verification.verify import Verification


@public(Command(heading="Model metadata", runs_graph=True, writes_result=False), interface=())
def freeze(
    model: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    preprocess: Annotated[PreprocessLike | None, Flag(metavar="FILE.json|LO..HI")] = None,
    labels: LabelsLike | None = None,
    output: Annotated[PathLike | None, output_flag(".frozen.pb")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Graph:
    """Turn the variables of a model into constants.

    MODEL is a SavedModel folder, a checkpoint prefix with its .meta file (or `graph`), a .keras or
    .h5 file, or a frozen graph (.pb, .pbtxt). Functions are inlined, and lookup tables are stored
    in the graph. A boolean placeholder with a name like is_training becomes false, unless it is an
    input.

    deploykit loads and runs the new file once, and compares its outputs with those of the original
    graph. Nothing is written if they differ, or if they could not be compared.

    Args:
        model: any model that `open_model` accepts.
        how: the inputs and the tolerance of the comparison with the model.
        preprocess: Preprocessing of the model's data, in the same format as for calibrate and
            benchmark. It is stored in the model metadata file, where other commands find it.
        labels: File with the class names, one per line. They are stored in the model metadata file,
            where deploykit label finds them.
        output: also write the graph to this `.pb` file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is invalid,
    or lacks the tags or signature. RefusedError: the model contains code, or an op acts on files or
    processes. VerificationError: the outputs of the written file differ, or nothing could be
    compared.

    Commands:
        deploykit freeze models/fashion/fashion.keras -o fashion.pb
        deploykit freeze models/fashion/tf1/model.ckpt -o checkpoint.pb

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="frozen.pb")
        >>> graph.inputs, graph.outputs
        (('images',), ('probabilities',))
    """
    source = source_of(model)
    target = OutputFiles(output, force)
    target.check(source)
    with working("freeze") as work, reused_children():
        opened = with_axes(open_model(source), preprocess)
        opened.refuse_effects(how.allow_ops)
        graph = opened.frozen.copy()
        graph.about = _told(graph, preprocess, labels)
        if output is None:
            graph.report = Rewriting(opened, opened.nodes, nodes_out=len(graph))
            return graph
        if how.data is not None:
            how = replace(how, preprocess=preprocess, labels=labels)
        graph.report = _written(opened, graph, how, target, work)
    return graph


def _written(
    model: OpenedModel, graph: Graph, how: VerifyOptions, target: OutputFiles, work: Work
) -> Rewriting:
    """Compare the graph's file with the model, write it, and return a report."""
    proof = replace(how.proof(model), is_same=model.reference is model.frozen)

    def check(path: Path | None) -> Verification:
        work("run the file", 0)
        value = proof.checked(graph, path)
        live = live_model(model)
        if path is None or live is None or not value.verified:
            return value
        feeds, strict = _live_feeds(graph, how), not how.allow_unverified
        return checked_against_live(value, live, graph, path, feeds, strict)

    size, result = target.write(graph, check)
    return Rewriting(model, model.nodes, verification=result, bytes=size, nodes_out=len(graph))


def _live_feeds(graph: Graph, how: VerifyOptions) -> list[Feed]:
    """Return feeds of two batch sizes for a live model, from the user's data if given."""
    if how.data is None:
        return live_feeds(graph, how.input_range, how.shapes)
    samples = open_samples(how.data, graph, how.read_by, labels=how.labels)
    sizes = (samples.batch,) if samples.batch else (4, 2)
    first = [samples.feeds(size)[0] for size in sizes]
    return [[feed[tensor] for tensor in graph.inputs] for feed in first]


def _told(graph: Graph, preprocess: PreprocessLike | None, labels: LabelsLike | None) -> About:
    """Return the graph's metadata, updated with the user's. GraphError: it does not match."""
    known = about(graph)
    if preprocess is not None:
        declared = declared_for(graph, preprocess).among(graph)
        known = replace(known, preprocessing=document(declared))
    return replace(known, labels=ClassNames.of(graph, labels).names)
