"""Signatures of a model for Predict, Classify and Regress, and outputs with class names."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from deploykit.data.data import is_arrays
from deploykit.data.preprocessing import Preprocessing, Steps, declared_for
from deploykit.data.samples import open_feeds
from deploykit.exporting.named_model import NamedModel
from deploykit.exporting.photo_inputs import PhotoSides
from deploykit.importers.metadata_file import SignatureNames, about
from deploykit.serving.protocol.signatures import (
    CLASSES,
    CLASSIFY,
    DEFAULT,
    EXAMPLES,
    PIXELS,
    PREDICT,
    REGRESS,
    RESULTS,
    SCORES,
    TENSORS,
    Tensor,
    sizes,
)
from deploykit.serving.saved_model.proto import parse_in_front, signature_def, tensors_of
from deploykit.serving.saved_model.warmup_requests import USUAL, requests, some, write_requests
from deploykit.storage.image_files import check_labels
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.verification.synthetic.sample_inputs import demanded_batch

MAX_CLASSES = 5
"""Maximum number of classes in a response."""

_INT = DType("int32")

METHODS = {"predict": PREDICT, "classify": CLASSIFY, "regress": REGRESS}


def signatures_for(
    callee: NamedModel,
    method: str | None,
    photos: PhotoSides | None = None,
    labels: Sequence[str] = (),
) -> dict[str, SignatureDef]:
    """Return signatures by name; this adds tf.Example parsing to the graph if a method needs it.

    With image preprocessing, the default signature accepts image files. With labels, it also
    returns the names of the best classes.
    """
    own = METHODS["predict"] if method == "predict" else callee.method
    signatures = {
        other.signature: signature_def(other.method, other.inputs, other.outputs)
        for other in callee.others
    }
    signatures[callee.signature] = signature_def(own, callee.inputs, callee.outputs)
    signatures.setdefault(DEFAULT, signatures[callee.signature])
    named = best_classes(callee, _scores(callee), labels) if labels else {}
    outputs = {**callee.outputs, **named}
    if photos is not None:
        _check_free(signatures, TENSORS, PIXELS)
        signatures[TENSORS] = signature_def(own, callee.inputs, callee.outputs)
        signatures[DEFAULT] = signature_def(PREDICT, photos.files, outputs)
        signatures[PIXELS] = signature_def(PREDICT, photos.pixels, outputs)
    elif named:
        signatures[DEFAULT] = signature_def(own, callee.inputs, outputs)
    if photos is not None and named and method is None and "classify" not in signatures:
        method = "classify"
    if method in ("classify", "regress") and own != METHODS[method]:
        if own != PREDICT:
            raise GraphError(
                "signature-has-method",
                signature=callee.signature,
                present=own.rsplit("/", 1)[1],
                method=method,
            )
        _check_free(signatures, method)
        chosen = _predicted(callee) if method == "regress" else named or _scored(callee)
        inputs = callee.inputs if photos is None else photos.files
        examples = Tensor(f"{parse_in_front(callee.graph, inputs)}:0", DType("string"), (-1,))
        signatures[method] = signature_def(METHODS[method], {EXAMPLES: examples}, chosen)
    for name, item in signatures.items():
        if not item.outputs:
            raise GraphError("signature-without-outputs", name=name)
    return signatures


def _check_free(signatures: Mapping[str, SignatureDef], *names: str) -> None:
    """Raise GraphError if a signature already has one of these names."""
    for name in names:
        if name in signatures:
            raise GraphError("signature-exists", name=name)


def _scores(callee: NamedModel) -> Tensor:
    """Return the output with class scores, float32 [batch, classes]."""
    result = _fitting(callee, "float32", SCORES, ranks=(2,))
    if result is None:
        raise GraphError("labels-need-scores", outputs=_said(callee.outputs))
    return result


def _scored(callee: NamedModel) -> dict[str, Tensor]:
    """Return the outputs of Classify: classes as strings, scores as floats, [batch, classes]."""
    results = {}
    for alias, dtype in ((CLASSES, "string"), (SCORES, "float32")):
        fitting = _fitting(callee, dtype, alias, ranks=(2,))
        if fitting is not None:
            results[alias] = fitting
    if not results:
        raise GraphError("classify-output", outputs=_said(callee.outputs))
    shapes = {result.shape for result in results.values() if result.shape is not None}
    if len(shapes) > 1:
        raise GraphError("classify-outputs-differ", found=_said(results))
    return results


def _predicted(callee: NamedModel) -> dict[str, Tensor]:
    """Return the output of Regress: one float32 per example."""
    result = _fitting(callee, "float32", RESULTS, ranks=(1, 2))
    if result is None or (result.shape is not None and result.shape[1:] not in ((), (1,), (-1,))):
        raise GraphError("regress-output", outputs=_said(callee.outputs))
    return {RESULTS: result}


def _fitting(callee: NamedModel, dtype: str, alias: str, ranks: tuple[int, ...]) -> Tensor | None:
    """Return the output with a dtype and rank: the one named `alias`, or the only one."""
    fitting = {
        name: item
        for name, item in callee.outputs.items()
        if item.dtype == dtype and (item.shape is None or len(item.shape) in ranks)
    }
    if alias in fitting:
        return fitting[alias]
    if len(fitting) > 1:
        raise GraphError(
            "method-outputs-ambiguous", count=len(fitting), alias=alias, outputs=_said(fitting)
        )
    return next(iter(fitting.values()), None)


def _said(tensors: Mapping[str, Tensor]) -> list[str]:
    return [f"{alias} ({item.dtype}{sizes(item)})" for alias, item in tensors.items()]


def best_classes(callee: NamedModel, scores: Tensor, labels: Sequence[str]) -> dict[str, Tensor]:
    """Return outputs with the names and scores of the best classes, [batch, at most 5].

    Their ops are added to the graph. GraphError: the numbers of names and scores differ, or the
    model already has class names.
    """
    if CLASSES in callee.outputs:
        raise GraphError("output-exists", name=CLASSES)
    count = scores.shape[1] if scores.shape is not None else -1
    if count != -1:
        check_labels(labels, count, scores.name)
    graph = callee.graph
    scope = graph.unique_name("best_classes")

    def add(name: str, op: str, inputs: Sequence[str], **attrs: object) -> str:
        return graph.add(Node(f"{scope}/{name}", op, tuple(inputs)).with_attrs(**attrs)).name

    def constant(name: str, value: Array) -> str:
        return graph.add(Node.constant(f"{scope}/{name}", value)).name

    float_ = DType("float32")
    most = constant("most", np.array(min(MAX_CLASSES, len(labels)), np.int32))
    best = add("best", "TopKV2", [normal(scores.name), most], T=float_, Tk=_INT, sorted=True,
               index_type=_INT)  # fmt: skip
    names = constant("labels", np.array([label.encode() for label in labels], object))
    axis = constant("axis", np.array(0, np.int32))
    result = add("names", "GatherV2", [names, f"{best}:1", axis], Tparams=DType("string"),
                Tindices=_INT, Taxis=_INT, batch_dims=0)  # fmt: skip
    tensors = tensors_of(graph, [result, best])
    return {CLASSES: tensors[result], SCORES: tensors[best]}


Feeds = Iterable[Mapping[str, Array]]
Dataset = tuple[str, Feeds, Mapping[str, str]]
"""Name of the signature, samples by alias, and a description of file preprocessing."""
KNOWN = "known"
"""Selects the preprocessing stored with the model."""


def aliases_of(callee: NamedModel) -> Graph:
    """Return a graph of a model's inputs by alias, with their metadata."""
    fed = Graph()
    for alias, tensor in callee.inputs.items():
        placeholder = Node(producer_name(alias), "Placeholder")
        placeholder = placeholder.with_attrs(dtype=DType(tensor.dtype), shape=tensor.shape)
        fed.add(placeholder)
    fed.inputs = tuple(callee.inputs)
    tensors = {normal(tensor.name): alias for alias, tensor in callee.inputs.items()}
    known = about(callee.graph)
    fed.about = replace(
        known,
        signatures={callee.signature: SignatureNames(tensors, {})},
        photos={
            tensors[t]: descriptions for t, descriptions in known.photos.items() if t in tensors
        },
    )
    return fed


