"""Writes a version of a model under a hidden name, syncs it, and renames it to a free number.

TensorFlow Serving treats a folder as a version only if its name is a number, so it ignores
incomplete ones. An exporter locks the folder that it writes. Folders without a lock are left over
from a process that died, and are removed.
"""

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from deploykit.serving.protocol.versions import number_of
from deploykit.transforms.common.errors import Error, FileError, cannot_be
from deploykit.transforms.untrusted.file_locks import locked, note, sync

MAX_VERSION = (1 << 63) - 1  # TensorFlow Serving parses an int64
_HIDDEN = ".tmp-"
_NAME = re.compile(r"[\w+-][\w.+-]*")  # valid in URLs, flags and all kinds of files without quoting
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def versions_in(folder: Path) -> dict[int, Path]:
    """Return the children of a model's folder whose whole name is a number, by version."""
    try:
        children = sorted(folder.iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FileError("file-error", source=folder, reason=error.strerror or error) from None
    return {number: child for child in children if (number := number_of(child.name)) is not None}


def models_in(base: Path) -> dict[str, Path]:
    """Return the newest version of each model in a folder of models, by the model's name."""
    results = {}
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        if folder.is_dir() and _NAME.fullmatch(folder.name) and number_of(folder.name) is None:
            versions = {n: path for n, path in versions_in(folder).items() if path.is_dir()}
            if versions:
                results[folder.name] = versions[max(versions)]
    return results


def check_name(name: str) -> str:
    """Return a model's name. Error: no request could address it, or it looks like a version."""
    if _NAME.fullmatch(name) is None:
        raise Error("model-name-invalid", name=name)
    if number_of(name) is not None:
        raise Error("model-name-number", name=name)
    return name


def write_version(
    base: Path,
    name: str,
    files: Mapping[str, Iterable[bytes]],
    version: int | None = None,
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Write a version of a model atomically, and return its folder, `base/name/N`.

    Args:
        base: the folder of models; it is created if missing.
        name: the model's name.
        files: pieces of each file by its path in the folder; a path that ends in / creates an
            empty folder.
        version: its number; default: the highest existing one plus 1.
        check: raises an error if the written folder must not become a version.

    FileError: the version exists, or cannot be written; then nothing is written.
    """
    folder = base / check_name(name)
    made = [item for item in (folder, base) if not os.path.exists(item)]
    try:
        return _written(folder, files, version, check)
    finally:
        for item in made:
            with contextlib.suppress(OSError):  # it has a version, or another exporter uses it
                item.rmdir()


def _written(
    folder: Path,
    files: Mapping[str, Iterable[bytes]],
    version: int | None,
    check: Callable[[Path], None] | None,
) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_HIDDEN}*"):
            with locked(leftover) as is_dead:
                if is_dead:
                    shutil.rmtree(leftover, ignore_errors=True)
        check_free(folder, version)
        with _hidden(folder) as partial:
            for path, pieces in files.items():
                _write(partial / path, path.endswith("/"), pieces)
            if check is not None:
                check(partial)
            sync(*sorted(p for p in partial.rglob("*") if p.is_dir()), partial)
            target = _publish(partial, folder, version)
        sync(folder, folder.parent)
    except OSError as error:
        raise cannot_be("written", folder, error) from None
    return target


def check_free(folder: Path, version: int | None) -> None:
    """Raise FileError if a version exists, in any spelling."""
    used = versions_in(folder)
    if version in used:
        raise FileError("version-exists", source=used[version], next=_next(used))


def _next(used: Iterable[int]) -> int:
    return max([0, *used]) + 1


def _publish(partial: Path, folder: Path, version: int | None) -> Path:
    """Rename the folder to its number, retrying if another exporter takes the number first."""
    while True:
        check_free(folder, version)
        number = _next(versions_in(folder)) if version is None else version
        if number > MAX_VERSION:
            raise FileError("version-none-left", source=folder, last=MAX_VERSION)
        target = folder / str(number)
        try:
            if not os.path.lexists(target):  # rename would replace an empty folder
                return partial.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise


@contextlib.contextmanager
def _hidden(folder: Path) -> Iterator[Path]:
    """Create a locked folder with a hidden name; remove it afterwards if it still exists."""
    while True:
        partial = folder / f"{_HIDDEN}{uuid.uuid4().hex}"
        note(partial)
        partial.mkdir()
        with locked(partial) as is_ours:
            if not is_ours:  # another exporter removed it as a leftover
                continue
            try:
                yield partial
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return


def _write(path: Path, is_folder: bool, pieces: Iterable[bytes]) -> None:
    if is_folder:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
