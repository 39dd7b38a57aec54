"""Runs models on samples in a child process and compares outputs with labels and each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.evaluation.answers import Apart, of_classes, of_numbers
from deploykit.evaluation.answers import scores_classes as are_scores
from deploykit.evaluation.pictures import pictures
from deploykit.evaluation.result import ClassAccuracy, GroupAccuracy
from deploykit.quantization.accuracy import joined, same_class
from deploykit.quantization.metrics import Score, change, metric_named
from deploykit.transforms.engines.engine_session import OpenVinoSession, session_in
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import Session
from deploykit.verification.confidence import (
    NORMAL_95,
    GroupCloseness,
    closeness_by_group,
    interval_of_mean,
    members,
    wilson,
)
from deploykit.verification.coverage import (
    Answers,
    WeakClass,
    answers_of,
    class_name,
    class_numbers,
    weak_classes,
)
from deploykit.verification.feeds import Layout

MAX_CLASSES = 100
"""Accuracy per class is reported up to this number of classes."""


@dataclass(frozen=True)
class Findings:
    """The comparison of the models' outputs with the labels and with each other."""

    scores: Sequence[Score | None]
    change: Score | None
    agreement: Score | None
    by_class: tuple[ClassAccuracy, ...]
    apart: Apart
    answers: Answers | None
    """The predicted classes in the first output of the first model."""
    noise: GroupCloseness | None
    """The SQNR of the last model against the first, on all samples."""
    groups: tuple[GroupAccuracy, ...]
    weak_classes: tuple[WeakClass, ...]


