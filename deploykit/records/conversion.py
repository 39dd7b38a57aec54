"""Writes a source as shards with an index: atomically, reproducibly and with resuming."""

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
    RecordSource,
    SourcePart,
    fingerprint,
    no_records_error,
)
from deploykit.records.tables import Numbers
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
_LONGEST_NAME = 200  # bytes, as the names of shards and of hidden files add up to 40


def check_free(folder: Path, name: str, force: bool) -> None:
    """Raise FileError for existing records, unless `force` is set or a run was interrupted."""
    check_name(name, "records")
    check_output_folder(folder)
    if not (force or _state_file(folder, name).exists()):
        _refuse(index_path(folder, name), *shard_files(folder, name))


def check_name(name: str, what: str) -> None:
    """Raise GraphError for a name that is not allowed in file names of records or results."""
    if not _NAME.fullmatch(name):
        raise GraphError("name-invalid", name=name, what=what)
    if (size := len(name.encode())) > _LONGEST_NAME:
        raise GraphError("set-name-too-long", what=what, size=size, most=_LONGEST_NAME)


@contextlib.contextmanager
def alone(folder: Path, name: str, what: str = "records") -> Iterator[None]:
    """Create a folder, and lock it against other processes that write records of this name.

    A new folder is removed again if nothing was written. FileError: another process holds the lock,
    or the folder cannot be created.
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
                continue  # the other process has just ended
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                if made:
                    with contextlib.suppress(OSError):  # the folder is not empty
                        folder.rmdir()


def prepared(folder: Path, name: str, bound: Mapping[str, Any], force: bool) -> State:
    """Return the state of an interrupted run, or prepare the folder for a new run.

    `bound` contains everything that determines the bytes of the shards. FileError: the folder
    contains records that may not be replaced.
    """
    check_free(folder, name, force)
    index = index_path(folder, name)
    state = State(_state_file(folder, name), "records", bound)
    if state.stored:
        return state
    if not force:
        _refuse(index)
    remove_leftovers(folder, f"{glob.escape(name)}-*.tfrecord")
    remove(index, *shard_files(folder, name))
    state.keep("begun", True)
    return state


def remove(*paths: Path) -> None:
    """Remove files if they exist. FileError: one cannot be removed."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_be("removed", path, error) from None


def forget(folder: Path, names: Iterable[str]) -> None:
    """Remove the state of finished runs of these names."""
    for name in names:
        _state_file(folder, name).unlink(missing_ok=True)


def is_whole(path: Path, facts: Any) -> bool:
    """Return whether a shard is unchanged since an earlier run wrote it."""
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
MAX_SHOWN = 5  # skipped items in the log

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Options:
    """Options for writing records; all except `processes` affect the bytes of the shards."""

    name: str = "data"
    shard_bytes: int = SHARD_MB * 1_000_000
    compression: str = ""
    skip: bool = False
    processes: int = field(default_factory=usable_cores)


@dataclass(frozen=True)
class Block:
    """The framed records of a part, and its problems."""

    content: bytes
    records: int
    problems: tuple[Problem, ...] = ()


@dataclass
class Conversion:
    """The result of a conversion; `kept` counts the shards of an interrupted run."""

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
    """Write a source as shards, each atomically, and then the index.

    An interrupted run resumes after its last finished shard, if source and options are the same.
    With `keep_state`, a finished run can resume too, until `forget` is called.

    FileError: a file cannot be read or written. GraphError: an item is invalid, or there are none.
    """
    groups = _shards_of(source.parts(), options.shard_bytes)
    if not groups:
        raise no_records_error(list(source.files)[:3], "they contain no items")
    check_free(folder, options.name, force)
    with alone(folder, options.name):
        state = prepared(folder, options.name, _bound(source, options), force)
        outcome = _Writing(source, folder, options, state, advance).write(groups)
        if not keep_state:
            state.forget()
    return outcome


def encode(source: RecordSource, options: Options, part: SourcePart) -> Block:
    """Return a part as records, compressed if requested; runs in any process."""
    batch = source.read(part)
    rows = () if batch.problems and not options.skip else batch.rows()
    records = [framed(example(source.features, row)) for row in rows]
    content = b"".join(records)
    if options.compression and content:
        content = gzip.compress(content, GZIP_LEVEL, mtime=0)  # gzip members can be concatenated
    return Block(content, len(records), tuple(batch.problems))


