"""How a model is run over files of data."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import ALLOW_OP, Flag
from deploykit.transforms.core.engines.engines import MOST_BATCH
from deploykit.verification.public_types import PreprocessLike

ENGINES = ("processes", "ray")
FORMATS = ("npz", "parquet", "tfrecord", "csv")
ON_ERROR = ("stop", "skip")
RETRIES = 3


@takes_former_names
@dataclass(frozen=True)
class InferOptions:
    """How `deploykit.infer` runs a model, and what it writes."""

    HEADING: ClassVar = "Workers"

    engine: Literal["processes", "ray"] = "processes"
    """What runs the workers: processes of this machine, or Ray, on this machine or on a cluster
    (pip install '.[ray]')."""
    address: Annotated[str | None, Flag(metavar="local|HOST:PORT")] = None
    """Ray: a cluster that runs already, or local, which starts one on this machine for this run
    alone [default: RAY_ADDRESS, or local]."""
    processes: Annotated[int | None, Flag(at_most=100000)] = None
    """Number of workers, each of which has the model and a core of its own [default: one for each
    core]."""
    batch: Annotated[int | None, Flag(at_most=MOST_BATCH)] = None
    """Rows that a worker computes at once [default: what the model demands or was tuned for, or
    32]."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI", heading="Data")
    ] = None
    """How the features of files become inputs, such as the size of images and the range of their
    values: a file, its JSON, or the range alone (0..1, -1..1, 0..255, photo=0..1) [default: what is
    kept beside the model, or what the model itself says]."""
    top: Annotated[int | None, Flag(metavar="K", heading="Results")] = None
    """Write the K classes with the highest scores of the first output instead of the outputs."""
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Results")] = None
    """With `top`: names of the classes, one a line, in the order of the scores [default: what is
    kept beside the model]."""
    format: Annotated[Literal["npz", "parquet", "tfrecord", "csv"], Flag(heading="Results")] = "npz"
    """Of the files that are written; parquet takes pip install '.[parquet]'."""
    name: Annotated[str | None, Flag(metavar="NAME", heading="Results")] = None
    """What the files are called: NAME-00003-of-00013.npz [default: as the data]."""
    on_error: Annotated[Literal["stop", "skip"], Flag(heading="Data")] = "stop"
    """Whether a row that cannot be used, such as a damaged photo, ends the run, or is left out and
    listed in the index."""
    retries: Annotated[int, Flag(at_least=0)] = RETRIES
    """How often a part of the data is begun again whose worker was lost."""
    tuned: str | os.PathLike[str] | None = None
    """Settings that deploykit tune wrote [default: what lies in the folder of a ship]."""
    force: Annotated[bool, Flag(heading="Output")] = False
    """Replace results of this name that are of another model, of other data or of other options."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
    """Run this op although it reads or writes files or starts processes; may be repeated."""
