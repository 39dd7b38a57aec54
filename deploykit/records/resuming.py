"""What an interrupted conversion has left, and what a new one may replace."""

import contextlib
import glob
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploykit.records.index import index_path, shard_files
from deploykit.storage.files import check_output_folder, remove_leftovers
from deploykit.storage.resume_file import State
from deploykit.transforms.core.errors import FileError, GraphError, cannot_be
from deploykit.transforms.core.files.locks import locked
from deploykit.transforms.core.files.reading import sha256_of

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
    for each in paths:
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_be("removed", each, error) from None


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
