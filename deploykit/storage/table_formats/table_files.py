"""Finds the files of a table: a file, a folder or a glob, on disk, `s3://` or `gs://`."""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from deploykit.storage import data_files
from deploykit.storage.visible_files import warn_of_unread
from deploykit.transforms.common.errors import FileError, GraphError, cannot_be
from deploykit.transforms.engines.packages import how_to_install
from deploykit.transforms.untrusted.files import check_regular

_REMOTE = re.compile(r"(s3|gs|file)://")
_GLOB, _REMOTE_GLOB = re.compile(r"[*?\[]"), re.compile(r"[*\[]")


@dataclass(frozen=True)
class TableFile:
    """A file of a table: its path or URI, its size in bytes, and its modification time in ns."""

    path: str
    size: int
    changed: int


def arrow(what: str, source: str = "", otherwise: str = "give a .npz file or TFRecords") -> Any:
    """Return the module pyarrow. GraphError: it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise GraphError(
            "format-package-missing",
            source=source or None,
            what=what,
            package="pyarrow",
            reason=error,
            install=how_to_install("pyarrow"),
            otherwise=otherwise,
        ) from None
    return pyarrow


def is_remote(path: str) -> bool:
    """Return whether a path is a URI that pyarrow opens."""
    return _REMOTE.match(path) is not None


def is_glob(path: str) -> bool:
    """Return whether a path is a pattern and not the name of a file."""
    if is_remote(path):  # a question mark starts the options of the file system
        return bool(_REMOTE_GLOB.search(path))
    return bool(_GLOB.search(path)) and not os.path.exists(path)


def format_of(path: str) -> str | None:
    """Return the format of a table, by the end of its name; None: it is not a table."""
    return data_files.format_of(_name_of(path))


def without_options(uri: str) -> str:
    """Return a URI without what follows its question mark, such as the endpoint of S3."""
    return uri.partition("?")[0]


def file_system(path: str) -> tuple[Any, str]:
    """Return the file system of a path, and the path in it. FileError: it does not exist."""
    arrow("reading a table")
    from pyarrow import fs

    if not is_remote(path):
        return fs.LocalFileSystem(), path
    try:
        system, inner = fs.FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return system, inner


def opened_table(path: str) -> Any:
    """Return a file of a table that can be sought, unpacked if it is text.

    FileError: it cannot be read. GraphError: it is damaged.
    """
    if not is_remote(path):
        check_regular(path)
    system, inner = file_system(path)
    try:
        file = system.open_input_file(inner)
    except OSError as error:
        raise _unreadable(path, error) from None
    return (
        data_files.as_text(file, file.size(), _name_of(path))
        if data_files.is_text(_name_of(path))
        else file
    )


def table_files(path: str) -> tuple[TableFile, ...]:
    """Return the files of a table in the order of their names; hidden ones are ignored.

    FileError: there are none. GraphError: they have several formats, or pyarrow is missing.
    """
    try:
        decoded = unquote if is_remote(path) else str
        listed = {file.path: file for file in _listed(path)}
        names = list(listed) if is_glob(path) else tables_among(listed)
        results = [listed[name] for name in sorted(names, key=decoded)]
    except OSError as error:
        raise _unreadable(path, error) from None
    if not results:
        raise FileError("table-files-missing", source=path, known=data_files.table_ends())
    warn_of_unread(path, sorted(listed.keys() - set(names)), "other tables")
    formats = {format_of(file.path) for file in results}
    if len(formats) > 1:
        raise GraphError("table-formats-several", source=path, known=sorted(map(str, formats)))
    return tuple(results)


def tables_among(paths: Iterable[str]) -> list[str]:
    """Return the tables in a folder; JSON next to CSV or Parquet only describes these."""
    tables = [path for path in paths if format_of(path)]
    others = [path for path in tables if not data_files.is_json(_name_of(path))]
    return others if any(format_of(path) != "jsonl" for path in others) else tables


def _name_of(path: str) -> str:
    return without_options(path) if is_remote(path) else path


def folder_of(path: str) -> str:
    """Return the folder in front of a glob; another path unchanged."""
    if not is_glob(path):
        return path
    glob = _REMOTE_GLOB if is_remote(path) else _GLOB
    return glob.split(path)[0].rpartition("/")[0] or "."


def size_of(path: str) -> int:
    """Return the size of a file in bytes. FileError: it does not exist."""
    if not is_remote(path):
        return check_regular(path).st_size
    system, inner = file_system(path)
    size = system.get_file_info(inner).size
    if size is None:
        raise FileError("table-files-missing", source=path, known=data_files.table_ends())
    return int(size)


def _listed(path: str) -> Iterator[TableFile]:
    """Yield the visible files of a path; of a pattern, only tables."""
    from pyarrow import fs

    scheme, pattern, options = "", path, ""
    if is_remote(path):
        scheme, pattern = path[: path.index("://") + 3], without_options(path)
        pattern, options = unquote(pattern.removeprefix(scheme)), path.removeprefix(pattern)
    base = folder_of(path)
    system, inner = file_system(base + options if is_glob(path) and options else base)
    if not is_glob(path):
        info = system.get_file_info(inner)
        if info.type == fs.FileType.File:
            yield _file(path, info)
            return
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(2, "No such file or folder")
    for info in system.get_file_info(fs.FileSelector(inner, recursive=True)):
        below = info.path.removeprefix(inner).lstrip("/")
        is_hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if info.type != fs.FileType.File or is_hidden:
            continue
        is_matched = not is_glob(path) or _matches(info.path.removeprefix("./"), pattern)
        if not is_matched or (is_glob(path) and format_of(info.path) is None):
            continue
        listed = quote(info.path) if scheme else info.path
        yield _file(f"{scheme}{listed}{options}", info)


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a pattern, where `*` does not match a slash."""
    names, patterns = path.split("/"), pattern.split("/")
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


def _file(path: str, info: Any) -> TableFile:
    return TableFile(path, int(info.size or 0), int(info.mtime_ns or 0))


def _unreadable(path: str, error: Exception) -> FileError:
    if isinstance(error, OSError) and error.errno:
        return cannot_be("read", path, error)
    reason = " ".join(str(error).split())[:200]
    return FileError("table-unreadable", source=path, reason=reason)
