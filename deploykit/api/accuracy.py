"""accuracy: measure models on labelled samples and compare their predictions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.data.labels import ClassNames
from deploykit.data.preprocessing import with_header
from deploykit.data.samples import open_alike, open_samples, preprocessing_for
from deploykit.evaluation.examining import MAX_PICTURES, STEPS, examine
from deploykit.evaluation.result import Accuracy
from deploykit.importers.open_model import ModelsLike, OpenedModel, open_models
from deploykit.quantization.metrics import metric_named
from deploykit.rendering.progress import working
from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, LABELS, PREPROCESS, Flag
from deploykit.verification.samples import DataLike, Dataset, LabelsLike, PreprocessLike

TOP1 = "top1"


@public(Command(heading="Evaluation", runs_graph=True))
def accuracy(
    models: Annotated[ModelsLike, Flag(format="paths", metavar="MODEL...")],
    data: Annotated[DataLike, Flag("--data", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    metric: Annotated[str, Flag(metavar="NAME|MODULE:FUNCTION")] = TOP1,
    labels: Annotated[LabelsLike | None, LABELS] = None,
    group_by: Annotated[str | None, Flag(metavar="NAME", heading="Data")] = None,
    show_errors: Annotated[
        int, Flag(hidden="--worst", formerly="worst", at_least=0)
    ] = MAX_PICTURES,
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = (),
) -> Accuracy:
    """Measure accuracy on labelled samples.

    Every MODEL runs on the same samples, in the engine (TensorFlow or OpenVINO) that it was written
    for. Accuracies have a 95 % confidence interval. The last MODEL is compared with the first one,
    sample by sample. The comparison shows the change of the metric with its interval, the top-1
    agreement, and the noise of the outputs. It lists the samples on which the models disagree most.
    For a single MODEL, the most confident wrong predictions are listed.

    Labels are class numbers, one-hot rows, or names. Names of image folders are looked up in
    `labels` or in the model metadata file. Without either, the sorted folders are numbered from 0
    if their number equals the model's number of classes. Without labels, two or more models are
    only compared with each other.

    --json includes thumbnails of the listed samples if they are images.

    Args:
        models: any model that `open_model` accepts, a list of models, or a mapping from names to
            models.
        data: Samples with labels: a .npz file of arrays by input name and labels, a folder of
            TFRecords or CSV files, a folder of images with one subfolder per class, or DIR/NAME if
            DIR contains records of several names.
        metric: top1, top5, mae (mean absolute error), or your own function. It gets the outputs by
            name and the labels.
        group_by: Also report each group of samples. NAME is an array, column or feature with one
            string or integer per sample, or `folder` for images. [default: `group`, or image
            folders that are not the classes]
        show_errors: Number of samples to list: those on which the models disagree most, or the most
            confident wrong predictions of a single model.

    All samples must fit in memory. FileError, GraphError: a model or the data cannot be read or do
    not match, an image folder is not a class in `labels`, there are no labels, or nothing can be
    compared. RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or
    hung.

    Commands:
        deploykit accuracy fashion.pb --data models/fashion/test_1000.npz
        deploykit accuracy flowers.keras int8.pb --data photos/val --labels labels.txt

    Example:
        >>> found = deploykit.accuracy("fashion.keras", "test_1000.npz")
        >>> found.models[0].score.value > 0.8
        True
    """
    preprocess = with_header(preprocess, header, columns)
    if ":" not in metric:
        metric_named(metric)  # before models are read
    with working("accuracy", *STEPS) as work:
        work.begin("read")
        opened = open_models(models)
        if not opened:
            raise GraphError("no-model")
        for item in opened.values():
            item.refuse_effects(allow_ops)
        reference, *others = opened.values()
        first, own = reference.frozen, preprocessing_for(reference, others, preprocess)
        known = _known(opened.values()) if labels is None else labels
        samples = open_samples(data, first, own, labels=known, group_by=group_by or "")

        def alike(model: OpenedModel) -> Dataset:
            given = preprocessing_for(model, opened.values(), preprocess)
            return open_alike(samples, first, data, model.frozen, given)

        return examine(opened, samples, alike, metric, show_errors, work)


def _known(models: Iterable[OpenedModel]) -> ClassNames | None:
    """Return the class names of the first model whose metadata contains them."""
    for model in models:
        if model.about.labels:
            labels_source = f"the labels in the metadata of {model.source}"
            return ClassNames(tuple(model.about.labels), labels_source)
    return None
