"""Whether records are what was written."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.hardware.machine import usable_cores
from deploykit.records.index import Index
from deploykit.records.verify_records import Checked, check_folder
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.errors import UnverifiedError, VerificationError


@dataclass(frozen=True)
class RecordsVerification(AsHtml):
    """What was found of each shard of a folder."""

    folder: str
    index: Index | None
    """None: there is none, so a shard that was cut between two records looks whole."""
    shards: tuple[Checked, ...]

    @property
    def records(self) -> int:
        """How many records were read."""
        return sum(each.records for each in self.shards)

    @property
    def bytes(self) -> int:
        """The size of the shards."""
        return sum(each.bytes for each in self.shards)

    @property
    def problems(self) -> list[str]:
        """What is wrong, one sentence a shard."""
        return [each.problem for each in self.shards if each.problem]

    @property
    def passed(self) -> bool:
        """Whether nothing is, of one record at least."""
        return not self.problems and self.records > 0

    @property
    def checked(self) -> str:
        """What was checked, in words."""
        if self.index is None:
            return "the checksums of every record, and the numbers in the names of the shards"
        return "the checksums of every record; count, size and SHA-256 of every shard"

    @property
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

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "indexed": self.index is not None,
            "records": self.records,
            "passed": self.passed,
            "checked": self.checked,
            "unknown": self.unknown,
            "problems": self.problems,
            "shards": [vars(each) for each in self.shards],
        }


def verify_records(
    folder: str | os.PathLike[str], *, name: str | None = None, processes: int | None = None
) -> RecordsVerification:
    """Check every record, and the shards against their index.

    A problem is a record whose checksum is wrong, or a shard that is cut short, changed, missing or
    not listed. Without an index, a shard that was cut between two records looks whole: `checked`
    and `unknown` say so of what is returned.

    Args:
        folder: where the shards lie.
        name: which records, where the folder has several.
        processes: default: one for each core.

    `check()` of what is returned raises VerificationError where there is a problem, or no record.
    FileError, GraphError: there is nothing to check, or the index is damaged.

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> deploykit.verify_records("records").passed
        True
    """
    with working("records verify") as advance:
        index, found = check_folder(Path(folder), name, processes or usable_cores(), advance)
    return RecordsVerification(os.fspath(folder), index, tuple(found))
