"""The inputs of a benchmark, batch by batch: the user's data, or random values."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import ALLOW_OP, Flag
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.verification.feeds import AxesFeed, count_of
from deploykit.verification.samples import Data, DataLike, Dataset
from deploykit.verification.synthetic.sample_inputs import (
    LARGEST_BATCH,
    MadeUp,
    batch_axes,
    can_be_made_up,
    made_up_shapes,
    requested_sizes,
    size_advice,
    type_and_shape,
)

SYNTHETIC_BATCHES = 4
FROM_DATA = 16  # maximum number of batches
MAX_BYTES = 2 << 30  # total of all synthetic batches


def batches(
    graph: Graph,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Data | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    seed: int = 0,
) -> tuple[tuple[Array, ...], ...]:
    """Return the arrays to feed, in the order of the graph's inputs, batch by batch.

    Args:
        graph: graph to feed.
        batch: samples per batch. Default: the batch that an input requires, or 1.
        shapes: shapes of inputs by name, for unknown dimensions in the graph. The first dimension
            is the batch, unless `batch` is given.
        data: samples, or arrays by input name whose first axis is the samples. At most 16
            batches are used; an incomplete last batch is dropped unless it is the only one.
            Default: 4 synthetic batches.
        input_range: range of synthetic float values; other types are as in a comparison.
        seed: seed of the synthetic values.

    GraphError: a shape is unknown, contradicts the graph or names no input; an input cannot be
    synthesized; the data do not fit.
    """
    if batch is not None and batch < 1:
        raise GraphError("out-of-range", name="the batch", expected="1 or more", got=batch)
    if not graph.inputs:
        return ((),)
    if data is not None:
        if shapes:
            raise GraphError("give-one", options=["--data", "--shape"])
        return _of_data(graph, batch, data)
    return _made_up(graph, batch, shapes or {}, input_range, seed)


class Batch(tuple[Array, ...]):
    """The arrays of one run, in the order of the graph's inputs."""

    samples: int

    @classmethod
    def of(cls, feed: Mapping[str, Array]) -> "Batch":
        """Return the arrays of a feed, with the number of its samples."""
        batch = cls(feed.values())
        batch.samples = count_of(feed)
        return batch


def samples_in(batch: Sequence[Array]) -> int:
    """Return the number of samples in a batch, by default the first size of its first input."""
    if isinstance(batch, Batch):
        return batch.samples
    return len(batch[0]) if batch and batch[0].ndim else 1


def _made_up(
    graph: Graph,
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    input_range: tuple[float, float],
    seed: int,
) -> tuple[tuple[Array, ...], ...]:
    given = requested_sizes(graph, shapes)
    chosen = made_up_shapes(graph, shapes)  # as a comparison chooses them
    axes = batch_axes(graph)
    types, sizes_of = [], []
    for name in graph.inputs:
        type_, declared, reason = type_and_shape(graph, name)
        if reason or not can_be_made_up(type_):
            reason = reason or f"input '{name}' is of type {type_}"
            raise GraphError("synthetic-input-impossible", reason=reason)
        types.append(type_)
        sizes_of.append(_sizes(chosen[name], declared, given.get(name), batch, axes.get(name, 0)))
    _check_batch(graph, batch, axes)
    places = [axes.get(name, 0) for name in graph.inputs]
    known = (sizes[n] for n, sizes in zip(places, sizes_of, strict=True) if sizes)
    at_once = next((size for size in known if size > 0), 1)
    sizes_of = [tuple(at_once if size < 0 else size for size in sizes) for sizes in sizes_of]
    byte_counts = [
        math.prod(s) * numpy_type(t).itemsize for t, s in zip(types, sizes_of, strict=True)
    ]
    if SYNTHETIC_BATCHES * sum(byte_counts) > MAX_BYTES:
        raise GraphError(
            "synthetic-inputs-too-large",
            count=SYNTHETIC_BATCHES,
            size=SYNTHETIC_BATCHES * sum(byte_counts) >> 20,
            most=MAX_BYTES >> 20,
        )
    values = MadeUp(graph, dict(zip(graph.inputs, sizes_of, strict=True)), input_range, seed)
    first, *others = (
        [values.of(*item) for item in zip(graph.inputs, types, sizes_of, strict=True)]
        for _ in range(SYNTHETIC_BATCHES)
    )
    # A scalar is a switch or a rate rather than a sample: the same in every batch.
    retained = [
        [a if a.ndim else b for a, b in zip(arrays, first, strict=True)] for arrays in others
    ]
    feeds = [dict(zip(graph.inputs, arrays, strict=True)) for arrays in (first, *retained)]
    return tuple(Batch.of(AxesFeed(feed, axes)) for feed in feeds)


