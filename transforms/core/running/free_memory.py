"""Freed memory, which allocators keep for later, goes back to the kernel."""

import contextlib
import ctypes

_GIVE_BACK = {"malloc_trim": (0,), "MallocExtension_ReleaseFreeMemory": ()}
"""Functions of the C library, and of tcmalloc where a process began with it, with arguments."""


def give_back() -> None:
    """Let the allocator of this process give back what it keeps; another C library keeps it."""
    program = ctypes.CDLL(None)
    for name, arguments in _GIVE_BACK.items():
        with contextlib.suppress(AttributeError):
            getattr(program, name)(*arguments)
