"""What data are to be written as records, and how."""

import os
from dataclasses import dataclass

ON_ERROR = ("stop", "skip")
COMPRESSIONS = ("none", "gzip")


@dataclass(frozen=True)
class RecordOptions:
    """How `deploykit.convert_records` reads data and writes shards."""

    kind: str | None = None
    """One of `deploykit.records.KINDS`; default: what the content shows."""
    name: str | None = None
    """What the shards are called: `NAME-00003-of-00010.tfrecord`; those of a folder of CIFAR:
    `NAME-train`, `NAME-validation` and `NAME-test`. Default: `data`; `train`, `validation` and
    `test`."""
    label: str | None = None
    """Column of the label, by name or counted from 0, or the array of a `.npz` file; `none`: no
    label. Default: the last column; the array `label` or `labels`."""
    labels: str | os.PathLike[str] | None = None
    """A CSV file with file name and label of each image; default: folders are classes."""
    raw: bool = False
    """Whether the pixels of images are kept, decoded, not their files."""
    shard_size: float = 100
    """About how large a shard is, in megabytes."""
    compression: str = COMPRESSIONS[0]
    """Of the shards: `none` or `gzip`."""
    processes: int | None = None
    """Default: one for each core."""
    on_error: str = ON_ERROR[0]
    """What becomes of an item that is wrong: `stop`, or `skip`; skipped ones are counted."""
