"""What can be said of a call besides whom it asks and what it sends; nothing heavy is imported."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

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
    preprocess: str | os.PathLike[str] | None = None
    """A JSON file that says what becomes of an image; default: what the input asks for."""
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
    preprocess: str | os.PathLike[str] | None = None
    """A JSON file that says what becomes of the samples; default: what the inputs ask for."""
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
