"""Data become TFRecord shards that can be checked."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploykit.api.record_options import COMPRESSIONS, ON_ERROR, RecordOptions
from deploykit.hardware.machine import usable_cores
from deploykit.records import KINDS
from deploykit.records.conversion import Options
from deploykit.records.sets import ConvertedSets, convert_sets
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.errors import GraphError

DEFAULT = RecordOptions()


def convert_records(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    how: RecordOptions = DEFAULT,
    *,
    force: bool = False,
    **options: Any,
) -> ConvertedSets:
    """Write data as TFRecord shards, and beside them `NAME.index.json`.

    The shards are the same bytes however many processes write them; the index holds features,
    records, and the SHA-256 of each shard. Records keep the order of the source, so images lie
    together by class: shuffle to train on them. A run that was interrupted is taken up by the same
    call; what was finished stays.

    Args:
        sources: a folder of images; or one or several files: CSV files of numbers, lines of text
            between tabs, a `.npz` file, IDX files (MNIST), files of CIFAR; CIFAR's whole folder
            becomes `train`, `validation` and `test` in one go.
        folder: where the shards go.
        how: what the sources are, and what the shards are to be.
        force: whether existing records of this name are replaced.
        options: fields of `RecordOptions`, such as `name`, `shard_size` (megabytes) and `label`.

    FileError: something cannot be read or written, or the records exist. GraphError: the data are
    of no known kind, an item is wrong, or none is there.

    Example:
        >>> found = deploykit.convert_records("test_1000.npz", "records", shard_size=0.5)
        >>> found.index.records, found.skipped
        (1000, 0)
    """
    (how,) = with_options("convert_records", options, how)
    for given, known in (
        (how.kind, (None, *KINDS)), (how.compression, COMPRESSIONS), (how.on_error, ON_ERROR)
    ):  # fmt: skip
        if given not in known:
            raise GraphError(
                "not-one-of", what="the value", known=[each for each in known if each], got=given
            )
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
            label=how.label,
            labels=_text(how.labels),
            raw=how.raw,
        )


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
