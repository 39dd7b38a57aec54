"""The accuracy of models on the same samples: values, and the document of them."""

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
from deploykit.verification.coverage import WeakClass


@dataclass(frozen=True)
class ModelAccuracy:
    """A model and its accuracy."""

    name: str
    score: Hidden[Score | None]
    """The score; None: the samples have no labels."""
    engine: str = TENSORFLOW
    """The engine that ran the model."""
    opened: Hidden[OpenedModel | None] = None

    @property
    @written()
    def value(self) -> float | None:
        """The score."""
        return None if self.score is None else self.score.value

    @property
    @written()
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the score; None: not available."""
        return None if self.score is None else self.score.interval


@dataclass(frozen=True)
class ClassAccuracy:
    """The accuracy of each model on the samples of one class."""

    number: Annotated[int, Written("class")]
    name: Annotated[str, Written("label")]
    """The class number and, if known, the class name."""
    samples: int
    scores: Annotated[tuple[Score, ...], Written("models")]
    """The score of each model."""


@dataclass(frozen=True)
class GroupAccuracy:
    """SQNR of the last model against the first, and accuracy of each, on one group of samples."""

    closeness: Flat[GroupCloseness]
    """Name and size of the group, SQNR and agreement; for one model, the latter two are None."""
    scores: Annotated[tuple[Score, ...], Written("models", or_null=True)] = ()
    """Scores by model; empty: no labels, or the metric is not a mean over samples."""


@dataclass(frozen=True)
class GivenAnswer:
    """The prediction of a model for a sample."""

    name: Annotated[str | None, Written("class")]
    """The class with the highest score; None: outputs are not class scores, or contain NaN."""
    score: float | None
    """Confidence from 0 to 1 (softmax of logits) or, without classes, the predicted value. None:
    not a single value, or not finite."""


@dataclass(frozen=True)
class Disagreement:
    """A sample on which two models disagree, or that one model predicts wrongly."""

    sample: int
    file: str | None
    """The image file, if the data are image files."""
    label: str | None
    """The label; None: not known."""
    first: GivenAnswer
    last: GivenAnswer | None
    """The prediction of the last model; None: there is one model."""
    size: Annotated[float, Written("disagreement")]
    """Confidence in the label that the last model lost against the first. Without labels: half the
    sum of the score differences. For numbers: increase of the error."""
    picture: str | None = None
    """A thumbnail of the sample as a data URI; None: not an image."""


@dataclass(frozen=True)
class Accuracy(AsHtml):
    """The accuracy of one or several models on the same samples."""

    HEAD: ClassVar = head("accuracy")

    metric: str | None
    """The metric; None: the samples have no labels, so models are only compared with each other."""
    samples: int
    source: str
    """Path or description of the samples."""
    models: tuple[ModelAccuracy, ...]
    change: Score | None = None
    """Change of the metric from the first model to the last, paired by sample."""
    agreement: Score | None = None
    """Share of samples for which the first and the last model predict the same class (top-1)."""
    noise: Hidden[GroupCloseness | None] = None
    """SQNR of the last model's outputs against the first's, on all samples. If both have a final
    Softmax, its inputs are compared."""
    by_group: tuple[GroupAccuracy, ...] = ()
    """Results per group, if the data define groups."""
    by_class: tuple[ClassAccuracy, ...] = ()
    """Results per class in the labels, for models with up to 100 classes."""
    worst: tuple[Disagreement, ...] = ()
    """Different classes first, then the largest disagreement. For one model: its wrong predictions
    of highest confidence."""
    class_order: OrNull[str] = ""
    """How class names map to class numbers, in words."""
    notes: tuple[str, ...] = ()
    """Why the predictions of the first model are doubtful."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input of the first model, in words."""
    weak_classes: tuple[WeakClass, ...] = ()
    """Classes that the last model never predicts right, or significantly less often than the
    first."""

    @property
    @written()
    def better(self) -> str:
        """The direction of the metric: `lower` or `higher` is better."""
        return "lower" if self.lower_is_better else "higher"

    @property
    @written(flat=True)
    def _noise(self) -> dict[str, Any]:
        noise = document(self.noise) or {}
        return {key: noise.get(key) for key in ("sqnr_db", "sqnr_low_db")}

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error, so that lower is better."""
        return self.metric in LOWER_IS_BETTER
