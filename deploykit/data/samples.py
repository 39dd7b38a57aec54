"""Opens samples for a graph from arrays, a tf.data.Dataset, files or a pipeline."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.data.data import is_arrays, open_data
from deploykit.data.labels import (
    ClassNames,
    group_feature,
    in_folders,
    with_class_numbers,
    with_classes_of,
)
from deploykit.data.pipeline import (
    InputPipelineOptions,
    Pipeline,
    changes,
    kind_of,
    log_inputs,
    pipeline_for,
)
from deploykit.data.preprocessing import (
    Preprocessing,
    Steps,
    chosen_columns,
    header_rule,
    known_preprocessing,
    preprocessing_by_graph,
    refuse_batch_axes,
    with_batch_axes,
    with_header,
)
from deploykit.data.reading import batches
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.storage.arrays import load_data
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.data_files import format_of
from deploykit.storage.tables import located
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name, split
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.chosen_columns import check_columns
from deploykit.verification.confidence import group_names
from deploykit.verification.feeds import Feed
from deploykit.verification.feeds import fed as as_fed
from deploykit.verification.fitting import chosen_name
from deploykit.verification.samples import BATCH, LABELS, NOT_INPUTS, Dataset, never_inputs
from deploykit.verification.synthetic.sample_inputs import (
    batch_axes,
    demanded_batch,
    names_of_inputs,
    paired_inputs,
    type_and_shape,
)


def open_runnable(
    model: Any, piping: InputPipelineOptions, allow_ops: Sequence[str] = (), **options: Any
) -> OpenedModel:
    """Return a model whose outputs are the ops to run; `model` and `options` as for `open_model`.

    GraphError: `run_ops` or `init` is set for a model that is frozen while it is read.
    RefusedError: an op acts on files or processes.
    """
    opened = open_model(model, **options)
    is_unchanged = isinstance(opened.requested.model, Graph)
    if opened.files is not None:
        is_unchanged = opened.files.kind == "graph"
    if (piping.run_ops or piping.init) and not is_unchanged:
        raise GraphError("graph-as-it-stands", source=opened.source)
    graph = opened.graph.copy()
    graph.outputs = tuple(piping.run_ops) or graph.outputs
    run = graph.copy()
    run.outputs = (*graph.outputs, *piping.init)
    run.check()
    result = replace(opened, graph=run)
    result.refuse_effects(allow_ops)
    return replace(opened, graph=graph)


def with_axes(opened: OpenedModel, preprocess: Any) -> OpenedModel:
    """Return a model whose metadata has the axes of samples that a preprocessing states.

    FileError, GraphError: the preprocessing cannot be read or does not match the inputs.
    """
    with naming(opened.source):
        graph, _ = with_batch_axes(opened.graph, preprocess)
    return opened if graph is opened.graph else replace(opened, graph=graph)


def preprocessing_for(opened: OpenedModel, models: Iterable[OpenedModel], preprocess: Any) -> Any:
    """Return the preprocessing of one of several models (`preprocessing_by_graph`).

    GraphError, with the models: none of them has an input of a name.
    """
    models = [opened, *(model for model in models if model is not opened)]
    with naming(", ".join(dict.fromkeys(model.source for model in models))):
        return preprocessing_by_graph(preprocess, [model.graph for model in models])[0]


@dataclass(frozen=True)
class Feeds:
    """The batches of a pipeline, which a child process reads again for each iteration."""

    pipeline: Pipeline
    axes: Mapping[str, int] = field(default_factory=dict)
    """Axis of the samples in inputs that take them on another axis than the first."""

    def __iter__(self) -> Iterator[Feed]:
        """Yield batches by input. FileError, GraphError: the named record is damaged."""
        with contextlib.closing(Worker(f"{__name__}:FeedReader", self.pipeline)) as worker:
            while (batch := worker.ask("next")) is not None:
                yield as_fed(batch, self.axes)


class FeedReader:
    """Reads a pipeline in a child process."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Start before the first batch."""
        self._batches = batches(pipeline)

    def next(self) -> dict[str, Array] | None:
        """Return the next batch, or None after the last."""
        return next(self._batches, None)


_DATASET = "the dataset"
_GROUPS = "groups of the samples"  # an extra value next to the inputs of a pipeline
MAX_ELEMENTS = 1_000_000  # of a dataset with unknown size


