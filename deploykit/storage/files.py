"""Atomic writes that overwrite files only on request, and JSON documents with a kind and a
format.
"""

import contextlib
import glob
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.common.errors import FileError, GraphError, cannot_be
from deploykit.transforms.untrusted.file_locks import locked, note, sync
from deploykit.transforms.untrusted.files import MAX_BYTES, check_regular, read_bytes, read_json

__all__ = ["MAX_BYTES", "check_name_length", "check_output", "check_output_folder", "check_regular",
           "default_output", "hidden", "read_bytes", "remove_leftovers", "write"]  # fmt: skip

_HIDDEN = len("..0123abcd.tmp")  # what the name of a hidden file has besides that of the file
_BESIDE = len(".json")  # the end of the metadata file next to a graph
_NAME_BYTES = 255
_ENDS = (".pb", ".pbtxt", ".keras", ".h5", ".hdf5", ".meta", ".index")


def write(
    path: str | os.PathLike[str],
    pieces: Iterable[bytes],
    force: bool = False,
    check: Callable[[Path], object] | None = None,
) -> int:
    """Write a file atomically and return its size in bytes.

    The file is written under a hidden name, synced and renamed. Without `force`, only one of
    several concurrent writers of a path succeeds; the others get a FileError.

    `check` is called with the hidden path before the rename; if it raises, the file is removed.
    The path `-` is standard output, which accepts only text.
    """
    if path == "-":
        content = b"".join(pieces)
        sys.stdout.write(content.decode())
        return len(content)
    path = Path(path)
    _check_output(path, force)
    size = 0
    try:
        with hidden(path) as (partial, file):
            for piece in pieces:
                size += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            if check is not None:
                check(partial)
            _take_name(partial, path, force)
        sync(path.parent)
    except OSError as error:
        raise cannot_be("written", path, error) from None
    return size


def _take_name(partial: Path, path: Path, force: bool) -> None:
    """Rename a file. FileError: without `force`, another process has created the path meanwhile."""
    if force:
        partial.replace(path)
        return
    try:
        os.link(partial, path)  # atomic, unlike a check before a rename
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # the file system has no hard links
        try:
            path.open("xb").close()
        except FileExistsError:
            raise _exists(path) from None
        try:
            partial.replace(path)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def _exists(path: Path) -> FileError:
    return FileError("exists", source=path, what="the file")


@contextlib.contextmanager
def hidden(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a locked file with a hidden name next to a path, and remove that name at the end."""
    while True:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        note(partial)
        try:
            file = partial.open("xb")
        except FileExistsError:
            continue
        with file, locked(partial, wait=True) as is_ours:
            if is_ours is False:
                continue  # another process took it for a leftover
            try:
                yield partial, file
            finally:
                partial.unlink(missing_ok=True)
            return


def check_name_length(path: str | os.PathLike[str], room: int) -> None:
    """Raise FileError for a name that leaves less than `room` bytes for longer names next to it."""
    path, most = Path(path), _NAME_BYTES
    with contextlib.suppress(OSError, ValueError):  # the folder does not exist yet
        most = os.pathconf(path.parent, "PC_NAME_MAX")
    size = len(os.fsencode(path.name))
    if size > most - room:
        raise FileError("file-name-too-long", source=path, size=size, most=most - room)


def check_output(path: str | os.PathLike[str], force: bool, *sources: str) -> None:
    """Raise FileError before a long run if its output could not be written afterwards.

    The name must leave room for that of a metadata file.
    """
    if path != "-":
        check_name_length(path, _HIDDEN + _BESIDE)
        _check_output(Path(path), force, *sources)


def _check_output(path: Path, force: bool, *sources: str) -> None:
    check_name_length(path, _HIDDEN)
    if not path.parent.is_dir() and any(Path(source).parent == path.parent for source in sources):
        return  # reading the missing source gives a better error
    for source in sources if path.exists() else ():
        if os.path.exists(source) and os.path.samefile(path, source):
            raise FileError("output-is-input", source=path)
    if path.is_dir():
        raise FileError("folder-given", source=path)
    if path.exists() and not path.is_file():
        raise FileError("not-a-regular-file", source=path)
    if os.path.lexists(path) and not force:
        raise _exists(path)
    if not path.parent.is_dir():
        raise FileError("folder-missing", source=path, folder=path.parent, more="")
    if not os.access(path.parent, os.W_OK):
        raise FileError("folder-not-writable", source=path, folder=path.parent)
    remove_leftovers(path.parent, glob.escape(path.name))


def check_output_folder(path: str | os.PathLike[str], room: int = 0) -> None:
    """Raise FileError before a long run if its output folder could not be written afterwards.

    `room` is the number of bytes that longer names next to it need.
    """
    folder = Path(path).absolute()
    for made in (folder, *folder.parents):
        check_name_length(made, room if made == folder else 0)
    there = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    if not there.is_dir():
        raise FileError("not-a-folder", source=path, folder=there)
    if not os.access(there, os.W_OK):
        raise FileError("folder-not-writable", source=path, folder=there)


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove the hidden files of a name or glob pattern that no process is writing."""
    for leftover in folder.glob(f".{name}.*.tmp"):
        with locked(leftover) as is_dead, contextlib.suppress(OSError):
            if is_dead:
                leftover.unlink()


def default_output(source: str | os.PathLike[str], act: str, end: str = ".pb") -> Path:
    """Return `X.act.pb` next to the input: X is its name without a suffix such as `.pb`."""
    path = Path(os.path.abspath(source))
    if path.name in ("saved_model.pb", "saved_model.pbtxt", ".index", ".meta"):
        path = path.parent  # this name is generic; the folder's names the model
    stem = path.name if path.is_dir() or path.suffix not in _ENDS else path.stem
    beside = Path(source).parent if path.name == Path(source).name else path.parent
    return beside / f"{stem}.{act}{end}"


def load_document(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a JSON document of one kind, such as `benchmark` or `tuned`.

    GraphError: the document has another kind or an unsupported format.
    """
    document: dict[str, Any] = read_json(path, f"{kind} document")
    value = document.get("kind") if isinstance(document, dict) else None
    if value != kind:
        raise GraphError("document-kind", source=path, kind=kind, got=value)
    if document.get("format") != FORMAT:
        raise GraphError(
            "format-unsupported", source=path, got=document.get("format"), known=FORMAT
        )
    return document
