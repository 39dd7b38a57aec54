"""convert_records, inspect_records and verify_records: TFRecord shards and their integrity."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from deploykit.api.public import Command, public
from deploykit.records import SourceKind
from deploykit.records.conversion import Options
from deploykit.records.examples import Feature
from deploykit.records.index import Index, RecordsMetadata, by_name
from deploykit.records.open_source import ConvertedSets, convert_sets
from deploykit.records.plain_records import PlainRecords
from deploykit.records.verify_records import Checked, check_folder, inspection, shown
from deploykit.rendering.progress import working
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from deploykit.transforms.common.flag import HEADER, Flag

OnError = Literal["stop", "skip"]


Compression = Literal["none", "gzip"]


@takes_former_names
@dataclass(frozen=True)
class RecordOptions:
    """Options for reading sources and writing shards with `deploykit.convert_records`."""

    HEADING: ClassVar = "Records"

    kind: Annotated[SourceKind | None, Flag(hidden="--from", heading="Source")] = None
    """Kind of the source [default: detected from its content]."""
    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """Prefix of the shard files, as in NAME-00003-of-00010.tfrecord. A CIFAR folder becomes
    NAME-train, NAME-validation and NAME-test [default: data; for CIFAR train, validation and
    test]."""
    label_column: Annotated[
        str | None, Flag(formerly="label", metavar="NAME|NUMBER", heading="Source")
    ] = None
    """Label column, by name or by number from 0, or label array of a .npz file; none: no label
    [default: the last column; the column or array label or labels of other
    sources]."""
    header: Annotated[HeaderRule, HEADER] = "auto"
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

    SOURCE is a folder of images, numeric CSV files, Parquet or JSON Lines files, tab-separated text
    files, a .npz file, IDX files (MNIST), or CIFAR files. Columns of Parquet and JSON Lines become
    features. The unpacked CIFAR folder becomes records named train, validation
    (data_batch_5 of CIFAR-10) and test. Pass one of them to other commands as --data DIR/train. The
    shards are byte-identical for any number of processes. NAME.index.json next to them lists the
    features, the number of records, and the SHA-256 of each shard. Records keep the order of the
    source. Images are sorted by class, so shuffle them for training.

    After an interruption, the same command resumes. Finished shards are kept.

    Args:
        sources: a folder of images, or one or several files: numeric CSV, Parquet, JSON Lines,
            tab-separated text, `.npz`, IDX (MNIST) or CIFAR files. The whole CIFAR folder becomes
            `train`, `validation` and `test`.
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
            header=how.header,
            labels=None if how.labels is None else os.fspath(how.labels),
            raw=how.raw,
        )


def _facts(records: Index | PlainRecords | None) -> RecordsMetadata:
    return {} if records is None else records.facts()


@dataclass(frozen=True)
class RecordsInspection(AsHtml):
    """The contents of a folder or a file of records."""

    folder: Hidden[str]
    index: Annotated[Index | None, Written(flat=True, by=_facts)]
    """The index of the shards; None if missing. Then `features` follows from the first records."""
    plain: Annotated[PlainRecords | None, Written(flat=True, by=_facts)]
    """The files and counts without an index; None with one."""
    features: Annotated[Mapping[str, Feature], Written(by=by_name)]
    first: Hidden[Mapping[str, Any]]
    """The values of the first record, by feature."""

    @property
    @written()
    def sample(self) -> dict[str, str]:
        """A short description of the first record, by feature."""
        return {
            name: shown(feature, self.first[name]) if name in self.first else "missing"
            for name, feature in sorted(self.features.items())
        }


@public(
    Command(
        name="records inspect",
        heading="Records",
        requires=(),
        has_limits=False,
        writes_result=False,
    )
)
def inspect_records(
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR|FILE")],
    *,
    name: Annotated[str | None, Flag(metavar="NAME")] = None,
) -> RecordsInspection:
    """Show the features, counts, shards and first record of TFRecord data.

    With an index, only the first record is read. Without one, records are counted, which reads the
    lengths of all records, or all of a compressed file: for large data, pass one of its files.

    Args:
        folder: the folder that contains the shards, or one TFRecord file, with or without an index.
        name: Name of the records, if DIR contains records of several names.

    FileError: there are no records, or they cannot be read. GraphError: the format of the records
    is unknown, or their index is damaged. VerificationError: the first record is damaged, or
    without an index the length of any record.

    Commands:
        deploykit records inspect records
        deploykit records inspect train.tfrecord
        deploykit records inspect records --name train

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> sorted(deploykit.inspect_records("records").features)
        ['images', 'label']
    """
    with working("records inspect"):
        index, plain, first = inspection(Path(folder), name)
    records = index or plain
    features = {} if records is None else dict(records.features)
    return RecordsInspection(os.fspath(folder), index, plain, features, first)


def _is_there(index: Index | None) -> bool:
    return index is not None


@dataclass(frozen=True)
class RecordsVerification(AsHtml):
    """The result of verifying each shard in a folder."""

    folder: Hidden[str]
    index: Annotated[Index | None, Written("indexed", by=_is_there)]
    """The index; None if missing. Then a shard truncated between two records looks complete."""
    shards: tuple[Checked, ...]

    @property
    @written()
    def records(self) -> int:
        """The number of records that were read."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The total size of the shards in bytes."""
        return sum(shard.bytes for shard in self.shards)

    @property
    @written()
    def problems(self) -> list[str]:
        """The problems, one sentence for each damaged shard."""
        return [shard.problem for shard in self.shards if shard.problem]

    @property
    @written()
    def passed(self) -> bool:
        """Whether there is at least one record and no problem."""
        return not self.problems and self.records > 0

    @property
    @written()
    def checked(self) -> str:
        """A description of the checks that ran."""
        if self.index is None:
            return "the checksum of every record, and the shard numbers in the file names"
        return "the checksum of every record; count, size and SHA-256 of every shard"

    @property
    @written()
    def unknown(self) -> str:
        """A description of what cannot be checked; empty if there is an index."""
        if self.index is not None:
            return ""
        return (
            "whether records are missing: without an index, a shard that was truncated between two "
            "records looks complete"
        )

    def check(self) -> None:
        """Raise VerificationError if a shard is damaged, or if nothing was checked."""
        if not (self.problems or self.records):
            raise UnverifiedError("records-empty", source=self.folder, files_count=len(self.shards))
        if not self.passed:
            several = len(self.problems) > 1
            more = f" ({len(self.problems)} such shards)" if several else ""
            raise VerificationError("records-invalid", problem=self.problems[0], more=more)


@public(
    Command(
        name="records verify", heading="Records", requires=(), has_limits=False, writes_result=False
    )
)
def verify_records(
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR|FILE")],
    *,
    name: Annotated[str | None, Flag(metavar="NAME")] = None,
    processes: Annotated[int | None, Flag(at_most=1024)] = None,
) -> RecordsVerification:
    """Check every record, and the shards against their index.

    Exits with 5 if a checksum is wrong, if a shard is truncated, changed, missing or not listed, or
    if the folder has no records. Without an index, a shard that was truncated between two records
    looks complete; the result states this.

    Args:
        folder: the folder that contains the shards, or one TFRecord file.
        name: Name of the records, if DIR contains records of several names.
        processes: Number of worker processes, up to 1024 [default: one per CPU core].

    `check()` of the returned value raises VerificationError if there is a problem, or no record.
    FileError, GraphError: there is nothing to check, or the index is damaged.

    Commands:
        deploykit records verify records
        deploykit records verify train.tfrecord
        deploykit records verify records --name train --processes 4

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> deploykit.verify_records("records").passed
        True
    """
    with working("records verify") as advance:
        index, result = check_folder(Path(folder), name, processes or usable_cores(), advance)
    return RecordsVerification(os.fspath(folder), index, tuple(result))
