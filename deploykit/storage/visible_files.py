"""The visible files of a folder, and the warning of those that a command does not read."""

import functools
import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from deploykit.transforms.common.errors import FileError

logger = logging.getLogger("deploykit")

_MAX_NAMES = 5
"""Maximum number of files that a warning names."""


def visible_files(
    folder: str,
) -> Iterator[tuple[str, list[os.DirEntry[str]], list[os.DirEntry[str]]]]:
    """Yield each folder, depth first, with its visible subfolders and other files, by name.

    Links to folders are followed, and each folder is yielded once. Folders that are found without a
    link come before those that a link leads to. A repeated folder is one of the other files.
    FileError: a folder cannot be read.
    """
    paths: dict[tuple[int, int], str] = {}  # where each folder is yielded, once a link was met
    waiting = [folder]
    while waiting:
        where = waiting.pop()
        folders, files = list[os.DirEntry[str]](), list[os.DirEntry[str]]()
        try:
            with os.scandir(where) as listed:
                entries = sorted((e for e in listed if e.name[0] != "."), key=lambda e: e.name)
            for entry in entries:
                is_below = is_folder(entry)
                if is_below and entry.is_symlink():
                    for root in (entry.path,) if paths else (folder, entry.path):
                        _add_folders(paths, root)
                is_first = not paths or not is_below or paths.get(_identity(entry)) == entry.path
                (folders if is_below and is_first else files).append(entry)
        except OSError as error:
            raise FileError("file-error", source=where, reason=error.strerror or error) from None
        yield where, folders, files
        waiting += [entry.path for entry in reversed(folders)]


def _add_folders(paths: dict[tuple[int, int], str], root: str) -> None:
    """Add a folder and all visible ones below it, without links, unless their paths are known."""
    if paths.setdefault(_identity(root), root) != root:
        return
    for where, names, _ in os.walk(root):
        names[:] = [name for name in names if name[0] != "."]
        for path in (os.path.join(where, name) for name in names):
            if not os.path.islink(path):
                paths.setdefault(_identity(path), path)


def _identity(path: str | os.DirEntry[str]) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def relative(folder: str, path: str) -> str:
    """Return the path of a file relative to its folder."""
    return path.removeprefix(os.path.join(folder, ""))


def unread_files(folder: str | os.PathLike[str], read: Collection[str | Path]) -> list[str]:
    """Return the visible files below a folder, relative to it, without those that are `read`.

    FileError: a folder cannot be read.
    """
    path, known = str(Path(folder)), set(map(os.path.normpath, read))
    found = (entry.path for _, _, files in visible_files(path) for entry in files)
    return [relative(path, file) for file in found if os.path.normpath(file) not in known]


def warn_of_unread(folder: object, names: Collection[str], kind: str) -> None:
    """Warn once of the files of a folder that are not read, next to the `kind` that is."""
    if names:
        shown = ", ".join([*names][:_MAX_NAMES]) + ", ..." * (len(names) > _MAX_NAMES)
        warn_once(f"{folder}: not read next to {kind} ({len(names)}): {shown}")


@functools.lru_cache(maxsize=256)
def warn_once(text: str) -> None:
    """Log a warning; a command may list a folder several times."""
    logger.warning("%s", text)
