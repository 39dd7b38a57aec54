"""inspect_records and verify_records: contents and integrity of TFRecord shards."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.records.examples import Feature
from deploykit.records.index import Index, RecordsMetadata
from deploykit.records.verify_records import Checked, check_folder, inspection, shown
from deploykit.rendering.progress import working
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from deploykit.transforms.common.flag import Flag


def _facts(index: Index | None) -> RecordsMetadata:
    return {} if index is None else index.facts()


def _sorted(features: Mapping[str, Feature]) -> dict[str, Feature]:
    return dict(sorted(features.items()))


@dataclass(frozen=True)
class RecordsInspection(AsHtml):
    """The contents of a folder of records."""

    folder: Hidden[str]
    index: Annotated[Index | None, Written(flat=True, by=_facts)]
    """The index of the shards; None if missing. Then `features` describes the first record only."""
    features: Annotated[Mapping[str, Feature], Written(by=_sorted)]
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
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR")],
    *,
    name: Annotated[str | None, Flag(metavar="NAME")] = None,
) -> RecordsInspection:
    """Show the features, counts, shards and first record of TFRecord data.

    Args:
        folder: the folder that contains the shards, with or without an index.
        name: Name of the records, if DIR contains records of several names.

    FileError: there are no records, or they cannot be read. GraphError: the format of the records
    is unknown, or their index is damaged. VerificationError: the first record is damaged.

    Commands:
        deploykit records inspect records
        deploykit records inspect records --name train

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> sorted(deploykit.inspect_records("records").features)
        ['images', 'label']
    """
    with working("records inspect"):
        index, features, first = inspection(Path(folder), name)
    return RecordsInspection(os.fspath(folder), index, features, first)


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
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR")],
    *,
    name: Annotated[str | None, Flag(metavar="NAME")] = None,
    processes: Annotated[int | None, Flag(at_most=1024)] = None,
) -> RecordsVerification:
    """Check every record, and the shards against their index.

    Exits with 5 if a checksum is wrong, if a shard is truncated, changed, missing or not listed, or
    if the folder has no records. Without an index, a shard that was truncated between two records
    looks complete; the result states this.

    Args:
        folder: the folder that contains the shards.
        name: Name of the records, if DIR contains records of several names.
        processes: Number of worker processes, up to 1024 [default: one per CPU core].

    `check()` of the returned value raises VerificationError if there is a problem, or no record.
    FileError, GraphError: there is nothing to check, or the index is damaged.

    Commands:
        deploykit records verify records
        deploykit records verify records --name train --processes 4

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> deploykit.verify_records("records").passed
        True
    """
    with working("records verify") as advance:
        index, result = check_folder(Path(folder), name, processes or usable_cores(), advance)
    return RecordsVerification(os.fspath(folder), index, tuple(result))
