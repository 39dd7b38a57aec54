"""Data: records, batch inference and input pipelines."""

from collections.abc import Iterator, Mapping

from deploykit.api.records import RecordsInspection, RecordsVerification
from deploykit.batch_inference.infer_run import Inferred
from deploykit.batch_inference.reading.data_parts import place_in
from deploykit.data.bottleneck import bytes_in_words
from deploykit.data.input_result import InputResult
from deploykit.records.index import Index
from deploykit.records.open_source import ConvertedSets
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import for_each, said, size


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


MOST_SHOWN = 5  # skipped rows that are named


def inferred_lines(found: Inferred) -> Iterator[str]:
    """Yield the columns, the skipped rows, the files that were written, and the speed."""
    for name, column in found.index["columns"].items():
        sizes = ", ".join("?" if size is None else str(size) for size in column["shape"])
        yield f"{name}: {column['dtype']} [{sizes}]"
    skipped, run = found.skipped, found.run
    if skipped:
        yield f"rows skipped: {len(skipped):,}"
    for row in skipped[:MOST_SHOWN]:
        yield f"  {place_in(found.index['data']['kind'], row['file'], row['row'])}: {row['reason']}"
    if len(skipped) > MOST_SHOWN:
        yield f"  and {len(skipped) - MOST_SHOWN:,} more, which the index lists"
    kept = f" ({run.kept:,} of an earlier run)" if run.kept else ""
    yield from said(
        found, f"{{path}}: {{rows:n row}} in {{parts:n part}}, {{index.bytes:size}}{kept}"
    )
    if not run.workers:
        yield "nothing left to run"
        return
    speed = "{rows:n row}" if run.rows_per_second is None else "{rows_per_second:number} rows/s"
    yield from said(
        run,
        f"{speed} by {{workers:n worker}} ({{engine}})[[ on {{cpus:.2f}} CPUs]], {{seconds:time}}",
    )
    if run.lost:
        yield from said(run, "{lost:n worker} lost; deploykit ran the rows again")


_COLUMNS: Mapping[str, Cell] = {
    "input": "{style}",
    "items/s": "{rates.both:.4g}",
    "compute": "{rates.compute:.4g}",
    "input only": "{rates.input:.4g}",
    "ceiling": "{rates.ceiling:.4g}",
    "floor": "{rates.floor:.4g}",
    "share": "{rates.share:percent}[[ unstable{rates.unstable:.0s}]]",
    "CPU": "{rates.cpu:.1f} of {rates.cores:g}",
    "idle": "{rates.idle:.1f}",
    "others": "{rates.foreign:.1f}",
    "read/s": lambda row: bytes_in_words(row.rates.reading.bytes),
}
_CAPTION = (
    "items/s of compute: on a batch in memory; input only: without a model; ceiling: the smaller "
    "of both; floor: one after the other\n"
    "CPU: cores used by this process; idle: unused cores; others: cores used by other processes; "
    "read/s: bytes of files"
)


def input_lines(found: InputResult) -> Iterator[str | Table]:
    """Yield the rates of each pipeline, its limit and advice."""
    yield table(found.styles, _COLUMNS, _CAPTION)
    for style in found.styles:
        yield from said(style, "{style}: {verdict.limit}: {verdict.reason}; {verdict.advice}")
        for device in style.devices:
            use = device.get("utilisation_percent", {}).get("mean")
            shown = "?" if use is None else f"{use:.0f}"
            yield f"{style.style}: {device['name']} in use {shown} % of the time"
    yield from said(found, "simulated: each step waits {wait_ms:g} ms instead of computing")
    if found.cold_files:
        yield (
            f"{found.cold_files} of {len(found.pipeline.data.files)} files were not in the page "
            "cache, and each round read them from the disk again"
        )
    yield from said(
        found,
        "tf.data service: an epoch has {distinct} records, each once",
        f"skipped: {len(found.skipped)} damaged: {{skipped:list 3}}",
    )
    if found.interrupted:
        yield "interrupted: these are the measurements until then"
