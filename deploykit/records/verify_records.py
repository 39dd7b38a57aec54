"""Verifies the shards in a folder against their index, and reads a sample record."""

import functools
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.records.examples import Feature
from deploykit.records.index import (
    Index,
    Shard,
    find_index,
    index_of,
    index_path,
    load_index,
    one_set,
    shard_files,
)
from deploykit.records.plain_records import PlainRecords, lists_of, plain_records, record_names
from deploykit.records.workers import in_order
from deploykit.transforms.common.errors import (
    FileError,
    GraphError,
    MismatchError,
    VerificationError,
)
from deploykit.transforms.ir.tfrecord import is_gzip, read_records
from deploykit.transforms.untrusted.files import check_regular, sha256_of

_NUMBERED = re.compile(r"(.*)-(\d{5,9})-of-(\d{5,9})(.*)")

MAX_HASHED = 1 << 30
"""The total size in bytes up to which `shard_counts` compares SHA-256 instead of file sizes."""

logger = logging.getLogger("deploykit")

SHOWN = 6  # shown numbers of a list; strings are shown up to ten times as many characters


@dataclass(frozen=True)
class Checked:
    """The counts of a shard, and its problem if any."""

    file: str
    records: int
    bytes: int
    problem: str = ""


Jobs = list[tuple[Path, Shard | None]]


def found_records(path: Path, name: str | None) -> tuple[Index | None, Jobs]:
    """Return the index or None, and each file with its entry in the index.

    The path is a folder, one file of records, or the index of one of several sets. FileError: there
    are no files. GraphError: the index is damaged, there are several, or a file has a `name`.
    """
    if (named := one_set(path)) is not None and name is None:
        path, name = named
    if path.is_file():
        if name is not None:
            raise GraphError("only-for", source=path, option="--name", what="folders of records")
        _, index, shard = index_of(path) or (None, None, None)
        return index, [(path, shard)]
    if find_index(path, name) is not None:
        index = load_index(path, name)
        jobs: Jobs = [(path / shard.file, shard) for shard in index.shards]
        if name is None:
            _tell_unread(path, index, [file for file, _ in jobs])
        return index, jobs
    files = record_names(path)
    if not files:
        raise FileError("not-found", source=path, expected="TFRecord files")
    _tell_unread(path, None, files)
    return None, [(file, None) for file in files]


def check_folder(
    folder: Path,
    name: str | None,
    processes: int,
    advance: Callable[[str, int], None] = lambda text, count: None,
) -> tuple[Index | None, list[Checked]]:
    """Return the index or None, and the result of checking each shard, as of `found_records`.

    Without an index, checksums are compared, but the expected number of records is unknown.
    FileError, GraphError: there is nothing to check, or the index is damaged.
    """
    index, jobs = found_records(folder, name)
    check = functools.partial(_checked, compression=None if index is None else index.compression)
    results = []
    for checked in in_order(check, jobs, processes):
        results.append(checked)
        advance(checked.file, len(jobs))
    if jobs and jobs[0][0] == folder:  # one file
        return index, results
    folder = jobs[0][0].parent if jobs else folder
    if index is None:
        results += _missing(folder, [result.file for result in results])
    else:
        listed = {shard.file for shard in index.shards}
        for extra in shard_files(folder, index.name):
            if extra.name not in listed:
                size = extra.stat().st_size
                results.append(Checked(extra.name, 0, size, f"{extra}: not listed in the index"))
    return index, results


def _tell_unread(folder: Path, index: Index | None, files: Sequence[Path]) -> None:
    """Log which files next to records are not read: all, or with an index those like records."""
    others = record_names(folder) if index else sorted(p for p in folder.iterdir() if p.is_file())
    known = {*files, *(shard_files(folder, index.name) if index else ())}  # which are compared
    unread = [path.name for path in others if path not in known and not path.name.startswith(".")]
    if unread:
        shown = ", ".join(unread[:5]) + ", ..." * (len(unread) > 5)
        logger.warning("%s: not read next to TFRecords (%d): %s", folder, len(unread), shown)