@dataclass
class _Writing:
    """A run that writes shards: the counters of the current shard, and the speed."""

    source: RecordSource
    folder: Path
    options: Options
    state: State
    advance: Advance
    parts: int = 0
    lines: LineNumbers = field(default_factory=LineNumbers)
    started: float = field(default_factory=time.perf_counter)
    records_before: int = 0
    bytes_before: int = 0
    shard: dict[str, Any] = field(default_factory=dict)

    def write(self, groups: Sequence[Sequence[SourcePart]]) -> Conversion:
        """Write the missing shards and the index."""
        folder, state, count = self.folder, self.state, len(groups)
        names = [shard_name(self.options.name, number, count) for number in range(count)]
        retained = {name for name in names if is_whole(folder / name, state.stored.get(name))}
        if retained:
            logger.info("%s: %d of %d shards already exist", folder, len(retained), count)
        to_do = {n: g for n, g in zip(names, groups, strict=True) if n not in retained}
        parts = [part for group in to_do.values() for part in group]
        self.parts = len(parts)
        function = functools.partial(encode, self.source, self.options)
        try:
            with contextlib.closing(in_order(function, parts, self.options.processes)) as blocks:
                for name, group in to_do.items():
                    write(folder / name, self._pieces(islice(blocks, len(group))), force=True)
                    self.records_before += self.shard["records"]
                    self.bytes_before += self.shard["bytes"]
                    state.keep(name, self.shard)
        except Error:
            if done := sum(name in state.stored for name in names):
                logger.info("%s: %d of %d shards are finished; run the same command to resume",
                            folder, done, count)  # fmt: skip
            else:
                state.forget()
            raise
        return self._finished(names, len(retained))

    def _pieces(self, blocks: Iterator[Block]) -> Iterator[bytes]:
        """Yield the bytes of a shard. GraphError: an item is invalid and may not be skipped."""
        result = hashlib.sha256()
        self.shard = {"records": 0, "bytes": 0, "skipped": 0, "problems": []}
        for block in blocks:
            for problem in block.problems:
                if not self.options.skip:
                    raise GraphError("item-failed", reason=problem_text(problem, self.lines))
                self.shard["skipped"] += 1
                if self.shard["skipped"] <= MAX_SHOWN:
                    self.shard["problems"].append(problem_text(problem, self.lines))
            result.update(block.content)
            self.shard["records"] += block.records
            self.shard["bytes"] += len(block.content)
            yield block.content
            seconds = max(time.perf_counter() - self.started, 1e-6)
            records = self.records_before + self.shard["records"]
            size = self.bytes_before + self.shard["bytes"]
            pace = f"{records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s"
            self.advance(pace, self.parts)
        self.shard["sha256"] = result.hexdigest()

    def _finished(self, names: Sequence[str], retained: int) -> Conversion:
        """Write the index and return the result; the state remains."""
        options, facts = self.options, [self.state.stored[name] for name in names]
        shards = tuple(
            Shard(name, item["records"], item["bytes"], item["sha256"])
            for name, item in zip(names, facts, strict=True)
        )
        classes = self.source.classes
        index = Index(options.name, self.source.features, shards, options.compression, classes)
        problems = [problem for fact in facts for problem in fact["problems"]][:MAX_SHOWN]
        if not index.records:
            remove(*(self.folder / name for name in names))
            self.state.forget()
            if problems:
                raise GraphError("no-item-converted", first=problems[0])
            raise GraphError("source-empty")
        write(index_path(self.folder, options.name), [index.text().encode()], force=True)
        return Conversion(index, sum(fact["skipped"] for fact in facts), problems, retained)


def check_apart(sources: Sequence[str | Path], folder: Path) -> None:
    """Raise FileError for an output inside the source folder, which would read it as input."""
    for source in map(Path, sources):
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise FileError("output-inside-source", source=folder, input=source)


def _bound(source: RecordSource, options: Options) -> dict[str, Any]:
    """Return everything that determines the bytes of the shards."""
    return {
        "records": FORMAT,
        "options": {name: item for name, item in vars(options).items() if name != "processes"},
        "features": document(source.features),
        "classes": digest([repr(source.classes).encode()]),
        "source": digest(fingerprint(source.files)),
        **({"csv": source.rule} if isinstance(source, Numbers) else {}),
    }


def _shards_of(parts: Sequence[SourcePart], most: int) -> list[list[SourcePart]]:
    """Return the parts of each shard, up to its maximum size and at least one."""
    groups: list[list[SourcePart]] = []
    size = 0
    for part in parts:
        if not groups or size + part.bytes > most:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.bytes
    return groups


def problem_text(problem: Problem, lines: LineNumbers) -> str:
    """Return a problem as a sentence, with its line number."""
    if problem.offset is None:
        return f"{problem.file}: {problem.reason}"
    line = lines.at(problem.file, problem.offset, problem.only_feeds)
    return f"{problem.file}: line {line}: {problem.reason}"
