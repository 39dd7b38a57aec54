"""Validated samples for a graph, and the types of models and data in the public API."""

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from deploykit.storage.tables import column, unusable_columns
from deploykit.transforms.common.documents import Documented
from deploykit.transforms.common.errors import GraphError, counts_differ, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.confidence import FEWEST, GROUP, are_groups, group_names
from deploykit.verification.feeds import Feed, fed, refuse_missing_axis, samples_in
from deploykit.verification.fitting import name_in, of_rank, of_type
from deploykit.verification.related_samples import related_groups
from deploykit.verification.synthetic.sample_inputs import (
    batch_axes,
    demanded_batch,
    names_of_inputs,
    type_and_shape,
)

logger = logging.getLogger("deploykit")

BATCH = 8  # default batch size; a larger one needs more memory and is hardly faster
HELD_OUT_EVERY = 4
SPLIT_FROM = 8  # samples; fewer leave at most one held-out sample
LABELS = ("labels", "label")
NOT_INPUTS = (*LABELS, GROUP)
"""Arrays that never count as the only suitable array of an input."""


@dataclass(frozen=True)
class Dataset:
    """Arrays that a graph can be fed with. Create them with `Dataset.of`, which checks them."""

    arrays: Mapping[str, Array]
    """Arrays by graph input with the input's dtype and samples on the first axis, also where the
    graph takes them on another one (`axes`). A scalar is fed with every sample."""
    labels: Array | None = None
    """True label of each sample, or None."""
    batch: int | None = None
    """Fixed batch size of the graph; None if it accepts any."""
    preprocessing: Mapping[str, Any] | None = None
    """Preprocessing already applied, in the format of `--preprocess`; None if none was."""
    source: str = ""
    """Origin of the samples, for messages."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """Description of the preprocessing of files, by input."""
    files: tuple[str, ...] = ()
    """Image file of each sample, if the data consists of image files."""
    class_names: tuple[str, ...] = ()
    """Class names in the order of class numbers; empty if unknown."""
    class_order: str = ""
    """A text about how class numbers follow from the class names in the data, or why not."""
    is_order_given: bool = False
    """Whether the user passed the class names in their order."""
    groups: Array | None = None
    """Group of each sample, such as its source: strings, object [samples]."""
    related: Array | None = None
    """Group of related samples of each one, int64 [samples]; None: independent, or not yet known
    (`with_relations`)."""
    scalars: frozenset[str] = frozenset()
    """Scalar inputs for which the arrays contain several samples."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """Axis of the samples in inputs that take them on another axis than the first."""

    @property
    def has_class_names(self) -> bool:
        """Whether the labels are class names in the data, numbered in a known order."""
        return self.labels is not None and bool(self.class_order)

    @classmethod
    def of(
        cls,
        graph: Graph,
        data: "Mapping[str, Array] | Dataset",
        preprocessing: Mapping[str, Any] | None = None,
        source: str = "",
        *,
        labelled: bool = True,
        group_by: str | None = None,
        samples_first: bool = False,
    ) -> "Dataset":
        """Create a dataset for a graph from arrays by input name; return a `Dataset` unchanged.

        Arrays may also be named by signature alias. `labels` contains the true labels, unless
        `labelled` is False; other arrays are ignored. `group_by` is the name of the array with
        the group of each sample; '' uses `group` if it exists and is not an input; None: no groups.
        The samples are on the axis that the graph's metadata states for the input, or on the first
        one if `samples_first`.
        GraphError, with the source: arrays do not fit the graph's inputs or each other.
        """
        if isinstance(data, Dataset):
            return data
        with naming(source):
            known = names_of_inputs(graph)
            others = never_inputs(graph, data, group_by)
            axes = batch_axes(graph)
            at = {} if samples_first else axes
            arrays = {
                t: _array(graph, t, data, known[t], others, axes.get(t, 0), at.get(t, 0))
                for t in graph.inputs
            }
            counts = {len(array) for array in arrays.values() if array.ndim}
            used = {name for names in known.values() for name in names}
            held = {*data, *unusable_columns(data)}
            names = [label for label in LABELS if label in held and label not in used and labelled]
            labels = np.asarray(data[names[0]]) if names else None
            if len(counts) > 1:
                raise _counts_differ(graph, arrays, counts, labels)
            if labels is not None and counts and counts != {len(np.atleast_1d(labels))}:
                raise _labels_differ(graph, arrays, np.size(labels), counts.pop())
            groups = _groups(data, group_by, min(counts, default=1), used)
            shapes = {t: type_and_shape(graph, t)[1] for t, a in arrays.items() if a.ndim}
            scalars = {tensor for tensor, shape in shapes.items() if shape == ()}
            if scalars and len(scalars) < len(arrays):
                name, count = split(min(scalars))[0], len(arrays[min(scalars)])
                raise GraphError("input-takes-one", name=name, count=count)
        batch = 1 if scalars else demanded_batch(graph)
        return cls(
            arrays,
            labels,
            batch,
            preprocessing,
            source,
            groups=groups,
            scalars=frozenset(scalars),
            axes=axes,
        )

    @property
    def count(self) -> int:
        """Number of samples."""
        single = 1 if self.arrays else 0
        return min((len(array) for array in self.arrays.values() if array.ndim), default=single)

    def named(self) -> AbstractContextManager[None]:
        """Prefix GraphErrors of the block with the origin of the samples."""
        return naming(self.source)

    def feeds(self, batch: int | None = None) -> list[Feed]:
        """Return the samples as feeds of at most `batch` samples each (default: 8).

        A smaller last batch is skipped with a warning if the graph has a fixed batch size.
        GraphError: there are no samples, or too few for the fixed batch size.
        """
        if not self.arrays:
            raise GraphError("model-without-input")
        if self.batch and batch and batch != self.batch:
            raise GraphError("batch-fixed", what="the model", fixed=self.batch, batch=batch)
        feeds = in_batches(self.arrays, self.batch or batch or BATCH, whole=self.batch is not None)
        return [self.as_fed(feed) for feed in feeds]

    def as_fed(self, feed: Mapping[str, Array]) -> Feed:
        """Return arrays of samples on the first axis as the graph takes them.

        A sample of a scalar input is fed as a scalar.
        """
        arrays = {t: a.reshape(()) if t in self.scalars else a for t, a in feed.items()}
        return fed(arrays, self.axes)

    def labels_of(self, feeds: Iterable[Feed]) -> Array | None:
        """Return the labels of the samples in the feeds, or None."""
        return None if self.labels is None else self.labels[: samples_in(feeds)]

    def groups_of(self, feeds: Iterable[Feed]) -> Array | None:
        """Return the groups of the samples in the feeds, or None."""
        return None if self.groups is None else self.groups[: samples_in(feeds)]

    def related_of(self, feeds: Iterable[Feed]) -> Array | None:
        """Return the groups of related samples in the feeds, or None."""
        return None if self.related is None else self.related[: samples_in(feeds)]

    @cached_property
    def with_relations(self) -> "Dataset":
        """The same samples with `related`."""
        are_sources = not self.files  # folders of images may be classes
        related = related_groups(self.arrays, self.labels, self.groups, are_sources=are_sources)
        return replace(self, related=related)

    def refuse_unlabelled(self, metric: str) -> None:
        """Raise GraphError if there are no labels, with the reason if it is known."""
        if self.labels is None:
            raise GraphError(
                "metric-needs-labels",
                metric=metric,
                reason=self.class_order
                or "the data contains neither an array `labels` nor images in class folders",
            )

    def split(self) -> "Split":
        """Split the samples: every fourth is held out for evaluation, the others calibrate.

        Of related samples, such as crops of one picture, whole groups are held out. Below eight
        samples, or with too few for the fixed batch size, all serve both purposes. The note states
        both cases.
        """
        count, related = self.count, self.with_relations.related
        held, note = np.arange(count) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1, ""
        if related is not None:
            held, note = _held_out_groups(related)
        if count < SPLIT_FROM or not held.sum() >= (self.batch or 1) <= (~held).sum():
            note = (
                f"{count} samples are too few to hold some out, so layers are evaluated on their "
                "calibration samples"
            )
            return Split(self, self, note)
        order = [*np.flatnonzero(~held).tolist(), *np.flatnonzero(held).tolist()]
        known = self.with_relations
        return Split(known._taken(~held), known._taken(held), note, order)

    def spread(self, most: int) -> "Dataset":
        """Return at most `most` evenly spaced samples.

        They are at least as many as the fixed batch size of the graph, if possible.
        """
        most = min(max(most, self.batch or 1), self.count)
        return self._taken(np.linspace(0, self.count - 1, most).round().astype(int))

    def at_least(self, count: int) -> "Dataset":
        """Repeat the samples until there are at least `count`."""
        return self._taken(np.arange(max(self.count, count)) % self.count) if self.count else self

    def refuse_gaps(self) -> None:
        """Raise GraphError if they contain NaN or Inf, for which ranges and noise are undefined."""
        for tensor, array in self.arrays.items():
            if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
                kind = "NaN" if np.isnan(array).any() else "Inf"
                where = f" in sample {np.argwhere(~finite)[0][0]} (from 0)" if array.ndim else ""
                with self.named():
                    raise GraphError(
                        "data-hold-kind", name=split(tensor)[0], kind=kind, where=where
                    )

    def _taken(self, places: Array) -> "Dataset":
        arrays = {name: a[places] if a.ndim else a for name, a in self.arrays.items()}
        labels = self.labels
        if labels is not None and labels.ndim:
            labels = labels[places]
        files = tuple(np.array(self.files, object)[places]) if self.files else ()
        groups = None if self.groups is None else self.groups[places]
        related = None if self.related is None else self.related[places]
        return replace(
            self, arrays=arrays, labels=labels, files=files, groups=groups, related=related
        )


def _held_out_groups(related: Array) -> tuple[Array, str]:
    """Return which samples are held out, bool [samples], and a note for the user.

    Every fourth group is held out, or more where a bound needs them, but at most half of the
    samples. A single group is cut.
    """
    total = len(related)
    _, codes, sizes = np.unique(related, return_inverse=True, return_counts=True)
    count = len(sizes)
    if count == 1:
        held = np.arange(total) >= total - total // HELD_OUT_EVERY
        return held, f"all {total} samples are related: the last {held.sum()} are held out, {_FEW}"
    most = max(count // HELD_OUT_EVERY, min(FEWEST, count // 2))
    chosen = (np.arange(1, most + 1) * count // most) - 1
    if sizes[chosen].sum() > total / 2:
        chosen = np.argsort(sizes, kind="stable")[:most]
    held = np.isin(codes, chosen)
    note = (
        f"{total} samples come from about {count} sources, such as crops of one picture; samples "
        f"of {most} ({held.sum()} in all) are held out"
    )
    if most < FEWEST:
        return held, f"{note}, {_FEW}"
    return held, f"{note}, and intervals count sources. An array 'group' can state the sources"


_FEW = f"which gives no bound: it needs {FEWEST} held-out sources, so add samples of others"


class Split(NamedTuple):
    """Calibration samples, held-out samples, and a note if they are the same or related."""

    calibrating: Dataset
    held_out: Dataset
    note: str = ""
    order: Sequence[int] | None = None
    """Sample indices, calibration samples first; None if all samples serve both purposes."""


Data = Mapping[str, Array] | Dataset


def in_batches(feeds: Mapping[str, Array], batch: int, whole: bool) -> list[Feed]:
    """Split arrays by input name into feeds of at most `batch` samples, as views.

    With `whole`, a smaller last feed is skipped. Scalars are part of every feed.
    GraphError: there are no samples, or too few for one batch.
    """
    count = min((len(array) for array in feeds.values() if array.ndim), default=1)
    if not count:
        raise GraphError("no-samples", purpose="run")
    end = count - count % batch if whole else count
    if not end:
        raise GraphError("data-batch-fixed", count=count, batch=batch)
    if end < count:
        logger.warning("skipping the last %d of %d samples: the graph has a fixed batch size of %d",
                       count - end, count, batch)  # fmt: skip
    return [
        {name: a[start : start + batch] if a.ndim else a for name, a in feeds.items()}
        for start in range(0, end, batch)
    ]


def never_inputs(
    graph: Graph, data: Mapping[str, Any], group_by: str | None = None
) -> tuple[str, ...] | None:
    """Return arrays that never count as the only suitable one of the graph's only input.

    None: the graph has several inputs, so that each array needs the name of its input.
    """
    if len(graph.inputs) != 1:
        return None
    return (*NOT_INPUTS, *([group_by or GROUP] if len(data) > 1 else []))


def _groups(
    data: Mapping[str, Array], group_by: str | None, count: int, used: Collection[str]
) -> Array | None:
    """Return the group of each sample; `used` are the names of inputs."""
    if group_by:
        return group_names(data, group_by, count)
    if group_by == "" and GROUP in data and GROUP not in used:
        if are_groups(np.asarray(data[GROUP])):
            return group_names(data, GROUP, count)
        words = "'%s' does not contain one string or integer per sample: no groups"
        logger.info(words, GROUP)
    return None


def _counts_differ(
    graph: Graph, arrays: Mapping[str, Array], counts: Collection[int], labels: Array | None
) -> GraphError:
    """Return the error for inputs with different numbers of samples.

    It names `batch_axis` if the inputs then have one number of samples: that of the labels if there
    are labels, else the only possible one.
    """
    wanted = counts if labels is None else (np.size(labels),)
    fitting = [found for count in wanted if (found := _on_other_axes(graph, arrays, count))]
    advice = "Give each the same number"
    if len(fitting) == 1:
        ((places, steps),) = fitting
        advice = f"If the samples lie on {places}, state it with --preprocess '{steps}' {_OPTION}"
    return GraphError("array-sample-counts-differ", counts=sorted(counts), advice=advice)


def _labels_differ(
    graph: Graph, arrays: Mapping[str, Array], labels: int, count: int
) -> GraphError:
    """Return the error for labels that are not as many as the samples.

    It names `batch_axis` if each input has exactly one other open axis with as many values.
    """
    found = _on_other_axes(graph, arrays, labels)
    if found is None:
        return counts_differ("labels", labels, count)
    places, steps = found
    return GraphError(
        "labels-on-other-axis", labels=labels, count=count, places=places, steps=steps
    )


_OPTION = "here or in deploykit freeze, which stores it with the model"


def _on_other_axes(graph: Graph, arrays: Mapping[str, Array], count: int) -> tuple[str, str] | None:
    """Return where inputs have `count` samples, as text and as a preprocessing in JSON.

    `arrays` are by input, with their first axis where the samples were expected. None: an input has
    no such axis that its shape leaves open, or several.
    """
    axes, places = batch_axes(graph), {}
    for tensor, array in arrays.items():
        if not array.ndim or len(array) == count:
            continue
        expected, shape = axes.get(tensor, 0), type_and_shape(graph, tensor)[1]
        sizes = [*array.shape[1 : expected + 1], len(array), *array.shape[expected + 1 :]]
        fitting = [
            axis
            for axis, size in enumerate(sizes)
            if axis != expected and size == count and (shape is None or shape[axis] < 0)
        ]
        if len(fitting) != 1:
            return None
        places[split(tensor)[0]] = fitting[0]
    steps = {"format": 1, "inputs": {name: {"batch_axis": n} for name, n in places.items()}}
    text = " and ".join(f"axis {axis} of input '{name}'" for name, axis in places.items())
    return (text, json.dumps(steps)) if places else None


def _array(
    graph: Graph,
    tensor: str,
    data: Mapping[str, Array],
    names: Sequence[str],
    others: Collection[str] | None,
    axis: int,
    given_axis: int,
) -> Array:
    """Return the array of an input, samples first. GraphError: it is missing or does not fit.

    `others` are those of `never_inputs`. `axis` is the axis of the samples in the input,
    `given_axis` that in the data.
    """
    type_, shape, _ = type_and_shape(graph, tensor)
    name = name_in(data, names, type_, shape, others)
    array = np.asarray(column(data, name, is_text=type_ == "string"))
    if given_axis < axis < array.ndim:
        array = np.moveaxis(array, 0, axis)
    array = of_rank(names[0], array, shape, axis)
    refuse_missing_axis(names[0], array.shape, axis)
    array = np.moveaxis(array, axis, 0) if axis else array
    return of_type(names[0], array, type_) if type_ else array


if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import ArrayLike

    InputFunction: TypeAlias = Callable[..., tf.data.Dataset[Any]]
    TensorFlowDataset: TypeAlias = tf.data.Dataset[Any]
else:  # TensorFlow is not imported only for its types
    InputFunction = TensorFlowDataset = ArrayLike = Any

PathLike: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
DataLike: TypeAlias = PathLike | Dataset | Mapping[str, ArrayLike] | TensorFlowDataset
"""A folder or file of samples, arrays by input name (samples on the first axis), or a dataset."""
ImageLike: TypeAlias = PathLike | ArrayLike
"""The path of a JPEG, PNG, GIF, BMP or WebP file, or its pixels [height, width, channels]."""
PreprocessLike: TypeAlias = PathLike | Mapping[str, Any]
"""A JSON file, its contents, or a range of pixel values such as `0..1`."""
LabelsLike: TypeAlias = PathLike | Sequence[str]
"""A text file with one class name per line, or the names."""
ResultLike: TypeAlias = PathLike | Documented | Graph | Mapping[str, object]
"""A result, its document, the JSON file that a command wrote, or a folder of `ship`."""
