"""Labels of data: class numbers, class order, and groups of samples."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.data.data import Data
from deploykit.importers.metadata_file import about
from deploykit.storage.image_files import labels_from
from deploykit.storage.image_folders import LABELS as FILE
from deploykit.transforms.common.errors import GraphError, nearest, unknown_name
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.shapes.static_shapes import Shapes
from deploykit.verification.confidence import GROUP
from deploykit.verification.coverage import class_numbers
from deploykit.verification.samples import Dataset

SORTED = "in the sorted order of their names (--labels FILE gives another)"
AS_NUMBERED = "as in the data (--labels FILE gives another order)"


@dataclass(frozen=True)
class ClassOrder:
    """The model's number of each class in the data, and how it was determined, as text."""

    numbers: tuple[int, ...]
    why: str


def in_order_of(names: Sequence[str], labels: Sequence[str], labels_source: str) -> ClassOrder:
    """Return the index of each name in the labels of a model.

    If no name is a label and all are valid label numbers, the names are used as numbers.

    Args:
        names: the distinct class names in the data.
        labels: the names of the model's classes, in the order of their scores.
        labels_source: the source of the labels for messages: a file, or the model.

    GraphError: a name is not a label, or occurs more than once in the labels.
    """
    if not set(names) & set(labels) and all(name.isdecimal() for name in names):
        numbers = tuple(map(int, names))
        beyond = [number for number in numbers if number >= len(labels)]
        if not beyond:
            return ClassOrder(numbers, "whose names are their numbers")
        raise GraphError(
            "class-beyond", name=beyond[0], count=len(labels), labels_source=labels_source
        )
    places = {label: number for number, label in enumerate(labels)}
    for name in names:
        if name not in places:
            raise GraphError(
                "class-unknown",
                name=name,
                count=len(labels),
                labels_source=labels_source,
                hint=nearest(name, list(places)),
            )
        if (count := list(labels).count(name)) > 1:
            raise GraphError(
                "class-names-same", count=count, labels_source=labels_source, name=name
            )
    return ClassOrder(
        tuple(places[name] for name in names), f"matched by their names in {labels_source}"
    )


def in_own_order(called: Mapping[int, str], classes: int | None) -> ClassOrder:
    """Return class numbers for a model whose class names are unknown.

    Names that are integers are used as numbers. Other names keep their numbers in the data (for
    image folders, the sorted order), if there are as many as the model has classes.

    Args:
        called: the class names in the data, by their numbers in the data.
        classes: the number of classes of the model; None if unknown.

    GraphError: the number of names differs from the number of classes.
    """
    names = [*called.values()]
    if all(name.isdecimal() for name in names):
        return ClassOrder(tuple(map(int, names)), "whose names are their numbers")
    if classes not in (None, len(names)):
        raise GraphError("class-order-unknown", count=len(names), scores_count=classes)
    is_sorted = [called[number] for number in sorted(called)] == sorted(names)
    return ClassOrder(tuple(called), f"numbered {SORTED if is_sorted else AS_NUMBERED}")


logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class ClassNames:
    """The names of a model's classes, and their source."""

    names: tuple[str, ...] = ()
    """The names in the order of the scores; empty if unknown."""
    labels_source: str = ""
    is_given: bool = False
    """Whether the user passed the names."""
    may_differ: bool = False
    """Whether data that contradicts names from the user loses its labels and is not refused."""

    @classmethod
    def of(cls, graph: Graph, labels: Any = None) -> "ClassNames":
        """Return names from a sequence or a file, or else from the graph's metadata.

        A ClassNames is returned unchanged. FileError, GraphError: the file cannot be read.
        """
        if isinstance(labels, ClassNames):
            return labels
        if labels is None:
            return cls(tuple(about(graph).labels), "the labels in the model metadata")
        path = isinstance(labels, str | os.PathLike)
        labels_source = os.fspath(labels) if path else "the labels that were given"
        return cls(tuple(labels_from(labels)), labels_source, is_given=True)


def classes_of(data: Data) -> dict[int, str]:
    """Return the class names by the label numbers of the data; empty if it has no names."""
    if data.kind == "images" and data.labelled:
        return {number: name for name, number in data.class_numbers.items()}
    return dict(enumerate(data.classes))


