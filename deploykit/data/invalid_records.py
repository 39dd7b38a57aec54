"""Finds damaged records before a measurement and removes them, so that all styles read the same.

Damaged image files are skipped. A shard with damaged records is replaced by a copy without them.
"""

import functools
import gzip
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.data.reading import check_records, contents, example, prepared
from deploykit.storage.files import write
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.tfrecord import framed, read_records
from deploykit.transforms.runtime.child_process import call


@dataclass(frozen=True)
class Damaged:
    """A damaged record: its file number, its number in that file, and its location as text."""

    file: int
    record: int
    where: str


def without_damaged(pipeline: Pipeline, folder: Path) -> tuple[Pipeline, tuple[str, ...]]:
    """Return the pipeline over the valid records, and the locations of the damaged ones.

    Writes copies of shards to the folder. GraphError: the data is neither images nor records, or
    all records are damaged. FileError: the shard itself is damaged, so that the records after the
    damage cannot be read.
    """
    data = pipeline.data
    if data.kind not in ("images", "records"):
        raise GraphError(
            "only-for",
            source=data.path,
            option="--on-error skip",
            what="images, as files or in TFRecords; correct damaged lines of other data",
        )
    results: Sequence[Damaged] = call(f"{__name__}:damaged", pipeline)
    if not results:
        return pipeline, ()
    if len(results) == data.records:
        raise GraphError(
            "records-all-damaged", source=data.path, count=len(results), first=results[0].where
        )
    if data.kind == "images":
        retained = data.without([result.where for result in results])
    else:
        retained = _copied(data, results, folder)
    return replace(pipeline, data=retained), tuple(result.where for result in results)


def damaged(pipeline: Pipeline) -> list[Damaged]:
    """Return the damaged records, in order; call this in a child process."""
    find = functools.partial(_of_image if pipeline.data.kind == "images" else _of_shard, pipeline)
    with ThreadPoolExecutor(usable_cores()) as pool:
        result = pool.map(find, range(len(pipeline.data.files)))
        return [item for some in result for item in some]


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
    results = []
    for record, (where, content) in enumerate(contents(pipeline.data, number)):
        try:
            values = example(pipeline.data, where, content, tuple(pipeline.features))
            prepared(pipeline, where, values)
        except GraphError:
            results.append(Damaged(number, record, where))
    return results


def _copied(data: Data, results: Sequence[Damaged], folder: Path) -> Data:
    """Return the data with copies of the shards that contain damaged records, without these."""
    files, counts = list(data.files), list(data.counts)
    for number in dict.fromkeys(result.file for result in results):
        gone = {result.record for result in results if result.file == number}
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
