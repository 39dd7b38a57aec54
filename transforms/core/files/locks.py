"""A file or folder that a process holds while it works on it; whoever dies lets go."""

import contextlib
import errno
import fcntl
import os
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
