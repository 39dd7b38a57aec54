"""Plans batch inference: the model, the data and its parts."""

import dataclasses
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deploykit.batch_inference.answers import column_names, expected_columns
from deploykit.batch_inference.formats.part_table import (
    SHAPE_END,
    TOP_CLASSES,
    TOP_LABELS,
    TOP_SCORES,
)
from deploykit.batch_inference.infer_task import InferOptions, InferTask
from deploykit.batch_inference.reading.data_parts import DataPart, fingerprint, key_of, source_name
from deploykit.batch_inference.reading.partitions import MIN_ROWS, cut_parts
from deploykit.batch_inference.results_folder import SPLIT
from deploykit.batch_inference.results_index import MadeOf
from deploykit.batch_inference.tables.table_data import (
    ColumnChoice,
    check_kept,
    open_table,
    takes_columns,
)
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.data import Data, open_data
from deploykit.data.pipeline import BATCH, InputPipelineOptions, Pipeline, pipeline_for
from deploykit.data.preprocessing import Preprocessing, refuse_batch_axes
from deploykit.data.word_pieces import vocabulary_beside
from deploykit.importers.open_model import OpenedModel
from deploykit.storage.image_files import labels_from
from deploykit.storage.table_formats.table_files import folder_of, is_remote
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.engines.engines import TENSORFLOW, TITLES, lacking
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.synthetic.sample_inputs import demanded_batch, takes_scalars

logger = logging.getLogger("deploykit")

_NUMBER = 8
"""Maximum size in bytes of a number in an output."""


@dataclass(frozen=True)
class InferPlan:
    """A model, the parts of data to run it on, and the output format."""

    task: InferTask
    graph: Graph
    parts: tuple[DataPart, ...]
    made_of: MadeOf
    """The model, data and options that determine the bytes of the results."""
    fed: Mapping[str, str]
    """The preprocessing of the data for each input, as text."""
    scheduler: str
    """The scheduler of the workers: one of SCHEDULERS."""


def planned(
    opened: OpenedModel,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: InferOptions,
    settings: RunConfig,
    has_folders: bool = True,
) -> InferPlan:
    """Return the plan, reading only as much of the data as needed.

    Folders state columns of a table with `has_folders`. FileError, GraphError: the data cannot be
    read, or does not match the model.
    """
    graph, settings = opened.frozen, _of_a_worker(opened, settings)
    if not graph.inputs:
        raise GraphError("model-without-input", source=opened.source)
    outputs = column_names(opened, how.keep_columns)
    labels = opened.about.labels if how.labels is None else labels_from(how.labels)
    columns = expected_columns(opened, outputs, how.top, labels)
    results = [TOP_CLASSES, TOP_SCORES, TOP_LABELS] if how.top else list(outputs)
    rows = {name: columns[name].shape if name in columns else (None,) for name in results}
    added = set(results if how.top else ())
    added |= {f"{name}{SHAPE_END}" for name, shape in rows.items() if how.top or None in shape}
    path, result, pipeline, extra = _opened_data(opened, data, how, settings, added, has_folders)
    parts = cut_parts(result, _row_bytes(rows, how.top))
    task = InferTask(
        model="",
        outputs=outputs,
        columns=columns,
        settings=replace(settings, batch=pipeline.batch),
        pipeline=replace(
            pipeline,
            data=replace(result, files=(), counts=(), labels=(), features=pipeline.features),
        ),
        folder=os.path.abspath(out),
        name=how.name or source_name(result),
        format=how.format,
        parts=len(parts),
        top=how.top,
        labels=tuple(labels) if how.top else (),
        retries=how.retries,
        skip=how.on_error == "skip",
        takes_scalars=takes_scalars(graph),
    )
    pipeline.log_inputs()
    return InferPlan(
        task,
        graph,
        tuple(parts),
        MadeOf(
            {"source": opened.source, "sha256": opened.sha256},
            _described(result, path),
            _deciding(task, opened, Preprocessing(pipeline.steps)) | extra,
            len(parts),
            result.files,
        ),
        pipeline.fed,
        how.scheduler,
    )


