"""A finished folder takes the place of an old one, and no reader sees a mix of both."""

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
    """Return whether a folder next to this one can take its place: no mount point, say."""
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
    """Put `new` in the place of `folder`, and remove what `folder` held.

    The kernel exchanges both in one step. On a file system without that, there are two renames;
    `recover` undoes the first one where a process died before the second.

    FileError: it cannot be done; both folders are where they were.
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
    """Finish or undo a swap that was interrupted: give an old folder its name back if it lost it.

    FileError: it cannot be renamed.
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
    """Give a folder what it lacks of another one, as second names of the same files.

    deploykit replaces files and never changes them, so both folders may share them. Files are
    copied where the file system has no second names. `skip` are names in `source` itself.
    """
    for folder, folders, names in os.walk(source):
        here = target / Path(folder).relative_to(source)
        if Path(folder) == source:
            folders[:] = [folder for folder in folders if folder not in skip]
            names = [name for name in names if name not in skip]
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not os.path.lexists(here / name):
                _link(Path(folder, name), here / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names. False: this system cannot. OSError: it can, and fails."""
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