def open_samples(
    data: Any,
    graph: Graph,
    preprocess: Any = None,
    *,
    labelled: bool = True,
    logged: Mapping[str, str] | None = None,
    labels: Any = None,
    group_by: str | None = None,
) -> Dataset:
    """Return data as samples of a graph, all in memory, with labels if the data has some.

    If the data has class names, such as image folders, the labels are their indices in the model's
    labels. This is logged. If the model has no labels, the sorted names are the classes, provided
    that their number equals the number of scores. Otherwise, the samples have no labels.

    Args:
        data: arrays by input name, a `tf.data.Dataset` (batched or not), an `.npz` file of arrays
            by input name, a folder of TFRecords, images or CSV files, or samples. For a graph with
            one input, an array or a pair of an array and labels is allowed too.
        graph: the graph to feed.
        preprocess: the preprocessing of file features: a JSON file or its content, or the range of
            images, such as `0..1`. Default: that in the graph's metadata.
        labelled: whether to read labels; otherwise they are ignored.
        logged: preprocessing texts that were logged before.
        labels: names of the model's classes in the order of its scores, or a text file with one per
            line. Default: those in the graph's metadata.
        group_by: the array, column or feature with the group of each sample, or `folder` for
            images; '': `group` if it exists, or folders that are not classes; None: no groups.

    FileError, GraphError: the data does not match the graph's inputs, or has a class that is not in
    `labels`; the message starts with the path.
    """
    if isinstance(data, Dataset):
        return data
    graph, preprocess = with_batch_axes(graph, preprocess)
    known = ClassNames.of(graph, labels)
    of = partial(Dataset.of, graph, labelled=labelled, group_by=group_by)
    if isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        if _is_plain(path, graph, preprocess):
            result = _loaded(path, graph, preprocess, of)
            result = with_class_numbers(result, graph, known)
        else:
            pipeline = _pipeline(path, graph, preprocess)
            result = _read(pipeline, graph, labelled, group_by)
            result = with_classes_of(result, pipeline.data, graph, known)
            result = in_folders(result, pipeline.data, group_by)
        log_inputs(result.fed, logged)
        return result
    option = "columns" if chosen_columns(preprocess) else "preprocess"
    if option == "columns" or not header_rule(preprocess)[1]:
        raise GraphError(
            "only-for", option=option, what="files; arrays and datasets are fed as they are"
        )
    if hasattr(data, "as_numpy_iterator"):
        result = of(_gathered(data, graph, group_by), source=_DATASET)
        names = getattr(data, "class_names", ())  # Keras stores the folder names there
        return with_class_numbers(result, graph, known, dict(enumerate(names)))
    return with_class_numbers(of(_by_name(data, graph)), graph, known)


def _loaded(path: str, graph: Graph, preprocess: Any, of: Callable[..., Dataset]) -> Dataset:
    """Return the arrays of a file as samples, and what is fed."""
    arrays = load_data(path, header_rule(preprocess)[0])
    with located(arrays):
        result = of(arrays, source=path)
    return replace(result, fed=fed_as_they_are(graph, result.arrays, path))


def open_alike(
    samples: Dataset, reference: Graph, data: Any, graph: Graph, preprocess: Any = None
) -> Dataset:
    """Return the samples of one graph for another graph.

    Files are read again if the preprocessing differs; otherwise the arrays are shared. Inputs are
    paired by name, or else by position.

    Args:
        samples: the result of `open_samples` for the reference.
        reference: the graph of these samples.
        data: the data of these samples.
        graph: the graph to feed.
        preprocess: the preprocessing of file features, by input of either graph.

    GraphError: the inputs of the graphs differ. Raises the errors of `open_samples` too.
    """
    pairs = paired_inputs(reference, graph)
    if pairs is None:
        raise GraphError("samples-inputs-differ", inputs=graph.inputs, other=reference.inputs)
    theirs, preprocess = preprocessing_by_graph(preprocess, (reference, graph))
    (reference, theirs), (graph, preprocess) = (
        with_batch_axes(*item) for item in ((reference, theirs), (graph, preprocess))
    )
    if isinstance(data, str | os.PathLike) and not _is_plain(os.fspath(data), graph, preprocess):
        path = os.fspath(data)
        here, there = _pipeline(path, reference, theirs), _pipeline(path, graph, preprocess)
        steps = {pairs[name]: item for name, item in here.steps.items() if name in pairs}
        if steps != there.steps:
            log_inputs(there.fed, samples.fed)
            result = _read(there, graph, labelled=False)
            return replace(samples, arrays=result.arrays, batch=result.batch, fed=result.fed,
                           axes=result.axes)  # fmt: skip
    arrays = {pairs[name]: item for name, item in samples.arrays.items() if name in pairs}
    result = Dataset.of(graph, arrays, source=samples.source, labelled=False, samples_first=True)
    return replace(samples, arrays=result.arrays, batch=result.batch, axes=result.axes)