def with_class_numbers(
    samples: Dataset, graph: Graph, known: ClassNames, called: Mapping[int, str] | None = None
) -> Dataset:
    """Return samples whose class labels are the numbers of the model's classes.

    Logs how the numbers were determined. If they cannot be determined, the labels are removed, with
    a warning.

    Args:
        samples: their labels are numbers in `called`, strings, or other values, which are kept.
        graph: the model.
        known: the names of the model's classes.
        called: the class names in the data, by label number.

    GraphError, with the source: the data has a class that is not among the names that were passed.
    """
    labels = samples.labels
    if labels is None:
        return replace(samples, class_names=known.names)
    if labels.dtype.kind in "OSU":
        called, labels = _numbered(labels)
    elif called and labels.ndim > 1:
        labels = class_numbers(labels, len(labels), len(called))
    if not called or labels is None:
        return replace(samples, class_names=known.names)
    try:
        order = _order(called, graph, known)
    except GraphError as error:
        return _ignored(samples, known, error)
    text = f"{len(called)} class{'es' * (len(called) > 1)}, {order.why}"
    logger.info("%s: %s", samples.source or "the data", text)
    names = known.names or _in_their_places(called, order)
    return replace(
        samples,
        labels=_replaced(labels, dict(zip(called, order.numbers, strict=True))),
        class_names=names,
        class_order=text,
        is_order_given=known.is_given,
    )


def with_classes_of(samples: Dataset, data: Data, graph: Graph, known: ClassNames) -> Dataset:
    """Return samples of files with the labels of `with_class_numbers`.

    If an image next to class folders has no class, the samples have no labels, with a warning.
    GraphError: the same, or a class is unknown, and names of classes were passed.
    """
    if not data.unclassed:
        return with_class_numbers(samples, graph, known, classes_of(data))
    file, labels = os.path.relpath(data.unclassed, data.path), f"the labels of all images in {FILE}"
    error = GraphError("image-without-class", file=file, labels=labels)
    return _ignored(samples, known, error)


def _ignored(samples: Dataset, known: ClassNames, error: GraphError) -> Dataset:
    """Return samples without labels, with a warning. GraphError: it contradicts names."""
    if known.is_given and not known.may_differ:
        with samples.named():
            raise error
    logger.warning("%s: the labels are ignored: %s", samples.source or "the data", error)
    return replace(samples, labels=None, class_names=known.names, class_order=str(error))


def _order(called: Mapping[int, str], graph: Graph, known: ClassNames) -> ClassOrder:
    """Return the model's number of each class in the data. GraphError: it is unknown."""
    if known.names:
        return in_order_of([*called.values()], known.names, known.labels_source)
    shape = Shapes(graph).shape(graph.outputs[0]) if graph.outputs else None
    is_known = shape is not None and len(shape) == 2 and shape[1] > 1
    return in_own_order(called, shape[1] if is_known and shape else None)


def _in_their_places(called: Mapping[int, str], order: ClassOrder) -> tuple[str, ...]:
    """Return the class names by number; empty if some numbers have no name."""
    places = dict(zip(order.numbers, called.values(), strict=True))
    return tuple(places[n] for n in range(len(places))) if max(places) < len(places) else ()


def _numbered(labels: Array) -> tuple[dict[int, str], Array]:
    """Return the name of each number, and string labels as numbers."""
    texts = [t.decode(errors="replace") if isinstance(t, bytes) else str(t) for t in labels.flat]
    names, numbers = np.unique(np.array(texts), return_inverse=True)
    return dict(enumerate(names.tolist())), numbers.reshape(labels.shape)


def _replaced(labels: Array, numbers: Mapping[int, int]) -> Array:
    """Return labels with replaced numbers; labels without a new number are unchanged."""
    result = labels.astype(np.int64)
    for old, new in numbers.items():
        result[labels == old] = new
    return result


FOLDER = "folder"
"""The value of `group_by` that groups images by folder."""


def group_feature(data: Data, group_by: str | None, inputs: Collection[str]) -> str:
    """Return the feature that contains the group of each record, or '' if there is none.

    Args:
        data: the files, and the features of each record.
        group_by: a feature, or `folder` for images; '': the feature `group` if it exists and is not
            an input; None: no groups.
        inputs: the names of the model's inputs.

    GraphError: the data does not have the feature.
    """
    if not group_by:
        is_there = group_by == "" and GROUP in data.features and GROUP not in inputs
        return GROUP if is_there else ""
    if group_by in data.features:
        return group_by
    has_folders = data.kind == "images"
    if group_by == FOLDER and has_folders:
        return ""
    known = sorted({*data.features, *([FOLDER] if has_folders else [])})
    raise unknown_name("array to group by", group_by, known).within(data.path)


def in_folders(samples: Dataset, data: Data, group_by: str | None) -> Dataset:
    """Return image samples grouped by folder; other samples are returned unchanged.

    Without `group_by`, folders are groups if there are several and they are not the classes.
    """
    if group_by not in ("", FOLDER) or samples.groups is not None or not samples.files:
        return samples
    folders = [os.path.relpath(os.path.dirname(file), data.path) for file in samples.files]
    tops = {folder.partition(os.sep)[0] for folder in folders}
    are_classes = samples.labels is not None and tops <= {*data.classes}
    if group_by == "" and (are_classes or len({*folders}) < 2):
        return samples
    return replace(samples, groups=np.array(folders, object))
