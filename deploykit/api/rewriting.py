"""freeze, transform and optimize."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.data.preprocessing import declared_for
from deploykit.data.samples import open_samples
from deploykit.importers.metadata_file import About, about
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.importers.signature import source_of
from deploykit.pipelines.live_keras import Feed, checked_against_live, live_feeds, live_model
from deploykit.pipelines.rewrite import OutputFiles, Rewriting, rewrite
from deploykit.pipelines.transform import OPTIMIZE, check_ranges_of
from deploykit.rendering.progress import Work, working
from deploykit.storage.image_files import read_labels
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.flag import FORCE, Flag, output_flag
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.child_process import reused_children
from deploykit.verification.samples import LabelsLike, ModelLike, PathLike, PreprocessLike
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

    deploykit loads and runs the new file once, and compares it with the graph as it was read.
    Nothing is written if they differ, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the written file is compared with the model.
        preprocess: Preprocessing of the model's data, in the form that calibrate and benchmark
            take. It is stored in the model metadata file, where other commands find it.
        labels: File with the class names, one per line. They are stored in the model metadata file,
            where deploykit label finds them.
        output: a `.pb` file to write too.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, or has no such tags or signature. RefusedError: it holds code, or acts on files or
    processes when it is run. VerificationError: the written file computes something else, or
    nothing could be compared.

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
        opened = open_model(source)
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
    """Write a graph once its file was compared with the model, and return what was found."""
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
    """Return feeds of two batch sizes for a live model, of the user's data where there are any."""
    if how.data is None:
        return live_feeds(graph, how.input_range, how.shapes)
    samples = open_samples(how.data, graph, how.preprocess, labels=how.labels)
    sizes = (samples.batch,) if samples.batch else (4, 2)
    first = [samples.feeds(size)[0] for size in sizes]
    return [[feed[tensor] for tensor in graph.inputs] for feed in first]


def _told(graph: Graph, preprocess: PreprocessLike | None, labels: LabelsLike | None) -> About:
    """Return what is known of a graph, with what the user says. GraphError: it does not fit."""
    known = about(graph)
    if preprocess is not None:
        declared = declared_for(graph, preprocess).among(graph)
        known = replace(known, preprocessing=document(declared))
    if isinstance(labels, str | os.PathLike):
        labels = read_labels(os.fspath(labels))
    return known if labels is None else replace(known, labels=tuple(labels))


@public(Command(heading="Transforms", writes_result=False))
def transform(
    model: Annotated[ModelLike, Flag("--in_graph --in-graph", format="home path", heading="Model")],
    transforms: Annotated[str, Flag("--transforms", metavar="STRING")],
    how: VerifyOptions = DEFAULT,
    *,
    output: Annotated[
        PathLike | None,
        Flag(
            "--out_graph --out-graph -o --output",
            format="home output",
            heading="Output",
            is_required=True,
        ),
    ] = None,
    force: Annotated[bool, FORCE] = False,
    verify: Annotated[bool, Flag(heading="Check")] = False,
    as_text: Annotated[
        bool, Flag("--output_as_text --output-as-text", format="true or false", heading="Output")
    ] = False,
    dump: Annotated[
        PathLike | None, Flag(format="home path", metavar="DIR", heading="Output")
    ] = None,
) -> Graph:
    """Run transforms on a graph, in the order given.

    Takes the same flags and transform string as transform_graph of the Graph Transform Tool.
    `deploykit transforms` lists the transforms, and `deploykit transforms NAME` explains one.

    If `verify` finds a difference, deploykit names the first step that changes the outputs too
    much, writes no out_graph, and exits with 5. With `dump`, DIR keeps the graphs before that step.

    Args:
        model: Graph to read.
        transforms: Transforms to run in order, such as 'fold_constants(ignore_errors=true)
            fold_batch_norms'; package.module:function is your own transform.
        how: with `verify`: on which inputs, and against which bar.
        output: Graph to write.
        verify: Run the graph before and after. If the outputs differ, write nothing and name the
            step that caused it.
        as_text: Write the graph as text.
        dump: Write the graph after each step to this folder: DIR/01-NAME.pb and so on.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    RefusedError: the model acts on files or processes.
    VerificationError: the result differs, and the first step that breaks the bar is named; or
    nothing was compared.

    Commands:
        deploykit transform --in_graph=fashion.pb --out_graph=folded.pb
            --transforms='fold_constants fold_batch_norms' --verify
        deploykit transform --in_graph=fashion.pb --out_graph=small.pb
            --transforms=quantize_weights

    Example:
        >>> folded = deploykit.transform("fashion.pb", "fold_constants fold_batch_norms")
        >>> [(step.transform, step.nodes) for step in folded.report.steps][0]
        ('fold_constants', 89)
        >>> any(node.op == "Rsqrt" for node in folded)
        False
    """
    if not verify:
        how.refuse_unused()
    target = OutputFiles(output, force, as_text, dump)
    target.check(model)
    with working("transform") as work:
        opened = open_model(model)
        opened.refuse_effects(how.allow_ops, runs=verify)
        check_ranges_of(transforms, opened)
        proof = how.proof(opened, reference=opened.graph) if verify else None
        return rewrite(opened, opened.graph, transforms, target, work, proof)


def TransformGraph(
    input_graph_def: GraphDef,
    inputs: list[str],
    outputs: list[str],
    transforms: list[str],
) -> GraphDef:
    """Return a transformed GraphDef: the Graph Transform Tool's Python function, for old code.

    Example:
        >>> before = deploykit.load_graph("fashion.pb").to_graph_def()
        >>> steps = ["fold_constants", "fold_batch_norms"]
        >>> after = deploykit.TransformGraph(before, ["images"], ["probabilities"], steps)
        >>> len(after.node) < len(before.node)
        True
    """
    graph = Graph.from_graph_def(input_graph_def, inputs, outputs)
    return transform(graph, " ".join(transforms)).to_graph_def()


@public(Command(heading="Check", runs_graph=True, writes_result=False), interface=())
def optimize(
    model: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    output: Annotated[PathLike | None, output_flag(".optimized.pb")] = None,
    force: Annotated[bool, FORCE] = False,
    verify: Annotated[bool, Flag(is_python_only=True)] = False,
) -> Graph:
    """Make a model smaller and faster without changing its outputs.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.

    deploykit loads and runs the new file once. Nothing is written if its outputs differ from those
    of the model as it was read, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the result is compared, and against which bar.
        output: a `.pb` file to write too.
        verify: whether the result is compared with the model where no file is written, too. What is
            written is always loaded, run and compared first.

    GraphError: the model is not sound, or the data do not fit its inputs. VerificationError: the
    result differs, or nothing could be compared. RefusedError: the model acts on files or
    processes.

    Commands:
        deploykit optimize fashion.pb -o optimized.pb
        deploykit optimize fashion.pb -o a.pb --data models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.optimize("fashion.keras", verify=True)
        >>> graph.report.verification.passed
        True
    """
    target = OutputFiles(output, force)
    target.check(model)
    is_compared = verify or how.data is not None or output is not None
    if not is_compared:
        how.refuse_unused()
    with working("optimize") as work:
        opened = open_model(model)
        opened.refuse_effects(how.allow_ops)
        proof = how.proof(opened) if is_compared else None
        return rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
