"""Data on disk as feeds of a graph, for whatever goes through samples: calibration, accuracy.

    Feeds(pipeline_for(open_data("shards"), graph, epochs=1))

is an iterable of arrays by input name, batch by batch, as `deploykit.quantization.calibrate` takes
them, and can be gone through again.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from deploykit.input.feed import batches
from deploykit.input.pipeline import Pipeline
from deploykit.transforms.core.running.child import Worker
from deploykit.transforms.core.tensors import Array


@dataclass(frozen=True)
class Feeds:
    """The batches of a pipeline, which a child process reads anew for each iteration."""

    pipeline: Pipeline

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield batches by input. FileError, GraphError: a record is damaged; it is named."""
        with contextlib.closing(Worker(f"{__name__}:FeedReader", self.pipeline)) as worker:
            while (batch := worker.ask("next")) is not None:
                yield batch


class FeedReader:
    """A pipeline that is gone through; it lives in a child process."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Begin with the first batch."""
        self._batches = batches(pipeline)

    def next(self) -> dict[str, Array] | None:
        """Return the next batch, or None after the last."""
        return next(self._batches, None)