def warm_up(
    name: str,
    signatures: Mapping[str, SignatureDef],
    chosen: str,
    feeds: Feeds,
    count: int,
) -> list[bytes]:
    """Return serialized requests for a signature, from the given number of samples."""
    result = requests(name, chosen, signatures[chosen], some(feeds, count))
    return list(write_requests(result))


def samples_for(
    data: Any, callee: NamedModel, fed: Graph, preprocess: Any, photos: PhotoSides | None
) -> Dataset:
    """Return samples by alias, with the signature that accepts them.

    Each feed contains one sample unless the model has a fixed batch size. Image files use the
    default signature if it accepts them; arrays use the one with tensors.
    """
    if callee.method != PREDICT:
        raise GraphError("warmup-takes-examples", signature=callee.signature)
    batch = None if demanded_batch(fed) else 1
    is_path = isinstance(data, str | os.PathLike)
    if photos is None:
        return callee.signature, *open_feeds(data, fed, preprocess, batch)
    if not is_path or is_arrays(os.fspath(data)):
        return TENSORS, *open_feeds(data, fed, preprocess if is_path else None, batch)
    declared = declared_for(fed, preprocess).among(fed)
    files = Graph()
    for node in fed:
        texts = node.with_attrs(dtype=DType("string"), shape=node.attr("shape")[:1])
        files.add(texts if node.name in photos.steps else node)
    files.inputs = fed.inputs
    files.about = replace(fed.about, photos={}, preprocessing=None)
    steps = {
        alias: Steps(feature=item.feature) if alias in photos.steps else item
        for alias, item in declared.inputs.items()
    }
    given = Preprocessing(steps, declared.columns, declared.header, chosen=declared.chosen)
    read, descriptions = open_feeds(data, files, given, batch)
    return DEFAULT, _Renamed(read, photos), descriptions


logger = logging.getLogger("deploykit")
_SKIPPED = "warm-up: skipped %d of %d samples: the exported model does not decode their images"


class _Renamed:
    """Feeds of image files with renamed inputs; each iteration reads them again.

    Feeds with images that the exported model does not accept are skipped; their number is logged.
    """

    def __init__(self, feeds: Feeds, photos: PhotoSides) -> None:
        self._feeds, self._photos = feeds, photos

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        names, skipped, count = self._photos.renamed, 0, 0
        feeds = ({n.removesuffix(":0"): array for n, array in f.items()} for f in self._feeds)
        try:
            while some_feeds := list(islice(feeds, USUAL)):
                is_accepted = self._photos.accepted(some_feeds)
                for feed, is_sound in zip(some_feeds, is_accepted, strict=True):
                    count += 1
                    skipped += not is_sound
                    if is_sound:
                        yield {names.get(name, name): array for name, array in feed.items()}
        finally:
            if skipped:
                logger.warning(_SKIPPED, skipped, count)
