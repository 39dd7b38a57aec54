"""A trained model becomes a frozen graph."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.api.comparison import DEFAULT, Comparison
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.freezing.sidecar import About, about
from deploykit.input.preprocessing import declared_for
from deploykit.input.samples import open_samples
from deploykit.photos.class_names import read_labels
from deploykit.rewriting.live_keras import Feed, checked_against_live, live_feeds, live_model
from deploykit.rewriting.rewrite import OutputFiles, Rewriting
from deploykit.storage.parameters import with_options
from deploykit.text.progress import Work, working
from deploykit.transforms.core.display.documents import document
from deploykit.transforms.core.graph import Graph
from deploykit.verification.verify import Verification


def freeze(
    source: Any,
    how: Comparison = DEFAULT,
    *,
    preprocess: Any = None,
    labels: Any = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> Graph:
    """Read a model and return it as a frozen graph: no variables, no function calls.

    What its callers know of it, such as the names of its signatures, is on the graph as `about`,
    and is written beside it as `X.pb.json`. What is written is loaded and run once, on
    samples or synthetic inputs, and compared with the graph as it was read.

    Args:
        source: whatever `open_model` takes.
        how: on which inputs the written file is compared with the model.
        preprocess: what becomes of photos and other data before they are fed: a JSON file, or what
            it holds, or the range of photos, such as `0..1`. Every command that reads the graph's
            file finds it there.
        labels: names of the classes, in the order of the scores: a text file with one a line, or
            the names; found likewise.
        output: a `.pb` file to write too.
        force: whether to replace it where it exists.
        options: fields of `Source`: `inputs`, `outputs`, `tags`, `signature`, `pins`, `graph`; and
            of `Comparison`: `data`, `shapes`, `input_range`, `allow_unverified`, `allowed_ops`. A
            boolean placeholder that is not among the inputs and is named like `is_training` is
            pinned to false without being asked.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, or has no such tags or signature. RefusedError: it holds code, or acts on files or
    processes when it is run. VerificationError: the written file computes something else, or
    nothing could be compared.

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="frozen.pb")
        >>> graph.inputs, graph.outputs
        (('images',), ('probabilities',))
    """
    source, how = with_options("freeze", options, source_of(source), how)
    target = OutputFiles(output, force)
    target.check(source)
    with working("freeze") as work:
        model = open_model(source)
        model.refuse_effects(how.allowed_ops)
        graph = model.frozen.copy()
        graph.about = _told(graph, preprocess, labels)
        if output is None:
            graph.report = Rewriting(model, model.nodes)
            return graph
        if how.data is not None:
            how = replace(how, preprocess=preprocess, labels=labels)
        graph.report = _written(model, graph, how, target, work)
    return graph


def _written(
    model: OpenedModel, graph: Graph, how: Comparison, target: OutputFiles, work: Work
) -> Rewriting:
    """Write a graph once its file was compared with the model, and return what was found."""
    proof = replace(how.proof(model), is_same=model.reference is model.frozen)

    def check(path: Path | None) -> Verification:
        work("run the file", 0)
        found = proof.checked(graph, path)
        live = live_model(model)
        if path is None or live is None or not found.verified:
            return found
        feeds, strict = _live_feeds(graph, how), not how.allow_unverified
        return checked_against_live(found, live, graph, path, feeds, strict)

    size, found = target.write(graph, check)
    return Rewriting(model, model.nodes, verification=found, bytes=size)


def _live_feeds(graph: Graph, how: Comparison) -> list[Feed]:
    """Return feeds of two batch sizes for a live model, of the user's data where there are any."""
    if how.data is None:
        return live_feeds(graph, how.input_range, how.shapes)
    samples = open_samples(how.data, graph, how.preprocess, labels=how.labels)
    sizes = (samples.batch,) if samples.batch else (4, 2)
    first = [samples.feeds(size)[0] for size in sizes]
    return [[feed[tensor] for tensor in graph.inputs] for feed in first]


def _told(graph: Graph, preprocess: Any, labels: Any) -> About:
    """Return what is known of a graph, with what the user says. GraphError: it does not fit."""
    known = about(graph)
    if preprocess is not None:
        declared = declared_for(graph, preprocess).among(graph)
        known = replace(known, preprocessing=document(declared))
    if isinstance(labels, str | os.PathLike):
        labels = read_labels(os.fspath(labels))
    return known if labels is None else replace(known, labels=tuple(labels))
