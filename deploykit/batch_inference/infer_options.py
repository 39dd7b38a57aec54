"""How a model is run over files of data."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ENGINES = ("processes", "ray")
FORMATS = ("npz", "parquet", "tfrecord", "csv")
ON_ERROR = ("stop", "skip")
RETRIES = 3


@dataclass(frozen=True)
class InferOptions:
    """How `deploykit.infer` runs a model, and what it writes."""

    engine: str = ENGINES[0]
    """What schedules the work: `processes` of this machine, or `ray`."""
    address: str | None = None
    """Of Ray: `local` starts it for this run alone, HOST:PORT is a cluster that runs already."""
    processes: int | None = None
    """Workers, each with a core; default: as many as there are cores."""
    batch: int | None = None
    """Rows computed at once; default: what the model demands, or was tuned for, or 32."""
    preprocess: Any = None
    """What becomes of the features of files: a JSON file, or what it holds; or the range of photos,
    such as `0..1`; default: what is known of the model."""
    top: int | None = None
    """Keep so many classes with the highest scores of the first output, instead of the outputs."""
    labels: str | os.PathLike[str] | Sequence[str] | None = None
    """What the classes are called, in the order of the scores, or a file with one a line; default:
    what is known of the model."""
    format: str = FORMATS[0]
    """Of the files: `npz`, `parquet`, `tfrecord` or `csv`."""
    name: str | None = None
    """What the files are called: `NAME-00003-of-00013.npz`; default: as the data."""
    on_error: str = ON_ERROR[0]
    """What becomes of a row that cannot be used: `stop`, or `skip`; skipped ones are told."""
    retries: int = RETRIES
    """How often a part is tried again whose worker was lost."""
    tuned: str | os.PathLike[str] | None = None
    """A file of settings that `tune` wrote; default: what lies in the folder of a `ship`."""
    force: bool = False
    """Whether results of another model, or of other data or options, are replaced."""
    allowed_ops: Sequence[str] = ()
    """Ops that are run although they act on files or processes."""
