"""What data are to be written as records, and how."""

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.records import SourceKind
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import Flag

OnError = Literal["stop", "skip"]
Compression = Literal["none", "gzip"]


@takes_former_names
@dataclass(frozen=True)
class RecordOptions:
    """How `deploykit.convert_records` reads data and writes shards."""

    HEADING: ClassVar = "Records"

    kind: Annotated[
        SourceKind | None,
        Flag(hidden="--from", heading="Source"),
    ] = None
    """Kind of the source [default: detected from its content]."""
    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """Name of the records, NAME-00003-of-00010.tfrecord; the folder of CIFAR becomes NAME-train,
    NAME-validation and NAME-test [default: data; for CIFAR train, validation and test]."""
    label_column: Annotated[
        str | None, Flag(formerly="label", metavar="NAME|NUMBER", heading="Source")
    ] = None
    """Label column by name or by number from 0, or label array of a .npz file; none: no label
    [default: the last column; the array label or labels]."""
    labels: Annotated[str | os.PathLike[str] | None, Flag(metavar="FILE.csv", heading="Source")] = (
        None
    )
    """CSV file with the file name and the label of each image [default: each folder of images is a
    class]."""
    raw: Annotated[bool, Flag(heading="Source")] = False
    """Store the decoded pixels of images instead of their files."""
    shard_size: Annotated[float, Flag(metavar="MB", above=0)] = 100
    """Approximate size of a shard."""
    compression: Compression = "none"
    """Compression of the shards."""
    processes: Annotated[int | None, Flag(at_most=1024)] = None
    """Number of processes, up to 1024 [default: one for each core]."""
    on_error: OnError = "stop"
    """Whether a bad item ends the run or is skipped and counted."""
