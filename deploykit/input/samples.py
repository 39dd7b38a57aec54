"""Samples to calibrate and judge with: arrays of an `.npz` file, or through a pipeline."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from deploykit.input.data import open_data
from deploykit.input.input_benchmark import pipeline_for
from deploykit.input.iterating import Feeds
from deploykit.input.pipeline import Pipeline
from deploykit.input.preprocessing import Preprocessing, Steps, load_preprocessing
from deploykit.storage.files import load_data, naming
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import producer_name
from deploykit.transforms.core.tensors import Array
from deploykit.verification.sample_batches import BATCH, calibration_feeds
from deploykit.verification.sample_inputs import demanded_batch

LABELS = ("labels", "label")


def open_feeds(
    path: str, graph: Graph, preprocess: str | None = None, batch: int | None = None
) -> Iterable[Mapping[str, Array]]:
    """Return feeds of a graph; those from files are read anew in each iteration, batch by batch.

    Args:
        path: an `.npz` file of arrays by input name, or what `open_data` takes.
        graph: what is fed.
        preprocess: a file that says what becomes of the features; default: what the inputs ask for.
        batch: samples at once; default: as many as the graph demands, or 8.

    FileError, GraphError: they do not fit the graph's inputs; the message begins with the path.
    """
    with naming(path):
        if _is_plain(path, preprocess):
            return calibration_feeds(graph, load_data(path), batch)
        return Feeds(_pipeline(path, graph, preprocess, batch))


def load_samples(path: str, graph: Graph, preprocess: str | None = None) -> dict[str, Array]:
    """Return arrays by input name, and `labels` where there are some, all in memory.

    Arguments and errors are those of `open_feeds`.
    """
    if _is_plain(path, preprocess):
        return load_data(path)
    with naming(path):
        pipeline = _pipeline(path, graph, preprocess)
    label = next((name for name in LABELS if name in pipeline.data.features), None)
    if label is not None:
        dtype = pipeline.data.features[label].dtype
        steps = {**pipeline.steps, "labels": Steps(feature=label, dtype=dtype)}
        pipeline = replace(pipeline, steps=steps)
    batches = list(Feeds(pipeline))
    if not batches:
        raise GraphError(f"{path}: the data hold no samples")
    found = {
        producer_name(name): np.concatenate([batch[name] for batch in batches])
        for name in pipeline.steps
    }
    labels = found.get("labels")
    if labels is not None and labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        found["labels"] = labels.astype(np.int64)  # a CSV file has but one kind of number
    return found


def _is_plain(path: str, preprocess: str | None) -> bool:
    """Say whether the arrays of a file are fed as they are."""
    return preprocess is None and not (os.path.isdir(path) or path.endswith(".csv"))


def _pipeline(
    path: str, graph: Graph, preprocess: str | None, batch: int | None = None
) -> Pipeline:
    declared = Preprocessing() if preprocess is None else load_preprocessing(preprocess)
    data = open_data(path, declared.columns)
    if batch is None and demanded_batch(graph) is None:
        batch = BATCH
    return pipeline_for(data, graph, preprocessing=declared, batch=batch, epochs=1, threads=1)
