"""One pipeline over data, as plain data; each style builds it in its own way."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from deploykit.input.data import Data
from deploykit.input.preprocessing import Steps, result_of
from deploykit.records.features import Feature

STYLES = ("feed", "queue", "tfdata")


@dataclass(frozen=True)
class Pipeline:
    """What is read, what becomes of it, and in which batches it arrives."""

    data: Data
    steps: Mapping[str, Steps]
    """Of each input, by the tensor that takes it."""
    batch: int = 32
    whole: bool = False
    """Whether a smaller batch at the end is left out."""
    epochs: int | None = 1
    """How often the data are gone through; None: again and again."""
    threads: int = 1
    """Files read at once, and threads that fill a queue; with 1, records keep their order."""
    shuffle: int | None = None
    """Seed by which files, and records near each other, change places; None: they do not."""
    cache: str = ""
    """What tf.data does once: nothing, or with `memory` or the name of a file, all but batches."""
    buckets: tuple[int, ...] = ()
    """Lengths at which tf.data divides texts, so that a batch holds texts of like length."""
    private_threads: int | None = None
    """A thread pool of tf.data's own; None: it shares the session's."""
    service: str = ""
    """Where a tf.data service listens whose workers read and parse for tf.data; empty: none."""

    @cached_property
    def features(self) -> dict[str, Feature]:
        """The features that an input is made of."""
        names = dict.fromkeys(steps.feature for steps in self.steps.values())
        return {name: self.data.features[name] for name in names}

    @cached_property
    def one_by_one(self) -> bool:
        """Whether records are parsed one by one: images, and texts of different lengths."""
        return any(
            feature.content == "image" or None in feature.shape
            for feature in self.features.values()
        ) or any(steps.split is not None for steps in self.steps.values())

    @property
    def padded(self) -> bool:
        """Whether batches hold texts of different lengths, the shorter ones filled up."""
        results = (result_of(each, self.features[each.feature]) for each in self.steps.values())
        return any(None in each.shape for each in results)

    @property
    def drops(self) -> bool:
        """Whether a smaller batch is left out where it is made; several workers each make one."""
        return self.whole and not self.service
