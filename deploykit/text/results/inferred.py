"""What a model over files of data has left."""

from collections.abc import Iterator

from deploykit.batch_inference.inferred import Inferred, InferRun
from deploykit.batch_inference.reading.sources import place_in
from deploykit.text.durations import clock_time
from deploykit.text.tables import number, size

MOST_SHOWN = 5  # rows left out that are named


def lines(found: Inferred) -> Iterator[str]:
    """Yield the columns, the rows that were left out, what was written, and how it went."""
    for name, each in found.index["columns"].items():
        sizes = ", ".join("?" if size is None else str(size) for size in each["shape"])
        yield f"{name}: {each['dtype']} [{sizes}]"
    skipped = found.skipped
    if skipped:
        yield f"{_counted(len(skipped), 'row')} left out:"
    for each in skipped[:MOST_SHOWN]:
        place = place_in(found.index["data"]["kind"], each["file"], each["row"])
        yield f"  {place}: {each['reason']}"
    if len(skipped) > MOST_SHOWN:
        yield f"  and {len(skipped) - MOST_SHOWN:,} more, which the index names"
    kept = f" ({_counted(found.run.kept, 'part')} there already)" if found.run.kept else ""
    yield (
        f"{found.path}: {_counted(found.rows, 'row')} in {_counted(found.parts, 'part')}, "
        f"{size(found.index['bytes'])}{kept}"
    )
    yield from _course(found.run)


def _course(run: InferRun) -> Iterator[str]:
    if not run.workers:
        yield "nothing was left to do"
        return
    by = f"by {_counted(run.workers, 'worker')} ({run.engine})"
    if run.rows_per_second is None:
        yield f"{_counted(run.rows, 'row')} {by}, {clock_time(run.seconds)}"
    else:
        cpus = "" if run.cpus is None else f" on {run.cpus:.2f} CPUs"
        yield f"{number(run.rows_per_second)} rows/s {by}{cpus}, {clock_time(run.seconds)}"
    if run.lost:
        its = "it was" if run.lost == 1 else "they were"
        yield f"{_counted(run.lost, 'worker')} lost; what {its} at was done again"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
