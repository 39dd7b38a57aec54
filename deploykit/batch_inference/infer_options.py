"""How a model is run over files of data."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import ALLOW_OP, PREPROCESS, Flag
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
    """Scheduler of the workers: processes on this machine, or Ray on this machine or a cluster (pip
    install '.[ray]')."""
    address: Annotated[str | None, Flag(metavar="local|HOST:PORT")] = None
    """Ray: address of a running cluster, or local, which starts one on this machine only for this
    run [default: RAY_ADDRESS, or local]."""
    processes: Annotated[int | None, Flag(at_most=100000)] = None
    """Number of workers; each loads the model and uses one core [default: one per core]."""
    batch: Annotated[int | None, Flag(at_most=MOST_BATCH)] = None
    """Rows per batch [default: the model's fixed or tuned batch, or 32]."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    top: Annotated[int | None, Flag(metavar="K", heading="Results")] = None
    """Write the K classes with the highest scores of the first output instead of the outputs."""
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Results")] = None
    """With `top`: class names, one per line, in the order of the scores [default: from the model
    metadata file]."""
    format: Annotated[Literal["npz", "parquet", "tfrecord", "csv"], Flag(heading="Results")] = "npz"
    """Format of the written files; parquet needs pip install '.[parquet]'."""
    name: Annotated[str | None, Flag(metavar="NAME", heading="Results")] = None
    """Base name of the files: NAME-00003-of-00013.npz [default: the name of the data]."""
    on_error: Annotated[Literal["stop", "skip"], Flag(heading="Data")] = "stop"
    """Whether an unusable row, such as a damaged image, ends the run, or is skipped and listed in
    the index."""
    retries: Annotated[int, Flag(at_least=0)] = RETRIES
    """Maximum number of retries of a part whose worker was lost."""
    tuned: str | os.PathLike[str] | None = None
    """Settings that deploykit tune wrote [default: those in a folder of deploykit ship]."""
    force: Annotated[bool, Flag(heading="Output")] = False
    """Replace results of this name from another model, other data or other options."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
