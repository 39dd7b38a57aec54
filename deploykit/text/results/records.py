"""Records that were written, looked at or checked."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploykit.api.inspect_records import RecordsInspection
from deploykit.api.verify_records import RecordsVerification
from deploykit.records.index import Index
from deploykit.records.sets import ConvertedSets
from deploykit.text.tables import new_table, size

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_CLASSES = 10  # that are named


def converted_lines(converted: ConvertedSets, folder: str) -> Iterator[str]:
    """Yield what was written."""
    for found in converted.sets:
        for name, feature in sorted(found.index.features.items()):
            yield f"{name}: {feature}"
        if found.skipped:
            yield f"{found.skipped} items left out:"
            yield from (f"  {problem}" for problem in found.problems)
        kept = f" ({found.kept} were there already)" if found.kept else ""
        yield f"{folder}: {_summary(found.index)}{kept}"


def inspection_lines(found: RecordsInspection) -> "Iterator[str | Table]":
    """Yield features and the first record, then the shards."""
    table = new_table("feature", "type", "first record", texts=("type", "first record"))
    for name, value in found.sample.items():
        table.add_row(name, str(found.features[name]), value)
    yield table
    index = found.index
    if index is None:
        yield f"{found.folder} has no index: this is what its first record holds"
        return
    shards = new_table("shard", "records", "size")
    for shard in index.shards:
        shards.add_row(shard.file, str(shard.records), size(shard.bytes))
    yield shards
    if index.classes:
        listed = ", ".join(index.classes[:_CLASSES])
        more = ", ..." if len(index.classes) > _CLASSES else ""
        yield f"{len(index.classes)} classes: {listed}{more}"
    yield _summary(index)


def verification_lines(found: RecordsVerification) -> Iterator[str]:
    """Yield what is wrong, and how much was checked."""
    problems = found.problems
    yield from problems
    yield (
        f"{len(found.shards)} shards, {found.records} records: {len(problems) or 'none'} damaged"
    )
    yield f"checked: {found.checked}"
    if found.unknown:
        yield f"not known: {found.unknown}"


def _summary(index: Index) -> str:
    packed = ", gzip" if index.compression else ""
    return (
        f"{index.records} records '{index.name}' in {len(index.shards)} shards, "
        f"{size(index.bytes)}{packed}"
    )
