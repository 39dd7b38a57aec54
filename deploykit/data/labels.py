"""Labels of data: classes as numbers, their order, and the groups of samples."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.data.data import Data
from deploykit.importers.metadata_file import about
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.errors import GraphError, nearest, unknown_name
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.shapes.static_shapes import Shapes
from deploykit.verification.confidence import GROUP
from deploykit.verification.coverage import class_numbers
from deploykit.verification.samples import Dataset

SORTED = "in the sorted order of their names (--labels FILE gives another)"
AS_NUMBERED = "as the data number them (--labels FILE gives another order)"


@dataclass(frozen=True)
class ClassOrder:
    """The number of each class that data name, and how it was found, in words."""

    numbers: tuple[int, ...]
    why: str


def in_order_of(names: Sequence[str], labels: Sequence[str], told_by: str) -> ClassOrder:
    """Return the place of each name among the labels of a model.

    Where none of the names is a label and all are numbers of labels, they are taken as these.

    Args:
        names: of the classes that the data hold, each once.
        labels: the names of the model's classes, in the order of their scores.
        told_by: what says so, for messages: a file, or the model.

    GraphError: a name is no label, or that of several.
    """
    if not set(names) & set(labels) and all(name.isdecimal() for name in names):
        numbers = tuple(map(int, names))
        beyond = [number for number in numbers if number >= len(labels)]
        if not beyond:
            return ClassOrder(numbers, "whose names are their numbers")
        raise GraphError("class-beyond", name=beyond[0], count=len(labels), told_by=told_by)
    places = {label: number for number, label in enumerate(labels)}
    for name in names:
        if name not in places:
            raise GraphError(
                "class-unknown",
                name=name,
                count=len(labels),
                told_by=told_by,
                hint=nearest(name, list(places)),
            )
        if (count := list(labels).count(name)) > 1:
            raise GraphError("class-names-same", count=count, told_by=told_by, name=name)
    return ClassOrder(tuple(places[name] for name in names), f"taken by their names in {told_by}")


def in_own_order(called: Mapping[int, str], classes: int | None) -> ClassOrder:
    """Return numbers of classes where nobody says what the model's are called.

    Names that are whole numbers are the numbers; others keep the places that data gave them, which
    are those of the sorted names of folders, where there are as many as classes.

    Args:
        called: the names of the classes that the data hold, by the numbers that these give them.
        classes: how many the model has; None: that is not known.

    GraphError: there are more names or fewer than classes.
    """
    names = [*called.values()]
    if all(name.isdecimal() for name in names):
        return ClassOrder(tuple(map(int, names)), "whose names are their numbers")
    if classes not in (None, len(names)):
        raise GraphError("class-order-unknown", count=len(names), scores_count=classes)
    is_sorted = [called[number] for number in sorted(called)] == sorted(names)
    return ClassOrder(tuple(called), f"taken {SORTED if is_sorted else AS_NUMBERED}")


logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class ClassNames:
    """What the classes of a model are called, and who says so."""

    names: tuple[str, ...] = ()
    """In the order of the scores; empty: that is not known."""
    told_by: str = ""
    is_given: bool = False
    """Whether the user says it now, so that data which contradict it are refused."""

    @classmethod
    def of(cls, graph: Graph, labels: Any = None) -> "ClassNames":
        """Return names that are given, or that lie in a file, or else those known of a graph.

        Such a value is returned as it is. FileError, GraphError: the file cannot be read.
        """
        if isinstance(labels, ClassNames):
            return labels
        if labels is None:
            return cls(tuple(about(graph).labels), "the labels that are kept beside the model")
        path = isinstance(labels, str | os.PathLike)
        told_by = os.fspath(labels) if path else "the labels that were given"
        return cls(tuple(labels_from(labels)), told_by, is_given=True)


def classes_of(data: Data) -> dict[int, str]:
    """Return what classes are called by the numbers that labels of data have; none: by nothing."""
    if data.kind == "images" and data.labelled:
        is_number = all(name.isdecimal() for name in data.classes)
        return {int(name) if is_number else n: name for n, name in enumerate(data.classes)}
    return dict(enumerate(data.classes))


def with_class_numbers(
    samples: Dataset, graph: Graph, known: ClassNames, called: Mapping[int, str] | None = None
) -> Dataset:
    """Return samples whose labels are the numbers of a model's classes, where they name classes.

    It is said how they were found. Where it cannot be known which class is which, they are without
    labels, with a warning.

    Args:
        samples: whose labels are numbers of `called`, or texts, or anything else, which stays.
        graph: the model.
        known: what its classes are called.
        called: what the data call their classes, by the numbers of their labels.

    GraphError, with the source: the data name a class that is not among those that were given.
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
        with samples.named():
            if known.is_given:
                raise
        logger.warning("%s: the labels are left out: %s", samples.source or "the data", error)
        return replace(samples, labels=None, class_names=known.names, class_order=str(error))
    said = f"{len(called)} class{'es' * (len(called) > 1)}, {order.why}"
    logger.info("%s: %s", samples.source or "the data", said)
    names = known.names or _in_their_places(called, order)
    return replace(
        samples,
        labels=_replaced(labels, dict(zip(called, order.numbers, strict=True))),
        class_names=names,
        class_order=said,
    )


def _order(called: Mapping[int, str], graph: Graph, known: ClassNames) -> ClassOrder:
    """Return the model's number of each class of the data. GraphError: that is not known."""
    if known.names:
        return in_order_of([*called.values()], known.names, known.told_by)
    shape = Shapes(graph).shape(graph.outputs[0]) if graph.outputs else None
    is_known = shape is not None and len(shape) == 2 and shape[1] > 1
    return in_own_order(called, shape[1] if is_known and shape else None)


def _in_their_places(called: Mapping[int, str], order: ClassOrder) -> tuple[str, ...]:
    """Return what classes are called, by their numbers; none, where some numbers have no name."""
    places = dict(zip(order.numbers, called.values(), strict=True))
    return tuple(places[n] for n in range(len(places))) if max(places) < len(places) else ()


def _numbered(labels: Array) -> tuple[dict[int, str], Array]:
    """Return texts as numbers, and what these are called."""
    texts = [t.decode(errors="replace") if isinstance(t, bytes) else str(t) for t in labels.flat]
    names, numbers = np.unique(np.array(texts), return_inverse=True)
    return dict(enumerate(names.tolist())), numbers.reshape(labels.shape)


def _replaced(labels: Array, numbers: Mapping[int, int]) -> Array:
    """Return labels by other numbers; what has none stays what it is."""
    result = labels.astype(np.int64)
    for old, new in numbers.items():
        result[labels == old] = new
    return result


FOLDER = "folder"
"""What images are grouped by where their folders are the groups."""


def group_feature(data: Data, group_by: str | None, inputs: Collection[str]) -> str:
    """Return the feature with the group of each record, or '' where no feature has it.

    Args:
        data: files, and the features of each record.
        group_by: a feature, or `folder` of images; '': `group`, where there is one that is not an
            input; None: no groups.
        inputs: the names of the model's inputs.

    GraphError: the data have no such feature.
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
    """Return samples that are images in groups by their folders; others stay as they are.

    Without `group_by`, folders are groups where there are several and they are not the classes.
    """
    if group_by not in ("", FOLDER) or samples.groups is not None or not samples.files:
        return samples
    folders = [os.path.relpath(os.path.dirname(file), data.path) for file in samples.files]
    are_classes = samples.labels is not None and {*folders} <= {*data.classes}
    if group_by == "" and (are_classes or len({*folders}) < 2):
        return samples
    return replace(samples, groups=np.array(folders, object))
