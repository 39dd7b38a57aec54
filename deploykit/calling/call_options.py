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
