"""How right models are on the same samples: a value, and its document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from deploykit.importers.open_model import OpenedModel
from deploykit.quantization.metrics import LOWER_IS_BETTER, Score
from deploykit.transforms.common.documents import (
    AsHtml,
    Flat,
    Hidden,
    OrNull,
    Written,
    document,
    head,
    written,
)
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.verification.confidence import GroupCloseness


@dataclass(frozen=True)
class ModelAccuracy:
    """A model, and how right it is."""

    name: str
    score: Hidden[Score | None]
    """None: the samples have no labels."""
    engine: str = TENSORFLOW
    """In which it was computed."""
    opened: Hidden[OpenedModel | None] = None

    @property
    @written()
    def value(self) -> float | None:
        """The score."""
        return None if self.score is None else self.score.value

    @property
    @written()
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the score, where it has one."""
        return None if self.score is None else self.score.interval


@dataclass(frozen=True)
class ClassAccuracy:
    """How right each model is on the samples of one class."""

    number: Annotated[int, Written("class")]
    name: Annotated[str, Written("label")]
    """Its number and, where it is known, what it is called."""
    samples: int
    scores: Annotated[tuple[Score, ...], Written("models")]
    """By model."""


@dataclass(frozen=True)
class GroupAccuracy:
    """How close the last model is to the first on one group of samples, and how right each is."""

    closeness: Flat[GroupCloseness]
    """Without ratios, where there is one model."""
    scores: Annotated[tuple[Score, ...], Written("models", or_null=True)] = ()
    """By model; empty: the samples have no labels, or the metric is no mean over samples."""


@dataclass(frozen=True)
class GivenAnswer:
    """What a model answers of a sample."""

    name: Annotated[str | None, Written("class")]
    """The class with the highest score; None: outputs are no scores of classes, or are broken."""
    score: float | None
    """How sure it is of that, from 0 to 1: logits behind a softmax; or else the number that it
    gives. None: there is no one number, or it is not finite."""


@dataclass(frozen=True)
class Disagreement:
    """A sample of which two models say different things, or one model something wrong."""

    sample: int
    file: str | None
    """The photo, where the data are files of photos."""
    label: str | None
    """What is right, where that is known."""
    first: GivenAnswer
    last: GivenAnswer | None
    """None: there is one model."""
    size: Annotated[float, Written("disagreement")]
    """How sure the last model is less of the label than the first; without labels, half the sum of
    the distances of their scores; of numbers, how much farther it is from the label."""
    picture: str | None = None
    """A small picture of the sample as a data URI, where it is a photo."""


@dataclass(frozen=True)
class Accuracy(AsHtml):
    """How right one or several models are on the same samples."""

    HEAD: ClassVar = head("accuracy")

    metric: str | None
    """None: the samples have no labels, so that models are compared with each other alone."""
    samples: int
    source: str
    """Where the samples come from."""
    models: tuple[ModelAccuracy, ...]
    change: Score | None = None
    """Of the metric from the first model to the last, each sample compared with itself."""
    agreement: Score | None = None
    """Share of samples of which the first and the last name the same class."""
    noise: Hidden[GroupCloseness | None] = None
    """Signal to noise ratio of the last model's outputs beside the first's, on all samples: of
    what a final Softmax reads, where both have one."""
    by_group: tuple[GroupAccuracy, ...] = ()
    """Of the groups that the data state."""
    by_class: tuple[ClassAccuracy, ...] = ()
    """Of the classes that labels name, where a model scores 100 or fewer."""
    worst: tuple[Disagreement, ...] = ()
    """Other classes first, then the largest; of one model, its surest wrong answers."""
    class_order: OrNull[str] = ""
    """How class numbers follow from what the data call classes, in words."""
    notes: tuple[str, ...] = ()
    """What speaks against the answers of the first model."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input of the first model, in words."""

    @property
    @written()
    def better(self) -> str:
        """Which values of the metric are better: `lower` or `higher`."""
        return "lower" if self.lower_is_better else "higher"

    @property
    @written(flat=True)
    def _noise(self) -> dict[str, Any]:
        noise = document(self.noise) or {}
        return {key: noise.get(key) for key in ("sqnr_db", "sqnr_low_db")}

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error."""
        return self.metric in LOWER_IS_BETTER
