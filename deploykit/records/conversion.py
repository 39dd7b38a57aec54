"""A source written as shards of records with an index, atomically, reproducibly, and resumable."""

import contextlib
import functools
import glob
import gzip
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from deploykit.records.examples import example
from deploykit.records.index import FORMAT, Index, Shard, index_path, shard_files, shard_name
from deploykit.records.lines import LineNumbers
from deploykit.records.record_source import (
    Problem,
    ProblemError,
    Problems,
    RecordSource,
    SourcePart,
    fingerprint,
    none_found,
)
from deploykit.records.workers import in_order
from deploykit.storage.files import check_output_folder, remove_leftovers, write
from deploykit.storage.resume_file import State, digest
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import Written, document
from deploykit.transforms.common.errors import Error, FileError, GraphError, cannot_be
from deploykit.transforms.ir.tfrecord import framed
from deploykit.transforms.untrusted.file_locks import locked
from deploykit.transforms.untrusted.files import sha256_of

_NAME = re.compile(r"\w[\w.-]*")


def check_free(folder: Path, name: str, force: bool) -> None:
    """Raise FileError for records that may not be replaced, and that no interrupted run left."""
    check_name(name, "records")
    check_output_folder(folder)
    if not (force or _state_file(folder, name).exists()):
        _refuse(index_path(folder, name), *shard_files(folder, name))


def check_name(name: str, what: str) -> None:
    """Raise GraphError for what the files of records, or of something else, cannot be called."""
    if not _NAME.fullmatch(name):
        raise GraphError("name-invalid", name=name, what=what)


@contextlib.contextmanager
def alone(folder: Path, name: str, what: str = "records") -> Iterator[None]:
    """Make a folder, and let no other process write records of this name there meanwhile.

    Where nothing was written, a folder that was made goes again. FileError: another process does,
    or the folder cannot be made.
    """
    path, made = folder / f".{name}.lock", not folder.exists()
    is_ours: bool | None = False
    while is_ours is False:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise FileError("file-error", source=folder, reason=error.strerror or error) from None
        with locked(path) as is_ours:
            if is_ours is False:
                if path.exists():
                    raise FileError("other-process-writes", source=folder, what=what, name=name)
                continue  # it has ended meanwhile
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                if made:
                    with contextlib.suppress(OSError):  # it holds something
                        folder.rmdir()


def prepared(folder: Path, name: str, bound: Mapping[str, Any], force: bool) -> State:
    """Return what an interrupted run has kept, in a folder that holds nothing else of this name.

    `bound` is what decides the bytes of the shards. FileError: the folder holds records that may
    not be replaced.
    """
    check_free(folder, name, force)
    index = index_path(folder, name)
    state = State(_state_file(folder, name), "records", bound)
    if state.found:
        return state
    if not force:
        _refuse(index)
    remove_leftovers(folder, f"{glob.escape(name)}-*.tfrecord")
    remove(index, *shard_files(folder, name))
    state.keep("begun", True)
    return state