def open_feeds(
    data: Any, graph: Graph, preprocess: Any = None, batch: int | None = None
) -> tuple[Iterable[Mapping[str, Array]], Mapping[str, str]]:
    """Return feeds of a graph, and the preprocessing of files as text.

    Files are read again in each iteration, batch by batch. `batch` is the number of samples in a
    batch. Default: the fixed batch of the graph, or 8. The other arguments and the errors are those
    of `open_samples`.
    """
    graph, preprocess = with_batch_axes(graph, preprocess)
    if isinstance(data, str | os.PathLike) and not _is_plain(os.fspath(data), graph, preprocess):
        with naming(data):
            pipeline = _pipeline(os.fspath(data), graph, preprocess, batch)
            feeds = Feeds(pipeline, batch_axes(graph))
        feeds.pipeline.log_inputs()
        return feeds, feeds.pipeline.fed
    samples = open_samples(data, graph, preprocess, labelled=False)
    with samples.named():
        return samples.feeds(batch), samples.fed


def read_feeding(
    feeding: BenchmarkInputs,
    *graphs: Graph,
    rule: HeaderRule = "auto",
    columns: Mapping[str, str] | None = None,
) -> tuple[BenchmarkInputs, dict[str, str]]:
    """Return benchmark inputs in memory, and a text on the data of each input from a file.

    `rule` is that for the header of CSV files; `columns` are those of inputs of the first graph.
    FileError, GraphError: the file cannot be read.
    """
    check_columns(columns, feeding.data)
    path = feeding.path
    is_vector = (
        path is not None and format_of(path) == "csv" and not is_arrays(path, graphs[0], rule)
    )
    if columns or is_vector:
        given = with_header(None, rule, columns)
        samples = open_samples(feeding.data, graphs[0], given, labelled=False)
        return replace(feeding, data=samples), dict(samples.fed)
    feeding = feeding.read(rule)
    fed: dict[str, str] = {}
    if path is not None:
        arrays: Any = feeding.data
        for graph in graphs:
            fed |= fed_as_they_are(graph, arrays, path, samples_first=False)
        log_inputs(fed)
    return feeding, fed


def fed_as_they_are(
    graph: Graph, arrays: Mapping[str, Array], path: str, *, samples_first: bool = True
) -> dict[str, str]:
    """Return a text on the data of each input, for arrays from a file.

    It names the steps of the model metadata, which do not apply to arrays.
    """
    results, axes = {}, {} if samples_first else batch_axes(graph)
    known = known_preprocessing(graph)
    for tensor, names in names_of_inputs(graph).items():
        array = next((arrays[name] for name in names if name in arrays), None)
        if array is not None:
            dtype = "string" if array.dtype.kind in "OSUV" else str(array.dtype)
            axis = axes.get(tensor, 0)
            shape = (*array.shape[:axis], *array.shape[axis + 1 :])
            steps = ", ".join(changes(known.of(names)))
            without = steps and f", without the steps of the model metadata ({steps})"
            results[names[0]] = f"{kind_of(dtype, shape, path)}, as they are{without}"
    return results


def _is_plain(path: str, graph: Graph, preprocess: Any) -> bool:
    """Return whether the arrays of a file are fed without preprocessing."""
    rule, states_no_more = header_rule(preprocess)
    return states_no_more and not chosen_columns(preprocess) and is_arrays(path, graph, rule)


def _pipeline(path: str, graph: Graph, preprocess: Any, batch: int | None = None) -> Pipeline:
    """Return the pipeline that reads files for a graph."""
    declared = InputPipelineOptions(preprocess=preprocess).declared(graph)
    with naming(path):
        if not declared.chosen and is_arrays(path, graph, declared.rule):
            advice = "Apply the steps to the arrays, and state batch_axis alone."
            refuse_batch_axes(graph, None, "a preprocessing with other steps", advice)
        data = open_data(path, declared.columns, graph, rule=declared.rule, chosen=declared.chosen)
        if batch is None and demanded_batch(graph) is None:
            batch = BATCH
        return pipeline_for(data, graph, preprocessing=declared, batch=batch, epochs=1, threads=1)


