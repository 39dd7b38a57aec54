"""Options of requests and load tests. This module imports nothing heavy."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, MAX_INT64, PREPROCESS, Flag
from deploykit.transforms.engines.engines import MAX_BATCH
from deploykit.verification.samples import PreprocessLike

TOP = 5
"""Default number of classes to show."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of a request: model version, preprocessing and display of the response."""

    HEADING: ClassVar = "Server"

    version: Annotated[int | None, Flag(at_least=0, at_most=MAX_INT64)] = None
    """Version of the model [default: the newest]."""
    version_label: Annotated[str, Flag(metavar="LABEL")] = ""
    """Choose the version by its label, such as stable."""
    signature: Annotated[str | None, Flag(metavar="NAME")] = None
    """Signature of the model [default: serving_default, or the only one]."""
    outputs: Annotated[Sequence[str], Flag(metavar="NAME", heading="Request")] = ()
    """Request only this output; may be repeated."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Response")] = (
        None
    )
    """File with the class names, one per line."""
    top: Annotated[int | None, Flag(metavar="K", heading="Response")] = None
    """Show this many classes with the highest scores [default: 5, if `labels` is given]."""


@takes_former_names
@dataclass(frozen=True)
class LoadTestOptions:
    """Options of a load test: model version and load."""

    HEADING: ClassVar = "Load"

    version: Annotated[int | None, Flag(at_least=0, at_most=MAX_INT64, heading="Server")] = None
    """Version of the model [default: the newest]."""
    version_label: Annotated[str, Flag(metavar="LABEL", heading="Server")] = ""
    """Choose the version by its label, such as stable."""
    signature: Annotated[str | None, Flag(metavar="NAME", heading="Server")] = None
    """Signature of the model [default: serving_default, or the only one]."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    header: Annotated[HeaderRule, HEADER] = "auto"
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    batch: Annotated[int, Flag(at_most=MAX_BATCH, heading="Data")] = 1
    """Samples per request."""
    concurrency: Annotated[Sequence[int], Flag(format="counts", at_most=65536)] = ()
    """Number of concurrent clients, each with one request at a time; several numbers are measured
    one after another [default: 1,2,4,8]."""
    rate: Annotated[float | None, Flag(metavar="CALLS", above=0)] = None
    """Instead of `concurrency`, send this many requests per second at random times, without waiting
    for responses."""
    latency_limit: Annotated[
        float | None,
        Flag(hidden="--search-latency-limit", formerly="latency_limit_ms", metavar="MS", above=0),
    ] = None
    """Instead of `concurrency`, find the highest rate at which all requests are answered and p99 is
    within this limit."""
    seconds: Annotated[float, Flag(metavar="S", above=0)] = 10
    """Duration of each load in seconds."""
    processes: Annotated[int, Flag(at_most=64)] = 1
    """Client processes, up to 64; use more if one cannot send enough requests."""


@takes_former_names
@dataclass(frozen=True)
class LabelOptions:
    """Preprocessing of an image for classification, and the number of classes to show.

    Without any of these options, the model metadata file defines the preprocessing.
    """

    HEADING: ClassVar = "Image and labels"

    input_mean: Annotated[
        float | None, Flag("--input_mean --input-mean", formerly="mean", metavar="MEAN")
    ] = None
    """Number to subtract from each pixel [default: 0, or the model's own]."""
    input_std: Annotated[
        float | None, Flag("--input_std --input-std", formerly="std", metavar="STD", above=0)
    ] = None
    """Number to divide each pixel by after that [default: 255, or the model's own; 1 for a model
    with integer inputs]."""
    input_height: Annotated[
        int | None, Flag("--input_height --input-height", formerly="height", metavar="PIXELS")
    ] = None
    """Height of the resized image [default: the model's, or 299]."""
    input_width: Annotated[
        int | None, Flag("--input_width --input-width", formerly="width", metavar="PIXELS")
    ] = None
    """Width of the resized image [default: the model's, or 299]."""
    preprocess: Annotated[PreprocessLike | None, Flag(metavar="FILE.json|LO..HI")] = None
    """Preprocessing of the image, in the same format as for calibrate and benchmark [default: from
    the options above]."""
    top: Annotated[int, Flag("--top --num_top_predictions --num-top-predictions", metavar="K")] = (
        TOP
    )
    """Number of classes to show."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()

    @property
    def by_hand(self) -> list[str]:
        """Names of the given options that set single preprocessing values, as label_image takes
        them.
        """
        names = ("input_mean", "input_std", "input_height", "input_width")
        return [name for name in names if getattr(self, name) is not None]
