"""convert_records: write data as TFRecord shards."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from deploykit.api.public import Command, public
from deploykit.records import SourceKind
from deploykit.records.conversion import Options
from deploykit.records.open_source import ConvertedSets, convert_sets
from deploykit.rendering.progress import working
from deploykit.storage.parameters import takes_former_names
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.flag import Flag

OnError = Literal["stop", "skip"]


Compression = Literal["none", "gzip"]


@takes_former_names
@dataclass(frozen=True)
class RecordOptions:
    """Options for reading sources and writing shards with `deploykit.convert_records`."""

    HEADING: ClassVar = "Records"

    kind: Annotated[
        SourceKind | None,
        Flag(hidden="--from", heading="Source"),
    ] = None
    """Kind of the source [default: detected from its content]."""
    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """Prefix of the shard files, as in NAME-00003-of-00010.tfrecord. A CIFAR folder becomes
    NAME-train, NAME-validation and NAME-test [default: data; for CIFAR train, validation and
    test]."""
    label_column: Annotated[
        str | None, Flag(formerly="label", metavar="NAME|NUMBER", heading="Source")
    ] = None
    """Label column, by name or by number from 0, or label array of a .npz file; none: no label
    [default: the last column; the array label or labels]."""
    labels: Annotated[str | os.PathLike[str] | None, Flag(metavar="FILE.csv", heading="Source")] = (
        None
    )
    """CSV file with the file name and the label of each image [default: each folder of images is a
    class]."""
    raw: Annotated[bool, Flag(heading="Source")] = False
    """Store the decoded pixels of images instead of their files."""
    shard_size: Annotated[float, Flag(metavar="MB", above=0)] = 100
    """Approximate size of a shard in MB."""
    compression: Compression = "none"
    """Compression of the shards."""
    processes: Annotated[int | None, Flag(at_most=1024)] = None
    """Number of worker processes, up to 1024 [default: one per CPU core]."""
    on_error: OnError = "stop"
    """Whether an invalid item stops the run, or is skipped and counted."""


DEFAULT = RecordOptions()


@public(
    Command(
        name="records convert",
        heading="Records",
        requires=(),
        has_limits=False,
        writes_result=False,
    )
)
def convert_records(
    sources: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        Flag(format="paths", metavar="SOURCE..."),
    ],
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR")],
    how: RecordOptions = DEFAULT,
    *,
    force: Annotated[bool, Flag(heading="Output")] = False,
) -> ConvertedSets:
    """Write data as TFRecord shards.

    SOURCE is a folder of images, numeric CSV files, tab-separated text files, a .npz file, IDX
    files (MNIST), or CIFAR files. The unpacked CIFAR folder becomes records named train, validation
    (data_batch_5 of CIFAR-10) and test. Pass one of them to other commands as --data DIR/train. The
    shards are byte-identical for any number of processes. NAME.index.json next to them lists the
    features, the number of records, and the SHA-256 of each shard. Records keep the order of the
    source. Images are sorted by class, so shuffle them for training.

    After an interruption, the same command resumes. Finished shards are kept.

    Args:
        sources: a folder of images, or one or several files: numeric CSV, tab-separated text,
            `.npz`, IDX (MNIST) or CIFAR files. The whole CIFAR folder becomes `train`, `validation`
            and `test`.
        folder: the folder for the shards.
        how: the kind of the sources, and the format of the shards.
        force: Replace existing records of this name.

    FileError: a file cannot be read or written, or the records exist. GraphError: the kind of the
    data is unknown, an item is invalid, or there are no items.

    Commands:
        deploykit records photos records
        deploykit records cifar-10-batches-py cifar
        deploykit records data.csv table --label-column 0 --name train

    Example:
        >>> found = deploykit.convert_records("test_1000.npz", "records", shard_size=0.5)
        >>> found.index.records, found.skipped
        (1000, 0)
    """
    paths = [sources] if isinstance(sources, str | os.PathLike) else [*sources]
    written = Options(
        shard_bytes=max(1, round(how.shard_size * 1e6)),
        compression="" if how.compression == "none" else how.compression.upper(),
        skip=how.on_error == "skip",
        processes=how.processes or usable_cores(),
    )
    with working("records") as advance:
        return convert_sets(
            [os.fspath(path) for path in paths],
            Path(folder),
            written,
            name=how.name,
            kind=how.kind,
            force=force,
            advance=advance,
            label=how.label_column,
            labels=None if how.labels is None else os.fspath(how.labels),
            raw=how.raw,
        )
