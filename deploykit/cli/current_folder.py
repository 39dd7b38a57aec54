"""Modules of the user: they may lie in the current folder."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def current_folder_first() -> Iterator[None]:
    """Find modules in the current folder first, as `python -m` does; after the block, last.

    So a file there, whatever its name, hides no module that is imported later on.
    """
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