def _sizes(
    chosen: tuple[int, ...],
    declared: tuple[int, ...] | None,
    given: Sequence[int] | None,
    batch: int | None,
    axis: int,
) -> tuple[int, ...]:
    """Return the shape of an input; -1 on the axis of the samples stands for an open batch."""
    if not chosen:
        return ()
    is_open = not declared or declared[axis] < 0
    size = chosen[axis]
    if is_open and batch is not None:
        size = batch
    elif is_open and given is None and size <= LARGEST_BATCH:
        size = -1
    return (*chosen[:axis], size, *chosen[axis + 1 :])


def _check_batch(graph: Graph, batch: int | None, axes: Mapping[str, int]) -> None:
    """Raise GraphError for a batch size that every input rules out."""
    shapes = [(axes.get(t, 0), type_and_shape(graph, t)[1]) for t in graph.inputs]
    first = [-1 if shape is None else shape[axis] for axis, shape in shapes if shape != ()]
    if batch is not None and first and batch not in first and min(first) > 0:
        raise GraphError(
            "batch-fixed", what=f"input '{graph.inputs[0]}'", fixed=first[0], batch=batch
        )


def _of_data(graph: Graph, batch: int | None, data: Data) -> tuple[tuple[Array, ...], ...]:
    samples = Dataset.of(graph, data)
    arrays = [*samples.arrays.values()]
    count = max((len(array) for array in arrays if array.ndim), default=1)
    if not all(array.size for array in arrays):
        raise GraphError("no-samples", purpose="run")
    at_once = (samples.batch if samples.scalars else batch or samples.batch) or 1
    _check_batch(graph, min(at_once, count), samples.axes)
    starts = range(0, max(count - at_once, 0) + 1, at_once)[:FROM_DATA]
    parts = (
        {
            tensor: array[start : start + at_once] if array.ndim else array
            for tensor, array in samples.arrays.items()
        }
        for start in starts
    )
    return tuple(Batch.of(samples.as_fed(part)) for part in parts)


@takes_former_names
@dataclass(frozen=True)
class BenchmarkInputs:
    """Inputs for a model. Without data, values are synthetic (seed 0)."""

    HEADING: ClassVar = "Data"

    shapes: Annotated[Mapping[str, Sequence[int]], Flag("--shape", format="shape")] = field(
        default_factory=dict
    )
    """Shape of an input with unknown dimensions; may be repeated."""
    data: Annotated[DataLike | None, Flag(metavar="DATA")] = None
    """Samples to run on: a .npz file of arrays by input name [default: reproducible random values].
    For benchmark, also a folder of TFRecords, CSV files or images, which it reads while the model
    runs, or DIR/NAME if DIR contains records of several names."""
    input_range: Annotated[tuple[float, float], Flag(format="range")] = (-1.0, 1.0)
    """Range of the random values for float inputs if no data is given."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()

    @property
    def path(self) -> str | None:
        """Path of the data, or None if the data are in memory or synthetic."""
        return os.fspath(self.data) if isinstance(self.data, str | os.PathLike) else None

    def read(self, rule: HeaderRule = "auto") -> "BenchmarkInputs":
        """Return a copy with the data in memory; `rule` is that for the header of CSV files.

        FileError, GraphError: the data cannot be read.
        """
        from deploykit.storage.arrays import load_data

        return self if self.path is None else replace(self, data=load_data(self.path, rule))

    @contextlib.contextmanager
    def explained(self, *graphs: Graph) -> Iterator[None]:
        """Add to an error of TensorFlow how to give the sizes that the graphs leave open."""
        try:
            yield
        except GraphError as error:
            advice = dict.fromkeys(size_advice(graph, self.shapes) for graph in graphs)
            if self.data is not None or error.code != "runtime-failed" or not any(advice):
                raise
            raise GraphError(
                "random-sizes-do-not-fit", reason=error, advice=" ".join(filter(None, advice))
            ) from None

    def batches(self, graph: Graph, batch: int | None = None) -> tuple[tuple[Array, ...], ...]:
        """Return the arrays for a graph, batch by batch.

        GraphError: an input has no known shape, or does not fit the data.
        """
        data: Any = self.read().data
        return batches(graph, batch, self.shapes, data, self.input_range)


SYNTHETIC = BenchmarkInputs()
