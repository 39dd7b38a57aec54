"""The result of batch inference: columns, skipped rows, the files, and the speed."""

from collections.abc import Iterator

from deploykit.batch_inference.inferred import Inferred
from deploykit.batch_inference.reading.sources import place_in
from deploykit.text.templates import said

MOST_SHOWN = 5  # skipped rows that are named


def lines(found: Inferred) -> Iterator[str]:
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
