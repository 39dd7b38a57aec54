"""A library that the loader takes for tcmalloc by its name, for machines that do not have it."""

import shutil
from pathlib import Path

from deploykit.system.allocators import LIBRARIES


def stands_in(folder: Path) -> Path:
    """Return the library of mathematics under the name of tcmalloc; it does no harm."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(None, 5)[-1]
        if "/libm.so" in path or "/libm-" in path:
            return Path(shutil.copy(path, folder / LIBRARIES[0]))
    raise AssertionError("this Python has not loaded libm")
