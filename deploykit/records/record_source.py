"""What every kind of source offers: its features, its parts in order, and the items of a part."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError

PART = 1 << 19  # bytes that one process takes at a time: small enough that all end together
MOST_ITEMS = 256  # of a part, so that small files are shared out as well

Facts = Mapping[str, tuple[int, int]]  # size and time of a file by its path


@dataclass(frozen=True)
class SourcePart:
    """A run of a source's items: `start` to `stop` of a file's bytes, or of the items' numbers."""

    start: int
    stop: int
    bytes: int  # of records, about
    file: str = ""


@dataclass(frozen=True)
class Problem:
    """What is wrong with an item: its file, the offset of its line there, and the reason."""

    file: str
    reason: str
    offset: int | None = None


class ProblemError(Exception):
    """An item that is wrong ends the work."""


@dataclass
class Problems:
    """What is wrong with the items of a part; with `skip`, they are left out."""

    skip: bool
    found: list[Problem] = field(default_factory=list)

    def take(self, problem: Problem) -> None:
        """Note a problem. ProblemError: no item may be left out."""
        self.found.append(problem)
        if not self.skip:
            raise ProblemError


class RecordSource(Protocol):
    """Data that are read part by part, in any process."""

    @property
    def features(self) -> Mapping[str, Feature]:
        """What each record holds."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes by number, if they have any."""
        ...

    @property
    def files(self) -> Facts:
        """All files that are read."""
        ...

    def parts(self) -> list[SourcePart]:
        """Return all parts in order; they depend on nothing but the data."""
        ...

    def read(self, part: SourcePart, problems: Problems) -> Iterator[Mapping[str, Any]]:
        """Yield the values of each item of a part, as `encoding.example` takes them."""
        ...


def split_items(sizes: Iterable[int]) -> list[SourcePart]:
    """Return parts of about PART bytes over items of these sizes."""
    parts: list[SourcePart] = []
    start = size = stop = 0
    for stop, item in enumerate(sizes, 1):
        size += item
        if size >= PART or stop - start >= MOST_ITEMS:
            parts.append(SourcePart(start, stop, size))
            start, size = stop, 0
    return [*parts, SourcePart(start, stop, size)] if stop > start else parts


def facts_of(files: Iterable[str]) -> Facts:
    """Return size and time of each file; one that is missing has neither, and is said when read."""
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
    """Return labels as numbers, and their classes in the order of their names, if they have any.

    Whole numbers stay what they are.
    """
    try:
        numbers = [int(label) for label in labels]
        if all(-(1 << 63) <= number < 1 << 63 for number in numbers):
            return numbers, ()
    except ValueError:
        pass
    classes = tuple(sorted(set(labels)))
    places = {name: number for number, name in enumerate(classes)}
    return [places[label] for label in labels], classes


def none_found(sources: Iterable[object], expected: str) -> GraphError:
    """Return the error for sources that hold nothing of their kind."""
    return GraphError("nothing-to-convert", sources=sources, wanted=expected)