def remove(*paths: Path) -> None:
    """Remove files, if they are there. FileError: one cannot be removed."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_be("removed", path, error) from None


def forget(folder: Path, names: Iterable[str]) -> None:
    """Remove what runs have kept: records of these names are finished."""
    for name in names:
        _state_file(folder, name).unlink(missing_ok=True)


def is_whole(path: Path, facts: Any) -> bool:
    """Say whether a shard is what a run before wrote."""
    if not isinstance(facts, dict) or not path.is_file():
        return False
    return bool(path.stat().st_size == facts["bytes"] and sha256_of(path) == facts["sha256"])


def _state_file(folder: Path, name: str) -> Path:
    return folder / f".{name}.state.json"


def _refuse(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise FileError("exists", source=path, what="a set of records")


logger = logging.getLogger("deploykit")

SHARD_MB = 100
GZIP_LEVEL = 6
MOST_SHOWN = 5  # skipped items that are named

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Options:
    """How records are written; all but `processes` decide which bytes they are."""

    name: str = "data"
    shard_bytes: int = SHARD_MB * 1_000_000
    compression: str = ""
    skip: bool = False
    processes: int = field(default_factory=usable_cores)


@dataclass(frozen=True)
class Block:
    """What a part became: framed records, and what was wrong with it."""

    content: bytes
    records: int
    problems: tuple[Problem, ...] = ()


@dataclass
class Conversion:
    """What a conversion wrote; `kept` shards were there from a run that was interrupted."""

    index: Annotated[Index, Written(flat=True, by=Index.facts)]
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    kept: int = 0


def convert(
    source: RecordSource,
    folder: Path,
    options: Options,
    *,
    force: bool = False,
    advance: Advance = lambda text, count: None,
    keep_state: bool = False,
) -> Conversion:
    """Write a source as shards, each whole or not at all, and then the index.

    A run that was interrupted is taken up after the last shard that it finished, if source and
    options are the same. With `keep_state`, so is one that ended, until `forget` is called.

    FileError: something cannot be read or written. GraphError: an item is wrong, or none is there.
    """
    groups = _shards_of(source.parts(), options.shard_bytes)
    if not groups:
        raise none_found(list(source.files)[:3], "they hold no items")
    check_free(folder, options.name, force)
    with alone(folder, options.name):
        state = prepared(folder, options.name, _bound(source, options), force)
        outcome = _written(source, folder, options, state, groups, advance)
        if not keep_state:
            state.forget()
    return outcome


def _written(
    source: RecordSource,
    folder: Path,
    options: Options,
    state: State,
    groups: Sequence[Sequence[SourcePart]],
    advance: Advance,
) -> Conversion:
    """Write the shards that are not there yet, and the index."""
    names = [shard_name(options.name, number, len(groups)) for number in range(len(groups))]
    retained = {name for name in names if is_whole(folder / name, state.found.get(name))}
    if retained:
        logger.info("%s: %d of %d shards are there already", folder, len(retained), len(groups))
    to_do = [
        (name, group) for name, group in zip(names, groups, strict=True) if name not in retained
    ]
    parts = [part for _, group in to_do for part in group]
    function = functools.partial(encode, source, options)
    work = _ShardWriting(options.skip, len(parts), advance)
    try:
        with contextlib.closing(in_order(function, parts, options.processes)) as blocks:
            for name, group in to_do:
                write(folder / name, work.pieces(islice(blocks, len(group))), force=True)
                state.keep(name, work.finished())
    except Error:
        if done := sum(name in state.found for name in names):
            logger.info("%s: %d of %d shards are finished; the same command goes on from there",
                        folder, done, len(groups))  # fmt: skip
        else:
            state.forget()
        raise
    return _finished(source, folder, options, state, names, len(retained))


def encode(source: RecordSource, options: Options, part: SourcePart) -> Block:
    """Return a part as records, compressed if asked; this is done in any process."""
    problems, records = Problems(options.skip), []
    with contextlib.suppress(ProblemError):
        for values in source.read(part, problems):
            records.append(framed(example(source.features, values)))
    content = b"".join(records)
    if options.compression and content:
        content = gzip.compress(content, GZIP_LEVEL, mtime=0)  # members may follow one another
    return Block(content, len(records), tuple(problems.found))


@dataclass
class _ShardWriting:
    """What is known of the shard that is being written, and of the pace."""

    skip: bool
    parts: int
    advance: Advance
    lines: LineNumbers = field(default_factory=LineNumbers)
    started: float = field(default_factory=time.perf_counter)
    records_before: int = 0
    bytes_before: int = 0
    shard: dict[str, Any] = field(default_factory=dict)

    def pieces(self, blocks: Iterator[Block]) -> Iterator[bytes]:
        """Yield the bytes of a shard. GraphError: an item is wrong and none may be left out."""
        result = hashlib.sha256()
        self.shard = {"records": 0, "bytes": 0, "skipped": 0, "problems": []}
        for block in blocks:
            for problem in block.problems:
                if not self.skip:
                    raise GraphError("item-failed", reason=said(problem, self.lines))
                self.shard["skipped"] += 1
                if self.shard["skipped"] <= MOST_SHOWN:
                    self.shard["problems"].append(said(problem, self.lines))
            result.update(block.content)
            self.shard["records"] += block.records
            self.shard["bytes"] += len(block.content)
            yield block.content
            self.advance(self._pace(), self.parts)
        self.shard["sha256"] = result.hexdigest()

    def finished(self) -> dict[str, Any]:
        """Return the facts of the shard that was written."""
        self.records_before += self.shard["records"]
        self.bytes_before += self.shard["bytes"]
        return self.shard

    def _pace(self) -> str:
        seconds = max(time.perf_counter() - self.started, 1e-6)
        records = self.records_before + self.shard["records"]
        size = self.bytes_before + self.shard["bytes"]
        return f"{records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s"


def check_apart(sources: Sequence[str | Path], folder: Path) -> None:
    """Raise FileError for an output within the folder that is read: it would be read as well."""
    for source in map(Path, sources):
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise FileError("output-inside-source", source=folder, input=source)


def _bound(source: RecordSource, options: Options) -> dict[str, Any]:
    """Return what decides the bytes of the shards."""
    return {
        "records": FORMAT,
        "options": {name: item for name, item in vars(options).items() if name != "processes"},
        "features": document(source.features),
        "classes": digest([repr(source.classes).encode()]),
        "source": digest(fingerprint(source.files)),
    }


def _shards_of(parts: Sequence[SourcePart], most: int) -> list[list[SourcePart]]:
    """Return the parts of each shard: as many as stay within its size, and at least one."""
    groups: list[list[SourcePart]] = []
    size = 0
    for part in parts:
        if not groups or size + part.bytes > most:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.bytes
    return groups


def _finished(
    source: RecordSource,
    folder: Path,
    options: Options,
    state: State,
    names: Sequence[str],
    retained: int,
) -> Conversion:
    """Write the index, after which nothing of the work is left but its state."""
    facts = [state.found[name] for name in names]
    shards = tuple(
        Shard(name, item["records"], item["bytes"], item["sha256"])
        for name, item in zip(names, facts, strict=True)
    )
    index = Index(options.name, source.features, shards, options.compression, source.classes)
    problems = [problem for fact in facts for problem in fact["problems"]][:MOST_SHOWN]
    if not index.records:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        state.forget()
        if problems:
            raise GraphError("no-item-converted", first=problems[0])
        raise GraphError("source-empty")
    write(index_path(folder, options.name), [index.text().encode()], force=True)
    return Conversion(index, sum(fact["skipped"] for fact in facts), problems, retained)


def said(problem: Problem, lines: LineNumbers) -> str:
    """Return a problem in a sentence, with the number of its line."""
    if problem.offset is None:
        return f"{problem.file}: {problem.reason}"
    return f"{problem.file}: line {lines.at(problem.file, problem.offset)}: {problem.reason}"
