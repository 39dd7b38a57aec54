"""Data become TFRecord shards that can be checked."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.api.record_options import RecordOptions
from deploykit.hardware.machine import usable_cores
from deploykit.records.conversion import Options
from deploykit.records.sets import ConvertedSets, convert_sets
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import Flag

DEFAULT = RecordOptions()


@public(
    Command(
        name="records convert",
        heading="Records",
        requires=(),
        has_limits=False,
        writes_result=False,
    )
)
def convert_records(
    sources: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        Flag(format="paths", metavar="SOURCE..."),
    ],
    folder: Annotated[str | os.PathLike[str], Flag(metavar="DIR")],
    how: RecordOptions = DEFAULT,
    *,
    force: Annotated[bool, Flag(heading="Output")] = False,
) -> ConvertedSets:
    """Write data as TFRecord shards.

    SOURCE is a folder of images, numeric CSV files, tab-separated text files, a .npz file, IDX
    files (MNIST), or CIFAR files. The unpacked CIFAR folder becomes records named train, validation
    (data_batch_5 of CIFAR-10) and test; other commands take one of them as --data DIR/train. The
    shards are byte-identical for any number of processes. NAME.index.json next to them lists the
    features, the number of records, and the SHA-256 of each shard. Records keep the order of the
    source. Images are sorted by class, so shuffle them for training.

    After an interruption, the same command resumes; finished shards are kept.

    Args:
        sources: a folder of images; or one or several files: CSV files of numbers, lines of text
            between tabs, a `.npz` file, IDX files (MNIST), files of CIFAR; CIFAR's whole folder
            becomes `train`, `validation` and `test` in one go.
        folder: where the shards go.
        how: what the sources are, and what the shards are to be.
        force: Replace existing records of this name.

    FileError: something cannot be read or written, or the records exist. GraphError: the data are
    of no known kind, an item is wrong, or none is there.

    Commands:
        deploykit records photos records
        deploykit records cifar-10-batches-py cifar
        deploykit records data.csv table --label-column 0 --name train

    Example:
        >>> found = deploykit.convert_records("test_1000.npz", "records", shard_size=0.5)
        >>> found.index.records, found.skipped
        (1000, 0)
    """
    paths = [sources] if isinstance(sources, str | os.PathLike) else [*sources]
    written = Options(
        shard_bytes=max(1, round(how.shard_size * 1e6)),
        compression="" if how.compression == "none" else how.compression.upper(),
        skip=how.on_error == "skip",
        processes=how.processes or usable_cores(),
    )
    with working("records") as advance:
        return convert_sets(
            [os.fspath(each) for each in paths],
            Path(folder),
            written,
            name=how.name,
            kind=how.kind,
            force=force,
            advance=advance,
            label=how.label_column,
            labels=None if how.labels is None else os.fspath(how.labels),
            raw=how.raw,
        )
