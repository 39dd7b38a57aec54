"""How often models are right on labelled samples, and where they answer otherwise."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from deploykit.correctness.examining import MOST_PICTURES, STEPS, examine
from deploykit.correctness.result import Accuracy
from deploykit.freezing.open_model import OpenedModel, open_models
from deploykit.input.labelling.class_numbers import ClassNames
from deploykit.input.samples import open_alike, open_samples
from deploykit.quantization.metrics import metric_named
from deploykit.text.progress import working
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.verification.samples import Samples

TOP1 = "top1"


def accuracy(
    models: Any,
    data: Any,
    *,
    preprocess: Any = None,
    metric: str = TOP1,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    group_by: str | None = None,
    worst: int = MOST_PICTURES,
    allowed_ops: Sequence[str] = (),
    **options: Any,
) -> Accuracy:
    """Say how right models are on the same labelled samples, and where the last differs most.

    Each runs in the engine that it was written for. Figures come with their 95 % confidence
    intervals; how much the last is better or worse than the first is judged sample by sample, which
    tells more than two intervals. Without labels, models are only compared with each other.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        data: labelled samples: arrays by input name with `labels`, a `tf.data.Dataset` of pairs, an
            `.npz` file, or a folder of TFRecords, CSV files or photos, of which each folder is a
            class. Labels are class numbers or rows with a single 1 (one-hot).
        preprocess: what becomes of the features of files, as for `verify`; default: what is known
            of each model.
        metric: `top1` or `top5`, the share of samples whose label is among so many highest scores
            of the first output; `mae`, the mean absolute error of the first output; or
            `module:function`, called with the outputs by name and the labels.
        labels: names of the classes in the order of the scores, or a text file with one a line, by
            which folders of classes are understood; default: what is kept beside a model.
        group_by: the array, column or feature with the group of each sample, or `folder` of images;
            default: `group`, where there is one, or folders that are not the classes.
        worst: disagreements that are told, at most; 12 of them with pictures, of photos.
        allowed_ops: ops that are run although they act on files or processes.
        options: fields of `Source`, such as `outputs`, which count for all models.

    All samples are in memory. FileError, GraphError: a model or the data cannot be read or do not
    fit each other, a folder is no class of `labels`, there are no labels, or nothing can be
    compared. RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.

    Example:
        >>> found = deploykit.accuracy("fashion.keras", "test_1000.npz")
        >>> found.models[0].score.value > 0.8
        True
    """
    if worst < 0:
        raise GraphError(
            "out-of-range", name="worst", expected="a number of samples, 0 or more", got=worst
        )
    if ":" not in metric:
        metric_named(metric)  # before models are read
    with working("accuracy", *STEPS) as work:
        work.begin("read")
        opened = _opened(models, options, allowed_ops)
        first = next(iter(opened.values())).frozen
        known = _known(opened.values()) if labels is None else labels
        samples = open_samples(data, first, preprocess, labels=known, group_by=group_by or "")
        alike = partial(_alike, samples, first, data, preprocess)
        return examine(opened, samples, alike, metric, worst, work)


def _opened(
    models: Any, options: Mapping[str, Any], allowed_ops: Sequence[str]
) -> dict[str, OpenedModel]:
    """Return models by name. GraphError: there is none. RefusedError: an op is not allowed."""
    opened = open_models(models, **options)
    if not opened:
        raise GraphError("no-model")
    for each in opened.values():
        each.refuse_effects(allowed_ops)
    return opened


def _known(models: Iterable[OpenedModel]) -> ClassNames | None:
    """Return what classes are called by the first of the models that knows it."""
    for each in models:
        if each.about.labels:
            told_by = f"the labels that are kept beside {each.source}"
            return ClassNames(tuple(each.about.labels), told_by)
    return None


def _alike(
    samples: Samples, first: Graph, data: Any, preprocess: Any, model: OpenedModel
) -> Samples:
    return open_alike(samples, first, data, model.frozen, preprocess)
