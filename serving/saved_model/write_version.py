"""A version of a model: written under a hidden name, synced, renamed to the next free number.

TensorFlow Serving takes a child of a model's folder for a version when its name is a number, so
what is being written is none. An exporter holds a lock on the folder that it writes; what nobody
holds was left by a process that died, and goes.
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

MOST_VERSION = (1 << 63) - 1  # TensorFlow Serving reads an int64
_HIDDEN = ".tmp-"
_NAME = re.compile(r"[\w+-][\w.+-]*")  # what URLs, flags and files of all kinds take as it is
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def versions_in(folder: Path) -> dict[int, Path]:
    """Return what lies in a model's folder by version: children whose whole name is a number."""
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
    """Return a model's name. Error: no request could ask for it, or it would pass for a version."""
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
    """Write a version of a model whole or not at all, and return its folder, `base/name/N`.

    Args:
        base: the folder of models; it is made if there is none.
        name: the model's name.
        files: pieces of each file by its path in the folder; of a path that ends in /, an empty
            folder is made.
        version: its number; default: the one after the highest there is.
        check: raises an error for a folder that must not become a version.

    FileError: the version exists, or cannot be written; then nothing is.
    """
    folder = base / check_name(name)
    made = [item for item in (folder, base) if not os.path.exists(item)]
    try:
        return _written(folder, files, version, check)
    finally:
        for item in made:
            with contextlib.suppress(OSError):  # it holds a version, or another exporter's work
                item.rmdir()


def _written(
    folder: Path,
    files: Mapping[str, Iterable[bytes]],
    version: int | None,
    check: Callable[[Path], None] | None,
) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
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
    """Raise FileError for a version that exists, under whatever spelling."""
    used = versions_in(folder)
    if version in used:
        raise FileError("version-exists", source=used[version], next=_next(used))


def _next(used: Iterable[int]) -> int:
    return max([0, *used]) + 1


def _publish(partial: Path, folder: Path, version: int | None) -> Path:
    """Rename what was written to its number; another exporter may take the same one first."""
    while True:
        check_free(folder, version)
        number = _next(versions_in(folder)) if version is None else version
        if number > MOST_VERSION:
            raise FileError("version-none-left", source=folder, last=MOST_VERSION)
        target = folder / str(number)
        try:
            if not os.path.lexists(target):  # an empty folder would be replaced
                return partial.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise


@contextlib.contextmanager
def _hidden(folder: Path) -> Iterator[Path]:
    """Make a folder under a hidden name, locked; remove it if it is still there afterwards."""
    while True:
        partial = folder / f"{_HIDDEN}{uuid.uuid4().hex}"
        note(partial)
        partial.mkdir()
        with locked(partial) as is_ours:
            if not is_ours:  # another exporter was quicker, and took it for a leftover
                continue
            try:
                yield partial
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return


def _remove_leftovers(folder: Path) -> None:
    """Remove the hidden folders that nobody writes any more."""
    for leftover in folder.glob(f"{_HIDDEN}*"):
        with locked(leftover) as is_dead:
            if is_dead:
                shutil.rmtree(leftover, ignore_errors=True)


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
