"""What a worker is told, and what it tells; plain data that travel to any process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deploykit.batch_inference.reading.data_part import BadRow
from deploykit.benchmarking.settings import RunConfig
from deploykit.input.pipeline import Pipeline
from deploykit.records.features import Feature


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