def _missing(folder: Path, names: Sequence[str]) -> list[Checked]:
    """Return the shards that are missing according to the counts in the names of the others."""
    there: dict[tuple[str, str, str], set[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        there.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    results = []
    for (start, count, end), numbers in there.items():
        missing = int(count) - len(numbers)
        if missing > 0:
            first = next(number for number in range(int(count)) if number not in numbers)
            name = f"{start}-{first:0{len(count)}}-of-{count}{end}"
            more = f" (and {missing - 1} more of them)" if missing > 1 else ""
            results.append(Checked(name, 0, 0, f"{folder / name}: this shard is missing{more}"))
    return results


def _checked(job: tuple[Path, Shard | None], compression: str | None) -> Checked:
    """Compare a shard with the index, and return its first problem."""
    path, shard = job
    if not path.is_file():
        return Checked(path.name, 0, 0, f"{path}: this shard is missing")
    size, records, problem = path.stat().st_size, 0, ""
    try:
        compressed = is_gzip(path) if compression is None else compression == "GZIP"
        for _ in read_records(path, compressed):
            records += 1
    except (VerificationError, FileError) as error:
        problem = str(error)
    if shard is not None and not problem:
        if records != shard.records:
            problem = f"{path}: {records} records, but the index states {shard.records}"
        elif size != shard.bytes:
            problem = f"{path}: {size} bytes, but the index states {shard.bytes}"
        elif sha256_of(path) != shard.sha256:
            problem = f"{path}: its SHA-256 differs from the index"
    return Checked(path.name, records, size, problem)


def shard_counts(folder: Path, index: Index, is_named: bool = False) -> tuple[int, ...]:
    """Return the number of records in each shard.

    If a shard differs from the index, a warning is logged and its records are counted. With
    `is_named`, the user named the index itself, and a difference is an error.

    FileError: a shard is missing, or has another size and is truncated. MismatchError: the user
    named the index, and it describes another file.
    """
    is_hashed = index.bytes <= MAX_HASHED
    results = []
    for shard in index.shards:
        path = folder / shard.file
        status = check_regular(path)
        said = (index_path(folder, index.name), status.st_mtime_ns, status.st_ino)
        results.append(_count(path, shard, index.compression, is_hashed, is_named, said))
    return tuple(results)


@functools.lru_cache(maxsize=4096)  # data is opened again for each graph
def _count(
    path: Path, shard: Shard, compression: str, is_hashed: bool, is_named: bool,
    said: tuple[Path, int, int],
) -> int:  # fmt: skip
    size = check_regular(path).st_size
    if size == shard.bytes and not (is_hashed and sha256_of(path) != shard.sha256):
        return shard.records
    if is_named:
        raise MismatchError("index-other-file", source=said[0], file=path)
    try:
        records = sum(1 for _ in read_records(path, compression == "GZIP"))
    except (VerificationError, FileError):
        if size == shard.bytes:
            return shard.records  # reading the shard later reports the damaged record
        raise FileError(
            "index-differs", source=path, got=size, unit="bytes", expected=shard.bytes
        ) from None
    logger.warning("%s was written for another %s: its entry for this file is ignored, and %d "
                   "records are read", said[0], path, records)  # fmt: skip
    return records


def sample(path: Path) -> dict[str, Any] | None:
    """Return the values of the first record by feature, or None for an empty file.

    FileError: the file cannot be read. VerificationError: it is damaged. GraphError: the record is
    not a tf.train.Example.
    """
    for record in read_records(path, is_gzip(path)):
        if (lists := lists_of(record)) is None:
            raise GraphError("not-an-example", source=path)
        return {
            name: np.array(values, np.float32) if dtype == "float32" else list(values)
            for name, (dtype, values) in lists.items()
        }
    return None


def shown(feature: Feature, value: Any) -> str:
    """Return a short text for the value of a feature."""
    if feature.content == "image" and value:
        return f"an image file of {len(value[0])} bytes"
    if feature.content == "raw" and value:
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        if len(value[0]) % dtype.itemsize:
            return f"{len(value[0])} bytes, which cannot be {feature.dtype}"
        value = np.frombuffer(value[0], dtype)
    texts = []
    for item in value[:SHOWN]:
        if isinstance(item, bytes):
            text = item[: 10 * SHOWN].decode(errors="backslashreplace")
            texts.append(repr(text) + ("..." if len(item) > 10 * SHOWN else ""))
        else:
            texts.append(f"{item:.6g}" if isinstance(item, np.floating) else str(item))
    return ", ".join(texts) + (f", ... ({len(value)})" if len(value) > SHOWN else "")


def inspection(
    path: Path, name: str | None
) -> tuple[Index | None, PlainRecords | None, dict[str, Any]]:
    """Return the index, or without one the content of the files; and the first record.

    FileError: there are no records, or they cannot be read. GraphError: their format is unknown.
    VerificationError: the first record, or without an index a length, is damaged.
    """
    index, jobs = found_records(path, name)
    files = [file for file, _ in jobs]
    plain = plain_records(os.fspath(path), files) if index is None else None
    for file in files:
        values = sample(file)
        if values is not None:
            return index, plain, values
    raise GraphError("records-empty", source=path, files_count=len(files))
