"""The task of a worker and its options, as plain data for any process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from deploykit.batch_inference.reading.data_parts import BadRow
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.pipeline import Pipeline
from deploykit.records.examples import Feature
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, PREPROCESS, Flag
from deploykit.transforms.engines.engines import MAX_BATCH
from deploykit.verification.samples import PreprocessLike

SCHEDULERS = ("local", "ray")
FORMATS = ("parquet", "csv", "jsonl", "tfrecord", "npz")
IN_NUMPY = ("tfrecord", "npz")
"""The formats that have no nulls and no lists of different lengths."""
ON_ERROR = ("stop", "skip")
RETRIES = 3


@takes_former_names
@dataclass(frozen=True)
class InferOptions:
    """Options of `deploykit.infer`: workers, preprocessing and output."""

    HEADING: ClassVar = "Workers"

    scheduler: Annotated[str, Flag(hidden="--engine", formerly="engine", metavar="local|ray")] = (
        "local"
    )
    """Where the workers run: processes on this machine, or Ray on this machine or a cluster (pip
    install '.[ray]')."""
    address: Annotated[str | None, Flag(metavar="local|HOST:PORT")] = None
    """Ray: address of a running cluster, or local, which starts one on this machine only for this
    run [default: RAY_ADDRESS, or local]."""
    processes: Annotated[int | None, Flag(at_most=100000)] = None
    """Number of workers; each loads the model and uses one core [default: one per core]."""
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None
    """Rows per batch [default: the model's fixed or tuned batch, or 32]."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    header: Annotated[HeaderRule, HEADER] = "auto"
    top: Annotated[int | None, Flag(metavar="K", heading="Results")] = None
    """Write only the K classes with the highest scores in the first output."""
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Results")] = None
    """With `top`: class names, one per line, in the order of the scores [default: from the model
    metadata file]."""
    format: Annotated[
        Literal["parquet", "csv", "jsonl", "tfrecord", "npz"], Flag(heading="Results")
    ] = "parquet"
    """Format of the written files; parquet needs pip install '.[parquet]'."""
    keep_columns: Annotated[
        Sequence[str], Flag(heading="Results", format="names", metavar="NAME,...")
    ] = ()
    """Columns of a table to copy to the results, such as an id."""
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    name: Annotated[str | None, Flag(metavar="NAME", heading="Results")] = None
    """Base name of the files: NAME-00003-of-00013.parquet [default: the name of the data]."""
    vocabulary: Annotated[str | os.PathLike[str] | None, Flag(heading="Data")] = None
    """WordPiece vocabulary, one piece per line: a model of token ids and a mask then takes the text
    of one column [default: vocab.txt in the folder of the model or next to it]."""
    on_error: Annotated[Literal["stop", "skip"], Flag(heading="Data")] = "stop"
    """Whether an invalid row, such as a damaged image, stops the run, or is skipped and listed in
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
    """The task that all workers share."""

    model: str
    """A file with the frozen GraphDef."""
    outputs: Mapping[str, str]
    """The output tensors, by column name."""
    columns: Mapping[str, Feature]
    """The dtype and shape of a row in each column, as far as known before the model runs."""
    settings: RunConfig
    """The settings of the engine; a worker has one thread."""
    pipeline: Pipeline
    """The preprocessing of rows and the batch size; its data has no files."""
    folder: str
    name: str
    """The prefix of the file names: `NAME-00003-of-00013.parquet`."""
    format: str
    """The output format: one of FORMATS."""
    parts: int
    """The number of parts."""
    top: int | None = None
    """The number of best classes of the first output to write instead of the outputs."""
    labels: tuple[str, ...] = ()
    """The class names."""
    retries: int = 0
    """The maximum number of retries of a part whose worker was lost."""
    skip: bool = False
    """Whether invalid rows are skipped and reported."""
    takes_scalars: bool = False
    """Whether the model takes single rows, without a batch axis."""

    def file_of(self, part: int) -> str:
        """Return the name of the file of a part."""
        return f"{self.name}-{part:05}-of-{self.parts:05}.{self.format}"


@dataclass(frozen=True)
class PartDone:
    """A written part: its file, and a description of the content."""

    number: int
    file: str
    """The name of the file without its folder."""
    rows: int
    """The number of rows without the skipped ones."""
    bytes: int
    sha256: str
    data_sha256: str
    """The SHA-256 of the concatenated contents of the rows that were read."""
    bad: tuple[BadRow, ...] = ()
    columns: Mapping[str, Feature] = field(default_factory=dict)
    """The dtype and shape of a row in each column, as from `features_of`."""


@dataclass(frozen=True)
class PartProgress:
    """The progress of a worker since its last report."""

    rows: int
    """The number of rows processed or skipped."""
    cpu_seconds: float
    """The CPU time of its process, over all threads."""
    done: PartDone | None = None
    """The part, if it was written; else None."""
    loading: bool = False
    """Whether the time includes starting the process and loading the model."""
