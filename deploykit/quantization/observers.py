"""Statistics of the tensors of a running graph, accumulated batch by batch in a child process.

Ops added to the graph compute the statistics. So no activation leaves TensorFlow, each is freed
after use, and peak memory is about that of one run of one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.quantization.calibration import BINS, least_error_range
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import TensorRange
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import Session, full_name
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

_FETCHES = 4  # statistics per tensor


@dataclass
class _Sums:
    """The statistics of a tensor so far."""

    low: float
    high: float
    rows: int
    """Number of values per channel."""
    channels: tuple[Array, Array, Array] | None
    """Minimum, sum and maximum of each channel; None: the number of channels varies."""

    def add(self, other: "_Sums") -> None:
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.rows += other.rows
        mine, others = self.channels, other.channels
        if mine is None or others is None or mine[0].shape != others[0].shape:
            self.channels = None
        else:
            low, high = np.minimum(mine[0], others[0]), np.maximum(mine[2], others[2])
            self.channels = low, mine[1] + others[1], high


class Observer:
    """Runs a graph feed by feed and records ranges. GraphError: TensorFlow refuses the graph."""

    def __init__(
        self, graph_def: bytes, tensors: Sequence[str], channels_first: frozenset[str]
    ) -> None:
        """Load the graph; `tensors` of rank 2 or more are observed, in execution order."""
        self._session = Session(graph_def)
        self._channels_first = channels_first
        self._tensors = {
            name: self._session.graph.get_tensor_by_name(full_name(name)) for name in tensors
        }
        self._axes: dict[str, tuple[int, ...]] = {}
        """All axes except the channel axis, of each observed tensor."""
        self._fetches: list[str] = []
        self._sums: dict[str, _Sums] = {}
        self._counters: dict[str, str] = {}
        self._counts: dict[str, Array] = {}

    def observe(self, feed: Mapping[str, Array], numbers: Sequence[int]) -> None:
        """Run a feed and record minima, maxima, means; `numbers` are the numbers of its samples.

        GraphError: an activation contains NaN or Inf, or the graph cannot be run.
        """
        if not self._fetches:
            self._take_statistics(self._ranks(feed))
        result = self._session.run(self._fetches, feed)
        for number, name in enumerate(self._axes):
            size, low, high, mean = result[number * _FETCHES :][:_FETCHES]
            if not size:
                continue
            if not np.isfinite(mean).all():
                mean = self._mean_of_finite(name, feed, numbers)
            rows = int(size) // len(mean)
            ends = float(low.min()), float(high.max())
            seen = _Sums(*ends, rows, (low, mean * rows, high))
            if name in self._sums:
                self._sums[name].add(seen)
            else:
                self._sums[name] = seen

    def count(self, feed: Mapping[str, Array]) -> None:
        """Run a feed again and add its values to histograms over the observed ranges."""
        if not self._counters:
            self._take_histograms()
        result = self._session.run(list(self._counters.values()), feed)
        for name, counts in zip(self._counters, result, strict=True):
            self._counts[name] = self._counts.get(name, 0) + counts.astype(np.int64)

    def ranges(self) -> dict[str, TensorRange]:
        """Return the range of each tensor: of least error if histograms exist, else min and max."""
        ranges = {}
        for name in self._axes:
            if name not in self._sums:
                continue  # always empty
            seen = self._sums[name]
            low, high = seen.low, seen.high
            if name in self._counts:
                low, high = least_error_range(self._counts[name], low, high)
            tensor_range = TensorRange(_short(low), _short(high))
            if seen.channels is not None:
                means = tuple(_short(mean, digits=7) for mean in seen.channels[1] / seen.rows)
                least = tuple(_short(value) for value in seen.channels[0])
                most = tuple(_short(value) for value in seen.channels[2])
                tensor_range = TensorRange(tensor_range.min, tensor_range.max, means, least, most)
            ranges[name] = tensor_range
        return ranges

    def _ranks(self, feed: Mapping[str, Array]) -> dict[str, int]:
        """Return the rank of each tensor, from a run of `feed` if the graph does not state it."""
        arrays = start_tensorflow().arrays
        known = {name: value.shape.rank for name, value in self._tensors.items()}
        with self._session.graph.as_default():
            requested = {
                n: arrays.rank(self._tensors[n]).name for n, r in known.items() if r is None
            }
        if requested:
            result = self._session.run(list(requested.values()), feed)
            known |= {name: int(rank) for name, rank in zip(requested, result, strict=True)}
        return known

    def _take_statistics(self, ranks: Mapping[str, int]) -> None:
        parts = start_tensorflow()
        math = parts.math
        with self._session.graph.as_default(), parts.ops.name_scope_v2("deploykit_calibration"):
            for name, value in self._tensors.items():
                rank = ranks[name]
                if rank < 2:
                    continue
                channel = 1 if name in self._channels_first else rank - 1
                axes = tuple(axis for axis in range(rank) if axis != channel)
                # float64 for sums over many samples, but without a float64 copy of each activation.
                means = math.reduce_mean(value, axes[1:])
                statistics = (
                    parts.raw_arrays.size(value),  # array_ops counts a stated shape in Python
                    math.reduce_min(value, axes),
                    math.reduce_max(value, axes),
                    math.reduce_mean(math.cast(means, np.float64), 0),
                )
                self._axes[name] = axes
                self._fetches += [statistic.name for statistic in statistics]

    def _take_histograms(self) -> None:
        parts = start_tensorflow()
        counted_in = parts.histograms.histogram_fixed_width
        with self._session.graph.as_default(), parts.ops.name_scope_v2("deploykit_calibration"):
            for name, seen in self._sums.items():
                if seen.low < seen.high:
                    bounds = np.array([seen.low, seen.high], np.float32)
                    counted = counted_in(self._tensors[name], bounds, BINS)
                    self._counters[name] = counted.name

    def _mean_of_finite(
        self, name: str, feed: Mapping[str, Array], numbers: Sequence[int]
    ) -> Array:
        """Return the channel means of a tensor. GraphError: it contains NaN or Inf."""
        (value,) = self._session.run([name], feed)
        bad = ~np.isfinite(value)
        if not bad.any():  # only the float32 sum overflowed
            return np.asarray(value.mean(self._axes[name], dtype=np.float64))
        of_samples = len(value) == len(numbers)
        where = f"samples {numbers[0]} to {numbers[-1]}"
        if of_samples:
            where = f"sample {numbers[int(np.argwhere(bad)[0][0])]}"
        kind = "NaN" if np.isnan(value).any() else "Inf"
        if full_name(name) in map(full_name, feed):
            raise GraphError("data-hold-nan", name=name, what=kind, where=where)
        node = self._tensors[name].op
        raise GraphError("node-gives-nan", node=node.name, type=node.type, what=kind, where=where)


def _short(value: float, digits: int = 9) -> float:
    """Return a number with enough digits to distinguish float32 values, to keep files short."""
    return float(f"{value:.{digits}g}")
