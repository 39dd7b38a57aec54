"""Records that cannot be used, found before anything is measured, and left out by name.

So every style reads the same records, and none meets a damaged one: damaged image files are passed
over, and of a shard with damaged records a copy without them is read.
"""

import functools
import gzip
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from deploykit.data.data import Data
from deploykit.data.feed import check_records, prepared
from deploykit.data.pipeline import Pipeline
from deploykit.data.reading import contents, example
from deploykit.storage.files import write
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.tfrecord import framed, read_records
from deploykit.transforms.runtime.child_process import call


@dataclass(frozen=True)
class Damaged:
    """A record that cannot be used: the number of its file, its own there, and both in words."""

    file: int
    record: int
    where: str


def without_damaged(pipeline: Pipeline, folder: Path) -> tuple[Pipeline, tuple[str, ...]]:
    """Return the pipeline over sound records, and where those lie that are left out.

    Copies of shards are written to the folder.
    GraphError: the data are of another kind, or nothing is sound. FileError: a shard is damaged
    itself, so that the records behind the damage cannot be read.
    """
    data = pipeline.data
    if data.kind not in ("images", "records"):
        raise GraphError(
            "only-for",
            source=data.path,
            option="--on-error skip",
            what="images, as files or in TFRecords; a damaged line should be written again",
        )
    found: Sequence[Damaged] = call(f"{__name__}:damaged", pipeline)
    if not found:
        return pipeline, ()
    if len(found) == data.records:
        raise GraphError(
            "records-all-damaged", source=data.path, count=len(found), first=found[0].where
        )
    if data.kind == "images":
        kept = data.without([each.where for each in found])
    else:
        kept = _copied(data, found, folder)
    return replace(pipeline, data=kept), tuple(each.where for each in found)


def damaged(pipeline: Pipeline) -> list[Damaged]:
    """Return the records that cannot be used, in order; this is done in a child process."""
    find = functools.partial(_of_image if pipeline.data.kind == "images" else _of_shard, pipeline)
    with ThreadPoolExecutor(usable_cores()) as pool:
        found = pool.map(find, range(len(pipeline.data.files)))
        return [each for some in found for each in some]


def _of_image(pipeline: Pipeline, number: int) -> list[Damaged]:
    data = pipeline.data
    file, label = data.files[number], data.labels[number]
    only = replace(data, files=(file,), labels=(label,), counts=(1,))
    try:
        check_records(replace(pipeline, data=only))
    except Error:
        return [Damaged(number, 0, file)]
    return []


def _of_shard(pipeline: Pipeline, number: int) -> list[Damaged]:
    found = []
    for record, (where, content) in enumerate(contents(pipeline.data, number)):
        try:
            values = example(pipeline.data, where, content, tuple(pipeline.features))
            prepared(pipeline, where, values)
        except GraphError:
            found.append(Damaged(number, record, where))
    return found


def _copied(data: Data, found: Sequence[Damaged], folder: Path) -> Data:
    """Return the data with copies of the shards that hold damaged records, written without them."""
    files, counts = list(data.files), list(data.counts)
    for number in dict.fromkeys(each.file for each in found):
        gone = {each.record for each in found if each.file == number}
        copy = folder / Path(files[number]).name
        write(copy, _kept(data, number, gone))
        files[number] = str(copy)
        counts[number] -= len(gone)
    empty = {number for number, count in enumerate(counts) if not count}
    return replace(
        data,
        files=tuple(file for number, file in enumerate(files) if number not in empty),
        counts=tuple(count for number, count in enumerate(counts) if number not in empty),
    )


def _kept(data: Data, number: int, gone: set[int]) -> Iterator[bytes]:
    compressed = bool(data.compression)
    for record, content in enumerate(read_records(data.files[number], compressed)):
        if record not in gone:
            piece = framed(content)
            yield gzip.compress(piece, 1) if compressed else piece
