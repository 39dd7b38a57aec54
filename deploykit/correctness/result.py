"""How right models are on the same samples: a value, and its document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploykit.freezing.open_model import OpenedModel
from deploykit.quantization.metrics import LOWER_IS_BETTER, Score
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.engines.engines import TENSORFLOW
from deploykit.verification.groups import GroupCloseness

FORMAT = 1


@dataclass(frozen=True)
class ModelAccuracy:
    """A model, and how right it is."""

    name: str
    score: Score | None
    """None: the samples have no labels."""
    engine: str = TENSORFLOW
    """In which it was computed."""
    opened: OpenedModel | None = None

    def document(self) -> dict[str, Any]:
        """Return it as plain data; the value and its interval are null where nothing is known."""
        value, interval = (None, None) if self.score is None else (
            self.score.value, self.score.interval,
        )  # fmt: skip
        return {
            "name": self.name,
            "value": value,
            "interval": interval and list(interval),
            "engine": self.engine,
        }


@dataclass(frozen=True)
class ClassAccuracy:
    """How right each model is on the samples of one class."""

    number: int
    name: str
    """Its number and, where it is known, what it is called."""
    samples: int
    scores: tuple[Score, ...]
    """By model."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "class": self.number,
            "label": self.name,
            "samples": self.samples,
            "models": [each.document() for each in self.scores],
        }


@dataclass(frozen=True)
class GroupAccuracy:
    """How close the last model is to the first on one group of samples, and how right each is."""

    closeness: GroupCloseness
    """Without ratios, where there is one model."""
    scores: tuple[Score, ...] = ()
    """By model; empty: the samples have no labels, or the metric is no mean over samples."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data; the models are null where nothing is known."""
        scores = [each.document() for each in self.scores] or None
        return {**self.closeness.document(), "models": scores}


@dataclass(frozen=True)
class GivenAnswer:
    """What a model answers of a sample."""

    name: str | None
    """The class with the highest score; None: outputs are no scores of classes, or are broken."""
    score: float | None
    """How sure it is of that, from 0 to 1: logits behind a softmax; or else the number that it
    gives. None: there is no one number, or it is not finite."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"class": self.name, "score": self.score}


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
    size: float
    """How sure the last model is less of the label than the first; without labels, half the sum of
    the distances of their scores; of numbers, how much farther it is from the label."""
    picture: str | None = None
    """A small picture of the sample as a data URI, where it is a photo."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "sample": self.sample,
            "file": self.file,
            "label": self.label,
            "first": self.first.document(),
            "last": self.last and self.last.document(),
            "disagreement": self.size,
            "picture": self.picture,
        }


@dataclass(frozen=True)
class Accuracy(AsHtml):
    """How right one or several models are on the same samples."""

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
    noise: GroupCloseness | None = None
    """Signal to noise ratio of the last model's outputs beside the first's, on all samples: of
    what a final Softmax reads, where both have one."""
    by_group: tuple[GroupAccuracy, ...] = ()
    """Of the groups that the data state."""
    by_class: tuple[ClassAccuracy, ...] = ()
    """Of the classes that labels name, where a model scores 100 or fewer."""
    worst: tuple[Disagreement, ...] = ()
    """Other classes first, then the largest; of one model, its surest wrong answers."""
    class_order: str = ""
    """How class numbers follow from what the data call classes, in words."""
    notes: tuple[str, ...] = ()
    """What speaks against the answers of the first model."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input of the first model, in words."""

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error."""
        return self.metric in LOWER_IS_BETTER

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        noise = {} if self.noise is None else self.noise.document()
        return {
            "kind": "accuracy",
            "format": FORMAT,
            "metric": self.metric,
            "better": "lower" if self.lower_is_better else "higher",
            "samples": self.samples,
            "source": self.source,
            "models": [each.document() for each in self.models],
            "change": self.change and self.change.document(),
            "agreement": self.agreement and self.agreement.document(),
            "sqnr_db": noise.get("sqnr_db"),
            "sqnr_low_db": noise.get("sqnr_low_db"),
            "by_group": [each.document() for each in self.by_group],
            "by_class": [each.document() for each in self.by_class],
            "worst": [each.document() for each in self.worst],
            "class_order": self.class_order or None,
            "notes": list(self.notes),
        }
