"""TFRecord shards that were written, inspected or verified."""

from collections.abc import Iterator

from deploykit.api.inspect_records import RecordsInspection
from deploykit.api.verify_records import RecordsVerification
from deploykit.records.index import Index
from deploykit.records.sets import ConvertedSets
from deploykit.text.tables import Table, table
from deploykit.text.templates import for_each, said, size


def converted_lines(converted: ConvertedSets) -> Iterator[str]:
    """Yield the features, the skipped items and the shards of each set."""
    for found in converted.sets:
        yield from for_each(sorted(found.index.features.items()), "{0}: {1}")
        if found.skipped:
            yield f"items skipped: {found.skipped:,}"
            yield from for_each(found.problems, "  {}")
        yield f"{_summary(found.index)}{f' ({found.kept} of an earlier run)' * bool(found.kept)}"


def inspection_lines(found: RecordsInspection) -> Iterator[str | Table]:
    """Yield features and the first record, then the shards."""
    yield table(
        found.sample.items(),
        {
            "feature": "{0}",
            "type": lambda item: str(found.features[item[0]]),
            "first record": "{1}",
        },
    )
    if found.index is None:
        yield f"{found.folder} has no index: these are the features of its first record"
        return
    columns = {"shard": "{file}", "records": "{records}", "size": "{bytes:size}"}
    yield table(found.index.shards, columns)
    yield from said(found.index, f"{len(found.index.classes)} classes: {{classes:list 10}}")
    yield _summary(found.index)


def verification_lines(found: RecordsVerification) -> Iterator[str]:
    """Yield the problems, and what was checked."""
    yield from found.problems
    damaged = len(found.problems) or "none"
    yield f"{len(found.shards)} shards, {found.records} records: {damaged} damaged"
    yield from said(found, "checked: {checked}", "not checked: {unknown}")


def _summary(index: Index) -> str:
    packed = ", gzip" if index.compression else ""
    return (
        f"{index.records} records '{index.name}' in {len(index.shards)} shards, "
        f"{size(index.bytes)}{packed}"
    )
