"""What a process has begun to write, so that whoever watches it can remove it if it is killed.

A file is written under a hidden name beside its place, and takes its name when it is whole. The
process that writes removes it when it fails; one that is killed cannot.
"""

import contextlib
import os
import shutil
from pathlib import Path

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
