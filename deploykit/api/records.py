"""inspect_records and verify_records."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.records.examples import Feature
from deploykit.records.index import Index, RecordsFacts
from deploykit.records.verify_records import Checked, check_folder, inspection, shown
from deploykit.rendering.progress import working
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, written
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from deploykit.transforms.common.flag import Flag


def _facts(index: Index | None) -> RecordsFacts:
    return {} if index is None else index.facts()


def _sorted(features: Mapping[str, Feature]) -> dict[str, Feature]:
    return dict(sorted(features.items()))


@dataclass(frozen=True)
class RecordsInspection(AsHtml):
    """What a folder of records holds."""

    folder: Hidden[str]
    index: Annotated[Index | None, Written(flat=True, by=_facts)]
    """None: there is none, and the features are those of the first record alone."""
    features: Annotated[Mapping[str, Feature], Written(by=_sorted)]
    first: Hidden[Mapping[str, Any]]
    """The values of the first record, by feature."""

    @property
    @written()
    def sample(self) -> dict[str, str]:
        """The first record in a few words, by feature."""
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
        folder: where the shards lie, with or without an index.
        name: Name of the records, if DIR contains records of several names.

    FileError: there are no records, or they cannot be read. GraphError: they are of no known form,
    or their index is damaged. VerificationError: the first record is damaged.

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
    """What was found of each shard of a folder."""

    folder: Hidden[str]
    index: Annotated[Index | None, Written("indexed", by=_is_there)]
    """None: there is none, so a shard that was cut between two records looks whole."""
    shards: tuple[Checked, ...]

    @property
    @written()
    def records(self) -> int:
        """How many records were read."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The size of the shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    @written()
    def problems(self) -> list[str]:
        """What is wrong, one sentence a shard."""
        return [shard.problem for shard in self.shards if shard.problem]

    @property
    @written()
    def passed(self) -> bool:
        """Whether nothing is, of one record at least."""
        return not self.problems and self.records > 0

    @property
    @written()
    def checked(self) -> str:
        """What was checked, in words."""
        if self.index is None:
            return "the checksums of every record, and the numbers in the names of the shards"
        return "the checksums of every record; count, size and SHA-256 of every shard"

    @property
    @written()
    def unknown(self) -> str:
        """What nobody can know, in words; nothing where there is an index."""
        if self.index is not None:
            return ""
        return (
            "whether records are missing: there is no index, and a shard that was cut between two "
            "records looks whole"
        )

    def check(self) -> None:
        """Raise VerificationError where a shard is damaged, or where nothing was checked."""
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
    if there is no record at all. Without an index, a shard that was truncated between two records
    looks complete; the result states this.

    Args:
        folder: where the shards lie.
        name: Name of the records, if DIR contains records of several names.
        processes: Number of processes, up to 1024 [default: one for each core].

    `check()` of what is returned raises VerificationError where there is a problem, or no record.
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
