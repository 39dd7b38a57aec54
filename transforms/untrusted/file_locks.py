"""Locks on files and folders, and the unfinished files of a process, which a watcher removes if
the process dies.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)  # of this file system


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[bool | None]:
    """Hold the lock of a file or folder while the block lasts.

    Yields whether it could be had and the path still names it; None where the file system has no
    locks, so that nobody can tell. With `wait`, a process that holds it is waited for.
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


_notes: Path | None = None  # None: nobody watches this process


def note_in(path: Path) -> None:
    """Note from now on, in this file, what is begun."""
    global _notes
    _notes = path


def note(partial: str | os.PathLike[str]) -> None:
    """Note a hidden file or folder before it is made."""
    if _notes is not None:
        with contextlib.suppress(OSError), _notes.open("ab") as file:
            file.write(os.fsencode(os.path.abspath(partial)) + b"\0")


def remove_noted(path: Path) -> None:
    """Remove what is noted in this file and still there under its hidden name."""
    with contextlib.suppress(OSError):
        for name in path.read_bytes().split(b"\0")[:-1]:
            partial = Path(os.fsdecode(name))
            if partial.is_dir() and not partial.is_symlink():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)


def sync(*folders: Path) -> None:
    """Let what was made or renamed in folders outlive a power cut."""
    for folder in folders:
        entry = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)
