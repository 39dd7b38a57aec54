"""A folder that a script of models/ writes: it is there whole, or not at all."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder`, which takes its name when the block ends well.

    Ends the program with a sentence where the folder cannot be written.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(folder)
    except OSError as error:
        sys.exit(f"cannot write {folder}: {error}; name another folder with --to")
