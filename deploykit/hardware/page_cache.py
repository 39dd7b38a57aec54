"""Which files lie in memory already, and how to let the kernel forget those that did not.

Styles of input read the same files in turn: what one read from a slow disk, the next would find in
memory, and seem faster. Sources: mincore(2), posix_fadvise(2).
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable

_MOSTLY = 0.5  # of a file's pages


def not_in_memory(files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of which less than half lies in memory; those that cannot be told do."""
    return tuple(file for file in files if _share(file) < _MOSTLY)


def forget(files: Iterable[str]) -> None:
    """Let the kernel drop what memory holds of files, so that who reads them waits for the disk."""
    for file in files:
        with contextlib.suppress(OSError), open(file, "rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _share(path: str) -> float:
    """Return how much of a file lies in memory, from 0 to 1."""
    try:
        with open(path, "rb") as file, _mapped(file.fileno()) as pages:
            start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
            states = (ctypes.c_ubyte * -(-len(pages) // mmap.PAGESIZE))()
            length = ctypes.c_size_t(len(pages))
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(start), length, states)
            return 1.0 if failed else sum(state & 1 for state in states) / len(states)
    except (OSError, ValueError, BufferError, AttributeError):  # it is empty, gone, or no file
        return 1.0


def _mapped(number: int) -> mmap.mmap:
    """Map a file as one's own copy, which costs no memory before it is written to."""
    return mmap.mmap(number, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