def _opened_data(
    opened: OpenedModel,
    data: str | os.PathLike[str],
    how: InferOptions,
    settings: RunConfig,
    added: set[str],
    has_folders: bool,
) -> tuple[str, Data, Pipeline, dict[str, Any]]:
    """Return the path, the data, its pipeline, and the options that decide what rows contain.

    `added` are the columns that the results may contain beside the outputs.
    """
    graph, path = opened.frozen, os.fspath(data)
    if not is_remote(path):
        path = os.path.abspath(path)  # workers may have other current folders
    refuse_batch_axes(graph, how.preprocess, "batch inference")
    piping = InputPipelineOptions(preprocess=how.preprocess, header=how.header)
    declared = piping.declared(graph)
    vocabulary = how.vocabulary or vocabulary_beside(opened.source)
    choice = ColumnChoice(how.columns, tuple(how.keep_columns), vocabulary, has_folders)
    result: Data
    extra: dict[str, Any] = {}
    with naming(folder_of(path)):
        if takes_columns(path, graph, declared, choice):
            result, declared = open_table(path, graph, declared, choice)
            check_kept(result, how.format, added)
            if choice.keep:
                extra["keep_columns"] = list(choice.keep)
            if result.tokens is not None:
                extra["vocabulary"] = result.tokens.sha256
                extra["text_column"] = result.tokens.column
        else:
            result = open_data(path, declared.columns, graph, may_be_empty=True, rule=declared.rule)
            if result.kind == "csv":
                extra[SPLIT] = f"{MIN_ROWS} records"  # a bare number: of lines, in former versions
                if declared.columns is None and "label" in result.columns:
                    place = "last" if result.columns["label"] == result.width - 1 else "first"
                    logger.info("the %s column is the label, which is not fed", place)
        batch = _rows_at_once(graph, how, settings)
        pipeline = pipeline_for(
            result, graph, preprocessing=declared, batch=batch, epochs=1, threads=1
        )
    return path, result, pipeline, extra


def _rows_at_once(graph: Graph, how: InferOptions, settings: RunConfig) -> int:
    """Return the batch size."""
    if takes_scalars(graph):
        return 1
    return how.batch or demanded_batch(graph) or settings.batch or BATCH


def _of_a_worker(opened: OpenedModel, settings: RunConfig) -> RunConfig:
    """Return settings with one thread, for the engine that the model was written for."""
    if settings.threads not in (None, (1, 1)) or settings.concurrency != 1:
        logger.info("each worker has one core, so threads and concurrency in the settings are "
                    "ignored")  # fmt: skip
    result = replace(settings, threads=(1, 1), concurrency=1, input="feed", device="cpu",
                    engine=None).without_openmp  # fmt: skip
    if result.executor is None:
        result = replace(result, executor="caller")  # more threads are of no use on one core
    use = opened.about.engine
    if use is None or use.engine == TENSORFLOW:
        return result
    title = TITLES[use.engine]
    if why := lacking(use.engine):
        logger.warning("%s was written for %s, and TensorFlow only emulates it, which is slow: %s",
                       opened.source, title, why)  # fmt: skip
        return result
    logger.info("%s was written for %s, which runs it", opened.source, title)
    precision = "bf16" if use.precision == "bf16" else None
    return replace(result, engine=use.engine, precision=precision).in_engine


def _described(data: Data, path: str) -> dict[str, Any]:
    """Return what identifies the data, and the skipped files of a folder."""
    result: dict[str, Any] = {"path": path, "kind": data.kind, "fingerprint": fingerprint(data)}
    if data.kind == "images" or data.skipped:
        skipped = (os.path.join(data.path, name) for name in data.skipped)
        result["skipped_files"] = [key_of(data, file) for file in skipped]
    return result


def _row_bytes(shapes: Mapping[str, tuple[int | None, ...]], top: int | None) -> int | None:
    """Return the size in bytes of the results of a row; None if unknown."""
    if top:
        return len(shapes) * _NUMBER * top
    sizes = [math.prod(size or 0 for size in shape) for shape in shapes.values()]
    is_open = any(None in shape for shape in shapes.values())
    return None if is_open else _NUMBER * sum(sizes)


def _deciding(task: InferTask, opened: OpenedModel, preprocessing: Preprocessing) -> dict[str, Any]:
    """Return the options that determine the bytes of the results, as plain data."""
    asked_for = opened.requested
    stated = {
        field_.name: getattr(asked_for, field_.name)
        for field_ in dataclasses.fields(asked_for)
        if field_.name not in ("model", "outputs") and getattr(asked_for, field_.name)
    }
    return {
        "format": task.format,
        "outputs": dict(task.outputs),
        "top": task.top,
        "labels": list(task.labels),
        "on_error": "skip" if task.skip else "stop",
        "preprocessing": document(preprocessing),
        "settings": document(task.settings),
        "model": {name: str(value) for name, value in stated.items()},
    }