class Examiner:
    """Stores the outputs of models, which it loads and runs on batches one after the other."""

    def __init__(self, metric: str, names: Sequence[str], whole: bool) -> None:
        """Take a metric, or '' for none. GraphError: the metric does not exist.

        `names` are the output names; with `whole` all outputs are used, otherwise the first.
        """
        self._metric = metric_named(metric) if metric else None  # before a slow start
        self._names = list(names) if whole else list(names)[:1]
        self._outputs: list[dict[str, Array]] = []
        self._counts: list[int] = []
        self._parts: list[list[Array]] = []
        self._layouts: list[Layout] = []
        self._compared: list[list[Array]] = []
        self._session: Session | OpenVinoSession | None = None

    def load(
        self,
        graph_def: bytes,
        outputs: Sequence[str],
        compared: Sequence[str],
        engine: str,
        precision: str,
    ) -> None:
        """Load the next model; its outputs have the order of the names.

        `compared` are the tensors for the SQNR, in the same order in the first and the last model.
        GraphError: the engine refuses the model.
        """
        self._session = session_in(engine, graph_def, Compiling(precision=precision))
        own = list(outputs)[: len(self._names)]
        self._fetches, self._parts = list(dict.fromkeys([*own, *compared])), []
        self._layouts = []
        self._own, self._noisy = own, list(compared)

    def run(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        """Run the model on batches. GraphError: the engine refuses the model or the arrays."""
        assert self._session is not None
        for feed in feeds:
            result = self._session.run(self._fetches, feed)
            self._parts.append([np.asarray(item) for item in result])
            self._layouts.append(Layout.of(feed))

    def keep(self, samples: int) -> None:
        """Store the outputs of the model for the given number of samples, and release the model."""
        values = {
            tensor: joined([part[n] for part in self._parts], self._layouts)
            for n, tensor in enumerate(self._fetches)
        }
        self._outputs.append(
            {name: values[own] for name, own in zip(self._names, self._own, strict=True)}
        )
        self._compared.append([values[tensor] for tensor in self._noisy])
        self._counts.append(samples)
        self._session, self._parts = None, []

    def answers(self, maker: str) -> Answers | None:
        """Return the classes that the first model predicts in its first output.

        `maker` is the op that makes it. None: it has no classes for each sample.
        """
        result = answers_of(next(iter(self._outputs[0].values())), maker)
        return result if result is not None and len(result.numbers) == self._counts[0] else None

    def findings(
        self,
        labels: Array | None,
        samples: int,
        names: Sequence[str],
        most: int,
        maker: str,
        groups: Array | None = None,
        z: float = NORMAL_95,
    ) -> Findings:
        """Compare the outputs with the labels and with each other.

        Args:
            labels: one per sample, or None.
            samples: number of samples.
            names: class names.
            most: maximum number of disagreements to return.
            maker: the op that makes the first output of the first model.
            groups: the group of each sample, or None.
            z: the normal quantile for the intervals of the change and the agreement.

        GraphError: the labels do not fit the outputs, or the metric raises.
        """
        self._cut(samples)
        scores: list[Score | None] = [None] * len(self._outputs)
        arrays: list[Array | None] = [None] * len(self._outputs)
        if self._metric is not None:
            scores = [self._metric(outputs, labels) for outputs in self._outputs]
            arrays = [self._metric.per_sample(outputs, labels) for outputs in self._outputs]
        first, last = (next(iter(outputs.values())) for outputs in self._pair())
        several, is_alike = len(self._outputs) > 1, first.shape == last.shape
        are_classes = are_scores(first, samples) and are_scores(last, samples)
        is_shared = several and are_classes and is_alike
        agreement = same_class(first, last, z=z) if is_shared else None
        apart, other = Apart((), (), (), ()), last if several else None
        if is_alike and are_classes:
            apart = of_classes(first, other, labels, names, most)
        elif is_alike and len(first) == samples and first.dtype.kind in "iuf":
            apart = of_numbers(first, other, labels, most)
        return Findings(
            scores,
            _change(scores, arrays, z) if several else None,
            agreement,
            self._by_class(arrays, labels, names),
            apart,
            answers_of(first, maker),
            self._noise(samples) if several else None,
            () if groups is None else self._by_group(arrays, groups),
            weak_classes(arrays, labels, first.shape[-1] if first.ndim == 2 else 0, names),
        )

    def pictures(
        self, photos: Sequence[bytes | Array], span: tuple[float, float] | None
    ) -> list[str | None]:
        """Return a thumbnail of each image as a data URI; None: not an image."""
        return pictures(photos, span)

    def _cut(self, samples: int) -> None:
        """Drop the outputs of samples that another model did not process."""
        for n, count in enumerate(self._counts):
            for name, entry in self._outputs[n].items():
                self._outputs[n][name] = _first(entry, count, samples)
            self._compared[n] = [_first(item, count, samples) for item in self._compared[n]]

    def _noise(self, samples: int) -> GroupCloseness | None:
        """Return the SQNR of the last model against the first on all samples."""
        whole = np.full(samples, "", object)
        (result,) = closeness_by_group(self._compared_pairs(), whole)
        return None if result.sqnr_db is None else result

    def _compared_pairs(self) -> list[tuple[Array, Array]]:
        return list(zip(self._compared[0], self._compared[-1], strict=True))

    def _by_group(self, arrays: Sequence[Array | None], groups: Array) -> tuple[GroupAccuracy, ...]:
        """Return the SQNR and the accuracy of the models on each group of samples."""
        pairs = self._compared_pairs() if len(self._outputs) > 1 else []
        right = [one for one in arrays if one is not None]
        are_scored = len(right) == len(self._outputs) and all(
            len(one) == len(groups) for one in right
        )
        return tuple(
            GroupAccuracy(result, tuple(_mean(one[at]) for one in right if are_scored))
            for result, (_, at) in zip(
                closeness_by_group(pairs, groups), members(groups), strict=True
            )
        )

    def _pair(self) -> tuple[dict[str, Array], dict[str, Array]]:
        return self._outputs[0], self._outputs[-1]

    def _by_class(
        self, arrays: Sequence[Array | None], labels: Array | None, names: Sequence[str]
    ) -> tuple[ClassAccuracy, ...]:
        """Return the accuracy of the models on each class in the labels."""
        right = [one for one in arrays if one is not None and one.dtype == bool]
        first = next(iter(self._outputs[0].values()))
        if len(right) < len(self._outputs) or labels is None or first.shape[1] > MAX_CLASSES:
            return ()
        numbers = class_numbers(labels.astype(np.int64), *first.shape)
        assert numbers is not None  # the metric accepted the labels
        results = []
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            count = int(chosen.sum())
            scores = tuple(_mean(one[chosen]) for one in right)
            results.append(ClassAccuracy(number, class_name(number, names), count, scores))
        return tuple(results)


def _first(values: Array, count: int, samples: int) -> Array:
    """Return an output for the first samples, if its first axis is the samples axis."""
    return values[:samples] if values.ndim and len(values) == count else values


def _mean(array: Array) -> Score:
    """Return the mean over samples, with the interval of a proportion (bool) or of a mean."""
    if array.dtype == bool:
        return Score(float(array.mean()), wilson(int(array.sum()), len(array)))
    return Score(float(array.mean()), interval_of_mean(array))


def _change(
    scores: Sequence[Score | None], arrays: Sequence[Array | None], z: float
) -> Score | None:
    """Return the change of the metric from the first model to the last."""
    before, after = arrays[0], arrays[-1]
    if before is not None and after is not None:
        return change(before, after, z)
    if scores[0] is None or scores[-1] is None:
        return None
    return Score(scores[-1].value - scores[0].value)
