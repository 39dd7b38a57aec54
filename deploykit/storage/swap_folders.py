"""Atomic replacement of a folder, so that no reader sees a mix of old and new files."""

import ctypes
import errno
import os
import shutil
from pathlib import Path

from deploykit.transforms.common.errors import FileError, cannot_be
from deploykit.transforms.untrusted.file_locks import sync

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of <fcntl.h> and <stdio.h> on Linux
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def can_swap(folder: Path) -> bool:
    """Return whether a folder next to this one can replace it; a mount point cannot be replaced."""
    parent = folder.resolve().parent
    return (
        os.access(parent, os.W_OK)
        and not os.path.ismount(folder)
        and os.stat(folder).st_dev == os.stat(parent).st_dev
    )


def next_to(folder: Path, end: str) -> Path:
    """Return a hidden path next to a folder: `.NAME.END`."""
    place = folder.resolve()
    return place.with_name(f".{place.name}.{end}")


def swap(new: Path, folder: Path) -> None:
    """Replace `folder` with `new`, and delete the old contents.

    The kernel exchanges both in one step. File systems without that need two renames; `recover`
    undoes the first one if the process died before the second.

    FileError: the exchange failed; both folders keep their paths.
    """
    place, old = folder.resolve(), next_to(folder, "old")
    try:
        if _exchange(new, place):
            new.rename(old)
        else:
            place.rename(old)
            new.rename(place)
        sync(place.parent)
    except OSError as error:
        recover(folder)
        raise FileError(
            "folder-not-replaced", source=folder, reason=error.strerror or error, new=new
        ) from None
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Finish or undo an interrupted swap: restore the old folder if its path is missing.

    FileError: the old folder cannot be renamed.
    """
    old = next_to(folder, "old")
    if not old.is_dir():
        return
    if os.path.lexists(folder):
        shutil.rmtree(old, ignore_errors=True)
        return
    try:
        old.rename(folder.resolve())
    except OSError as error:
        raise cannot_be("renamed", old, error) from None


def link_missing(source: Path, target: Path, skip: frozenset[str] = frozenset()) -> None:
    """Hard-link the files of `source` that `target` lacks.

    deploykit replaces files and never changes them, so both folders may share them. Files are
    copied if the file system has no hard links. `skip` are top-level names in `source`.
    """
    for folder, folders, names in os.walk(source):
        here = target / Path(folder).relative_to(source)
        if Path(folder) == source:
            folders[:] = [folder for folder in folders if folder not in skip]
            names = [name for name in names if name not in skip]
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            if os.path.lexists(here / name):
                continue
            try:
                os.link(Path(folder, name), here / name, follow_symlinks=False)
            except OSError:
                shutil.copy2(Path(folder, name), here / name, follow_symlinks=False)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two paths. False: the system does not support it. OSError: the exchange failed."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = map(os.fsencode, (first, second))
    if not rename(_AT_FDCWD, next(paths), _AT_FDCWD, next(paths), _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
