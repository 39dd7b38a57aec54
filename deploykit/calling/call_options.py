"""What can be said of a call besides whom it asks and what it sends; nothing heavy is imported."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TOP = 5
"""Classes that are shown."""


@dataclass(frozen=True)
class PredictOptions:
    """Which version of a model is asked, how, and what becomes of the answer."""

    version: int | None = None
    """Default: the newest."""
    version_label: str = ""
    """The label of the version instead, such as `stable`."""
    signature: str | None = None
    """Default: `serving_default`, or the only one."""
    outputs: Sequence[str] = ()
    """What is asked for; default: all."""
    preprocess: Any = None
    """What becomes of an image: a JSON file, what it holds, or a range such as `0..1`. A server
    does not say which values its model wants, so a photo for an input of floats needs it."""
    labels: str | os.PathLike[str] | Sequence[str] | None = None
    """Names of the classes, or a file with one a line."""
    top: int | None = None
    """So many classes with the highest scores are named; default: 5, with labels."""


@dataclass(frozen=True)
class LoadTestOptions:
    """Which version of a model is asked, and with which load."""

    version: int | None = None
    """Default: the newest."""
    version_label: str = ""
    """The label of the version instead, such as `stable`."""
    signature: str | None = None
    """Default: `serving_default`, or the only one."""
    preprocess: Any = None
    """What becomes of the samples, likewise."""
    batch: int = 1
    """Samples in a call."""
    concurrency: Sequence[int] = ()
    """Callers, each of which waits for its answer; several numbers are measured in turn. Default:
    1, 2, 4 and 8, unless there is a rate or a limit."""
    rate: float | None = None
    """Instead, so many calls a second, at random times and whether others are answered or not."""
    latency_limit_ms: float | None = None
    """Instead, the highest rate is sought at which 99 % of calls are answered within this."""
    seconds: float = 10
    """How long each load lasts."""
    processes: int = 1
    """Processes that send the calls, where one cannot make the load."""


@dataclass(frozen=True)
class LabelOptions:
    """What becomes of an image before a model scores it, and how many classes are named.

    Unless one of these says what becomes of it, what the model's own file says is done.
    """

    mean: float | None = None
    """Taken from each pixel; default: 0, or what the model itself says."""
    std: float | None = None
    """What each pixel is then divided by; default: 255, or what the model itself says, or 1 for a
    model of whole numbers."""
    height: int | None = None
    """In pixels, to resize to; default: the model's, or 299."""
    width: int | None = None
    """Likewise."""
    preprocess: Any = None
    """Instead, what becomes of it, as for `calibrate` and `benchmark`: a JSON file, what it holds,
    or a range such as `0..1`."""
    top: int = TOP
    """So many classes are named."""
    allowed_ops: Sequence[str] = ()
    """Ops that are run although they act on files or processes."""

    @property
    def by_hand(self) -> list[str]:
        """Those of these that say what becomes of it one by one, as label_image takes them."""
        return [
            name for name in ("mean", "std", "height", "width") if getattr(self, name) is not None
        ]
