"""The task of a worker and its options, as plain data for any process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from deploykit.batch_inference.reading.data_parts import BadRow
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.pipeline import Pipeline
from deploykit.records.examples import Feature
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.flag import ALLOW_OP, PREPROCESS, Flag
from deploykit.transforms.engines.engines import MOST_BATCH
from deploykit.verification.samples import PreprocessLike

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


@dataclass(frozen=True)
class InferTask:
    """What all workers have in common."""

    model: str
    """A file with the frozen GraphDef."""
    outputs: Mapping[str, str]
    """The tensors that are fetched, by the names of the columns that they become."""
    columns: Mapping[str, Feature]
    """What is known of a row of each column before the model runs."""
    settings: RunConfig
    """Of the engine; a worker has one thread."""
    pipeline: Pipeline
    """How rows become inputs, over data without files; its batch is what is computed at once."""
    folder: str
    name: str
    """Of the parts: `NAME-00003-of-00013.npz`."""
    format: str
    """One of FORMATS."""
    parts: int
    """How many there are."""
    top: int | None = None
    """So many classes with the highest scores are kept of the first output, instead of outputs."""
    labels: tuple[str, ...] = ()
    """What the classes are called."""
    retries: int = 0
    """How often a part is begun again whose worker was lost."""
    skip: bool = False
    """Whether rows that cannot be used are left out, and told."""
    takes_scalars: bool = False
    """Whether a run takes one row, and neither inputs nor outputs have an axis for rows."""

    def file_of(self, part: int) -> str:
        """Return the name of the file of a part."""
        return f"{self.name}-{part:05}-of-{self.parts:05}.{self.format}"


@dataclass(frozen=True)
class PartDone:
    """A part that was written: its file, and what is in it."""

    number: int
    file: str
    """Without its folder."""
    rows: int
    """Without those that were left out."""
    bytes: int
    sha256: str
    data_sha256: str
    """Of what was read: the contents of its rows, one after another."""
    bad: tuple[BadRow, ...] = ()
    columns: Mapping[str, Feature] = field(default_factory=dict)
    """The type and shape of a row of each column, as `features_of` says."""


@dataclass(frozen=True)
class PartProgress:
    """What a worker has done since it was asked before."""

    rows: int
    """That were computed, or left out."""
    cpu_seconds: float
    """That its process took, in all threads."""
    cpus: tuple[int, ...] = ()
    """That it may use."""
    done: PartDone | None = None
    """The part, once it is written."""
    loading: bool = False
    """Whether the process was started and the model loaded meanwhile."""
