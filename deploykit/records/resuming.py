"""What an interrupted conversion has left, and what a new one may replace."""

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploykit.records.checking import sha256_of
from deploykit.records.index import index_path, shard_files
from deploykit.state import State
from transforms.core.errors import FileError, GraphError

_NAME = re.compile(r"\w[\w.-]*")


def prepared(folder: Path, name: str, bound: Mapping[str, Any], force: bool) -> State:
    """Return what an interrupted run has kept, in a folder that holds nothing else of this name.

    `bound` is what decides the bytes of the shards. FileError: the folder holds records that may
    not be replaced.
    """
    if not _NAME.fullmatch(name):
        raise GraphError(f"{name!r} is no name for records; use letters, digits, . _ and -")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or error}") from None
    index, path = index_path(folder, name), folder / f".{name}.state.json"
    interrupted = path.exists()
    state = State(path, "records", bound)
    if state.found:
        return state
    shards = shard_files(folder, name)
    if not force and (index.exists() or (shards and not interrupted)):
        there = index if index.exists() else shards[0]
        raise FileError(f"{there}: these records exist (use --force to replace them)")
    for each in (index, *shards, *_leftovers(folder, name)):
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"{each}: cannot be removed: {error.strerror or error}") from None
    state.keep("begun", True)
    return state


def is_whole(path: Path, facts: Any) -> bool:
    """Say whether a shard is what a run before wrote."""
    if not isinstance(facts, dict) or not path.is_file():
        return False
    return bool(path.stat().st_size == facts["bytes"] and sha256_of(path) == facts["sha256"])


def _leftovers(folder: Path, name: str) -> list[Path]:
    """Return the temporary files of dead processes; those of shards that come again go later."""
    found = folder.glob(f".{glob.escape(name)}-*.tfrecord.*.tmp")
    pids = ((path, path.name.split(".")[-2]) for path in found)
    return [path for path, pid in pids if not Path(f"/proc/{pid}").exists()]
