"""Labels of data that name classes, as the numbers of a model's classes."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.freezing.sidecar import about
from deploykit.input.data import Data
from deploykit.input.labelling.class_order import ClassOrder, in_order_of, in_own_order
from deploykit.photos.class_names import labels_from
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.shapes.known_shapes import Shapes
from deploykit.transforms.core.tensors import Array
from deploykit.verification.plausibility import class_numbers
from deploykit.verification.samples import Dataset

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
    found = labels.astype(np.int64)
    for old, new in numbers.items():
        found[labels == old] = new
    return found
