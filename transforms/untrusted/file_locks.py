"""Locks on files and folders, and a process's unfinished files, which its supervisor removes if it
dies.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)  # no locks here


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[bool | None]:
    """Hold the lock of a file or folder during the block.

    Yields whether the lock was acquired and the path still refers to the file; None: the file
    system does not support locks. With `wait`, it waits for a process that holds the lock.
    """
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    held: bool | None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
    except OSError as error:
        held = None if error.errno in _NO_LOCKS else False
    try:
        yield held
    finally:
        os.close(lock)


_notes: Path | None = None  # None: no supervisor


def note_in(path: Path) -> None:
    """Record unfinished files in this file from now on."""
    global _notes
    _notes = path


def note(partial: str | os.PathLike[str]) -> None:
    """Record a hidden file or folder before it is created."""
    if _notes is not None:
        with contextlib.suppress(OSError), _notes.open("ab") as file:
            file.write(os.fsencode(os.path.abspath(partial)) + b"\0")


def remove_noted(path: Path) -> None:
    """Remove the files recorded in this file that still exist under their hidden names."""
    with contextlib.suppress(OSError):
        for name in path.read_bytes().split(b"\0")[:-1]:
            partial = Path(os.fsdecode(name))
            if partial.is_dir() and not partial.is_symlink():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)


def sync(*folders: Path) -> None:
    """Make created and renamed files in folders survive a power failure."""
    for folder in folders:
        entry = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)
