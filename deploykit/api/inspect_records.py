"""What records hold."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.records.features import Feature
from deploykit.records.index import Index, RecordsFacts
from deploykit.records.verify_records import inspection, shown
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, Written, written
from deploykit.transforms.core.display.flag import Flag


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
