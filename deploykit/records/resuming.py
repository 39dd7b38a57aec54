"""What an interrupted conversion has left, and what a new one may replace."""

import glob
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploykit.records.index import index_path, shard_files
from deploykit.records.verify_records import sha256_of
from deploykit.storage.files import check_output_folder
from deploykit.storage.resume_file import State
from deploykit.transforms.core.errors import FileError, GraphError

_NAME = re.compile(r"\w[\w.-]*")


def check_free(folder: Path, name: str, force: bool) -> None:
    """Raise FileError for records that may not be replaced, and that no interrupted run left."""
    if not _NAME.fullmatch(name):
        raise GraphError(f"{name!r} is no name for records; use letters, digits, . _ and -")
    check_output_folder(folder)
    if not (force or _state_file(folder, name).exists()):
        _refuse(index_path(folder, name), *shard_files(folder, name))


def prepared(folder: Path, name: str, bound: Mapping[str, Any], force: bool) -> State:
    """Return what an interrupted run has kept, in a folder that holds nothing else of this name.

    `bound` is what decides the bytes of the shards. FileError: the folder holds records that may
    not be replaced.
    """
    check_free(folder, name, force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or error}") from None
    index = index_path(folder, name)
    state = State(_state_file(folder, name), "records", bound)
    if state.found:
        return state
    if not force:
        _refuse(index)
    for each in (index, *shard_files(folder, name), *_leftovers(folder, name)):
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"{each}: cannot be removed: {error.strerror or error}") from None
    state.keep("begun", True)
    return state


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
            raise FileError(f"{path}: these records exist (use --force to replace them)")


def _leftovers(folder: Path, name: str) -> list[Path]:
    """Return the temporary files of dead processes; those of shards that come again go later."""
    found = folder.glob(f".{glob.escape(name)}-*.tfrecord.*.tmp")
    pids = ((path, path.name.split(".")[-2]) for path in found)
    return [path for path, pid in pids if not Path(f"/proc/{pid}").exists()]
