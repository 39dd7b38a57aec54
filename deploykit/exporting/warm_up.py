"""Warm-up requests of a version, from samples in the form of its signatures."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from deploykit.data.data import is_arrays
from deploykit.data.preprocessing import Preprocessing, Steps, declared_for
from deploykit.data.samples import open_feeds
from deploykit.exporting.named_model import NamedModel
from deploykit.exporting.photo_inputs import PhotoSides
from deploykit.importers.metadata_file import SignatureNames, about
from deploykit.serving.protocol.signatures import DEFAULT, PREDICT, TENSORS
from deploykit.serving.saved_model.warmup_requests import requests, some, write_requests
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array, DType

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
    preprocess = None if preprocess == KNOWN else preprocess
    sizes = [tensor.shape[0] for tensor in callee.inputs.values() if tensor.shape]
    batch = None if max(sizes, default=-1) > 0 else 1
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
    read, descriptions = open_feeds(data, files, Preprocessing(steps, declared.columns), batch)
    return DEFAULT, _Renamed(read, photos.renamed), descriptions


class _Renamed:
    """Feeds with renamed inputs; each iteration reads them again."""

    def __init__(self, feeds: Feeds, names: Mapping[str, str]) -> None:
        self._feeds, self._names = feeds, names

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        for feed in self._feeds:
            plain = {name.removesuffix(":0"): array for name, array in feed.items()}
            yield {self._names.get(name, name): array for name, array in plain.items()}
