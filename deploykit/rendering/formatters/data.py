"""Data: records, batch inference and input pipelines."""

from collections.abc import Iterator, Mapping

from deploykit.api.records import RecordsInspection, RecordsVerification
from deploykit.batch_inference.infer_run import Inferred
from deploykit.batch_inference.reading.data_parts import place_of
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.input_speed.bottleneck import bytes_in_words
from deploykit.data.input_speed.input_result import InputResult
from deploykit.records.index import Index
from deploykit.records.open_source import ConvertedSets
from deploykit.records.plain_records import LOOKED_AT, PlainRecords
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import counted, filled_lines, rendered_rows, size


def converted_lines(converted: ConvertedSets) -> Iterator[str]:
    """Yield the features, the skipped items and the shards of each set."""
    for set_ in converted.sets:
        yield from rendered_rows(sorted(set_.index.features.items()), "{0}: {1}")
        if set_.skipped:
            yield f"items skipped: {set_.skipped:,}"
            yield from rendered_rows(set_.problems, "  {}")
        yield f"{_summary(set_.index)}{f' ({set_.kept} of an earlier run)' * bool(set_.kept)}"


def inspection_lines(inspection: RecordsInspection) -> Iterator[str | Table]:
    """Yield features and the first record, then the shards."""
    yield table(
        inspection.sample.items(),
        {
            "feature": "{0}",
            "type": lambda item: str(inspection.features[item[0]]),
            "first record": "{1}",
        },
    )
    if inspection.plain is not None:
        yield from _plain_lines(inspection.folder, inspection.plain)
    if inspection.index is None:
        return
    columns = {"shard": "{file}", "records": "{records}", "size": "{bytes:size}"}
    yield table(inspection.index.shards, columns)
    count = len(inspection.index.classes)
    yield from filled_lines(
        inspection.index, f"{count} class{'es' * (count != 1)}: {{classes:list 10}}"
    )
    yield _summary(inspection.index)


def _plain_lines(folder: str, plain: PlainRecords) -> Iterator[str | Table]:
    """Yield the files of records without an index, and what their features follow from."""
    facts = plain.facts()
    yield table(facts["shards"], {"file": "{file}", "records": "{records}", "size": "{bytes:size}"})
    if plain.optional:
        yield f"not in every record: {', '.join(sorted(plain.optional))}"
    packed = ", gzip" if plain.compression else ""
    yield f"{counted(facts['records'], 'record')} in {counted(len(plain.files), 'file')}{packed}"
    yield f"{folder} has no index: the features follow from its first {LOOKED_AT} records"


def verification_lines(verification: RecordsVerification) -> Iterator[str]:
    """Yield the problems, and what was checked."""
    yield from verification.problems
    damaged = len(verification.problems) or "none"
    shards, records = len(verification.shards), verification.records
    yield f"{counted(shards, 'shard')}, {counted(records, 'record')}: {damaged} damaged"
    yield from filled_lines(verification, "checked: {checked}", "not checked: {unknown}")


def _summary(index: Index) -> str:
    packed = ", gzip" if index.compression else ""
    records, shards = counted(index.records, "record"), counted(len(index.shards), "shard")
    return f"{records} '{index.name}' in {shards}, {size(index.bytes)}{packed}"


MAX_SHOWN = 5  # maximum number of listed skipped rows


def inferred_lines(inferred: Inferred) -> Iterator[str]:
    """Yield the columns, the skipped rows, the written files, and the speed."""
    for name, column in inferred.index["columns"].items():
        sizes = ", ".join("?" if size is None else str(size) for size in column["shape"])
        yield f"{name}: {column['dtype']} [{sizes}]"
    skipped, run = inferred.skipped, inferred.run
    if skipped:
        yield f"rows skipped: {len(skipped):,}"
    for row in skipped[:MAX_SHOWN]:
        place = place_of(inferred.index["data"]["kind"], row["file"], row["row"])
        yield f"  {place}: {row['reason']}"
    if len(skipped) > MAX_SHOWN:
        yield f"  and {len(skipped) - MAX_SHOWN:,} more, which the index lists"
    if inferred.skipped_files:
        are = "not images" if inferred.index["data"]["kind"] == "images" else "empty"
        yield f"files skipped: {len(inferred.skipped_files):,} that are {are}"
    retained = f" ({run.kept:,} of an earlier run)" if run.kept else ""
    yield from filled_lines(
        inferred, f"{{path}}: {{rows:n row}} in {{parts:n part}}, {{index.bytes:size}}{retained}"
    )
    if not run.workers:
        yield "nothing left to run"
        return
    speed = "{rows:n row}" if run.rows_per_second is None else "{rows_per_second:number} rows/s"
    yield from filled_lines(
        run,
        f"{speed} by {{workers:n worker}} ({{scheduler}})[[ on {{cpus:.2f}} CPUs]], "
        "{seconds:time}",
    )
    if run.lost:
        yield from filled_lines(run, "{lost:n worker} lost; deploykit ran the rows again")


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
    "of both; floor: both in sequence; "
    "CPU: cores used by this process; idle: unused cores; others: cores used by other processes; "
    "read/s: bytes read from files"
)


def input_lines(input_result: InputResult) -> Iterator[str | Table]:
    """Yield the rates of each pipeline, its limit and advice."""
    yield table(input_result.styles, _COLUMNS, _CAPTION)
    if input_result.settings != RunConfig():
        yield f"settings: {input_result.settings}"
    for style in input_result.styles:
        yield from filled_lines(
            style, "{style}: {verdict.limit}: {verdict.reason}; {verdict.advice}"
        )
        for device in style.devices:
            use = device.get("utilisation_percent", {}).get("mean")
            shown = "?" if use is None else f"{use:.0f}"
            yield f"{style.style}: {device['name']} in use {shown} % of the time"
    yield from filled_lines(
        input_result, "simulated: each step waits {wait_ms:g} ms instead of computing"
    )
    if input_result.cold_files:
        yield (
            f"{input_result.cold_files} of {len(input_result.pipeline.data.files)} files were not "
            "in the page cache, and each round read them from the disk again"
        )
    yield from filled_lines(
        input_result,
        "tf.data service: an epoch has {distinct} records, each once",
        f"skipped: {len(input_result.skipped)} damaged: {{skipped:list 3}}",
    )
    if input_result.interrupted:
        yield "interrupted: these are the measurements so far"
