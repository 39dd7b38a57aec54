"""Benchmark of input pipelines: a table, and what limits each of them."""

from collections.abc import Iterator, Mapping

from deploykit.input.input_result import InputResult
from deploykit.input.judging.advice import bytes_in_words
from deploykit.text.tables import Cell, Table, table
from deploykit.text.templates import said

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


def lines(found: InputResult) -> Iterator[str | Table]:
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
