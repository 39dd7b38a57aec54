"""The interface of all sources: features, ordered parts, and the items of a part."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploykit.records.examples import Feature
from deploykit.storage.csv_files import is_whole
from deploykit.transforms.common.errors import GraphError

PART = 1 << 19  # bytes of a part: small enough that all processes end at about the same time
MAX_ITEMS = 256  # of a part, so that small files are distributed as well

INT64 = range(-(1 << 63), 1 << 63)

Facts = Mapping[str, tuple[int, int]]  # size and time of a file by its path


@dataclass(frozen=True)
class SourcePart:
    """A range of a source's items: `start` to `stop`, in bytes of a file or in item numbers."""

    start: int
    stop: int
    bytes: int  # approximate size of the records
    file: str = ""


@dataclass(frozen=True)
class Problem:
    """A problem with an item: its file, the byte offset of its line, and the reason."""

    file: str
    reason: str
    offset: int | None = None
    only_feeds: bool = False  # no line of the file ends with a lone carriage return


@dataclass(frozen=True)
class Batch:
    """The items of a part: an array or a list for each feature, and the problems of other items."""

    columns: Mapping[str, Any]
    problems: Sequence[Problem] = ()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each item, for `examples.example`."""
        for row in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, row, strict=True))


class RecordSource(Protocol):
    """Data that any process can read part by part."""

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of each record."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names by number; empty if there are none."""
        ...

    @property
    def files(self) -> Facts:
        """All files of the source, with size and modification time."""
        ...

    def parts(self) -> list[SourcePart]:
        """Return all parts in order; they only depend on the data."""
        ...

    def read(self, part: SourcePart) -> Batch:
        """Return the items of a part."""
        ...


def split_items(sizes: Iterable[int]) -> list[SourcePart]:
    """Return parts of about PART bytes for items of these sizes."""
    parts: list[SourcePart] = []
    start = size = stop = 0
    for stop, item in enumerate(sizes, 1):
        size += item
        if size >= PART or stop - start >= MAX_ITEMS:
            parts.append(SourcePart(start, stop, size))
            start, size = stop, 0
    return [*parts, SourcePart(start, stop, size)] if stop > start else parts


def facts_of(files: Iterable[str]) -> Facts:
    """Return size and time of each file; both are 0 for a missing file, which fails when read."""
    results = {}
    for path in files:
        try:
            status = os.stat(path)
            results[path] = (status.st_size, status.st_mtime_ns)
        except OSError:
            results[path] = (0, 0)
    return results


def fingerprint(files: Facts) -> Iterator[bytes]:
    """Yield path, size and time of each file, for a digest."""
    here = os.path.join(os.getcwd(), "")
    for path, (size, changed) in files.items():
        whole = path if path.startswith(os.sep) else here + path
        yield f"{whole}\0{size}\0{changed}\n".encode("utf-8", "surrogateescape")


def numbered(labels: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return labels as numbers, and the sorted class names.

    Integer labels are unchanged, and have no class names.
    """
    if all(is_whole(label, INT64) for label in labels):
        return list(map(int, labels)), ()
    classes = tuple(sorted(set(labels)))
    places = {name: number for number, name in enumerate(classes)}
    return [places[label] for label in labels], classes


def no_records_error(sources: Iterable[object], expected: str) -> GraphError:
    """Return the error for sources without data of their kind."""
    return GraphError("nothing-to-convert", sources=sources, wanted=expected)