def _read(pipeline: Pipeline, graph: Graph, labelled: bool, group_by: str | None = None) -> Dataset:
    """Return all samples of a pipeline, with labels and groups if its data has them."""
    data, fed = pipeline.data, pipeline.fed
    # The columns of a table that an option names are no part of the model's preprocessing.
    applied = document(Preprocessing({
        name: replace(steps, feature="") if steps.feature in data.vectors else steps
        for name, steps in pipeline.steps.items()
    }))  # fmt: skip
    label = next((name for name in LABELS if name in data.features), None)
    if label is not None and labelled:
        steps = {**pipeline.steps, "labels": Steps(feature=label, dtype=data.features[label].dtype)}
        pipeline = replace(pipeline, steps=steps)
    group = group_feature(data, group_by, [producer_name(name) for name in graph.inputs])
    if group:
        steps = {**pipeline.steps, _GROUPS: Steps(feature=group, dtype=data.features[group].dtype)}
        pipeline = replace(pipeline, steps=steps)
    batches = list(Feeds(pipeline))
    if not batches:
        raise GraphError("no-samples", source=data.path, purpose="run")
    results = {
        producer_name(name): np.concatenate([batch[name] for batch in batches])
        for name in pipeline.steps
    }
    labels = results.get("labels")
    if labels is not None and labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        results["labels"] = labels.astype(np.int64)  # CSV files only have float numbers
    samples = Dataset.of(graph, results, applied, data.path, labelled=labelled, samples_first=True)
    if group:
        with samples.named():
            groups = group_names({group: results[_GROUPS]}, group, samples.count)
        samples = replace(samples, groups=groups)
    files = data.files[: samples.count] if data.kind == "images" else ()
    return replace(samples, fed=fed, files=files)


def _by_name(data: Any, graph: Graph) -> dict[str, Any]:
    """Return arrays by name; a pair contains the values of the only input and the labels."""
    if isinstance(data, Mapping):
        return dict(data)
    values = data if isinstance(data, tuple) else (data,)
    if len(graph.inputs) != 1 or not 1 <= len(values) <= 2:
        names = [split(tensor)[0] for tensor in graph.inputs]
        raise GraphError("samples-by-name", inputs=names)
    return dict(zip((split(graph.inputs[0])[0], "labels"), values, strict=False))


def _gathered(dataset: Any, graph: Graph, group_by: str | None) -> dict[str, Any]:
    """Return the elements of a tf.data.Dataset, in memory; they are samples or batches.

    GraphError: the dataset is infinite or empty, lacks an input, or its shapes differ.
    """
    if int(dataset.cardinality()) == -1:
        raise GraphError("dataset-endless")
    elements = [
        {name: np.asarray(value) for name, value in _by_name(item, graph).items()}
        for item in islice(dataset.as_numpy_iterator(), MAX_ELEMENTS + 1)
    ]
    if not elements:
        raise GraphError("no-samples", purpose="take from the dataset")
    if len(elements) > MAX_ELEMENTS:
        raise GraphError("dataset-too-long", most=MAX_ELEMENTS)
    first, axes = elements[0], batch_axes(graph)
    others, known = never_inputs(graph, first, group_by), names_of_inputs(graph)
    with naming(_DATASET):
        inputs = {
            tensor: chosen_name(first, names, *type_and_shape(graph, tensor)[:2], others)
            for tensor, names in known.items()
        }
    join = np.concatenate if _is_batched(first, graph, inputs) else np.stack
    at = {name: axes.get(tensor, 0) for tensor, name in inputs.items()}
    needed = {*inputs.values(), *NOT_INPUTS, group_by}
    results: dict[str, Any] = {}
    for name in first:
        arrays = [element[name] for element in elements]
        try:
            results[name] = join(arrays, axis=at.get(name, 0))
        except ValueError:  # NumPy: the shapes differ
            if name in needed:
                shapes = sorted({array.shape for array in arrays})[:4]
                raise GraphError("dataset-shapes-differ", name=name, shapes=shapes) from None
    return results


def _is_batched(element: Mapping[str, Array], graph: Graph, inputs: Mapping[str, str]) -> bool:
    """Return whether an element is a batch, which has as many axes as its input."""
    for tensor, name in inputs.items():
        shape = type_and_shape(graph, tensor)[1]
        if shape is not None:
            return element[name].ndim == len(shape)
    return True
