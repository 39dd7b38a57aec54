"""Freed memory, which allocators keep for later, goes back to the kernel."""

import contextlib
import ctypes
import os

_GIVE_BACK = {"malloc_trim": (0,), "MallocExtension_ReleaseFreeMemory": ()}
"""Functions of the C library, and of tcmalloc where a process began with it, with arguments."""
# Of glibc's malloc.h. To set either threshold keeps the other one from growing; this one is as far
# as it grows.
_M_ARENA_MAX, _M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -8, -1, -3
_KEPT = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 16 << 20}


def give_back() -> None:
    """Let the allocator of this process give back what it keeps; another C library keeps it."""
    program = ctypes.CDLL(None)
    for name, arguments in _GIVE_BACK.items():
        with contextlib.suppress(AttributeError):
            getattr(program, name)(*arguments)


def keep_less(arenas: int) -> None:
    """Let glibc keep less of what is free: so many arenas, else eight a core, and 16 MiB in each.

    It would be 64 MiB, once large blocks came and went: where a thread has freed the end of its
    arena, nothing else gives that back. What the environment says of either wins.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for variable, tunable, settings in (
        ("MALLOC_ARENA_MAX", "arena_max", {_M_ARENA_MAX: arenas}),
        ("MALLOC_TRIM_THRESHOLD_", "trim_threshold", _KEPT),
    ):
        if variable not in os.environ and f"malloc.{tunable}" not in tunables:
            for each, value in settings.items():
                with contextlib.suppress(AttributeError):
                    ctypes.CDLL(None).mallopt(each, value)
