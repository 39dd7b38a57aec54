"""Models on disk: opened with suspicion, written whole or not at all."""

import contextlib
import glob
import os
import stat
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from deploykit.transforms.core.errors import FileError, GraphError
from deploykit.transforms.core.tensors import Array

MAX_BYTES = 2 << 30  # protobuf reads no message above 2 GiB

_ENDS = (".pb", ".pbtxt", ".keras", ".h5", ".hdf5", ".meta", ".index")


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file. FileError: it is missing or something else."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise FileError(f"{path}: this is {kind}, expected a file")
    return status


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file. FileError: it is missing, no regular file or too big."""
    size = check_regular(path).st_size
    if size > MAX_BYTES:
        raise FileError(f"{path}: {size} bytes, but protobuf reads at most 2 GiB")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


def write(
    path: str | os.PathLike[str],
    pieces: Iterable[bytes],
    force: bool = False,
    check: Callable[[Path], object] | None = None,
) -> int:
    """Write a file whole or not at all: under another name, synced, then renamed.

    `check` is called with its path before it takes its name; where it raises, nothing is left. The
    text `-` is standard output, which takes text alone.
    """
    if path == "-":
        content = b"".join(pieces)
        sys.stdout.write(content.decode())
        return len(content)
    path = Path(path)
    check_output(path, force)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    size = 0
    try:
        with _removed_on_failure(partial), partial.open("xb") as file:
            for piece in pieces:
                size += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            if check is not None:
                check(partial)
            partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
    return size


def check_output(path: str | os.PathLike[str], force: bool, *sources: str) -> None:
    """Raise FileError now for an output that could not be written after a long run."""
    if path == "-":
        return
    path = Path(path)
    if not path.parent.is_dir() and any(Path(each).parent == path.parent for each in sources):
        return  # what is to be read is not there either, which is said when it is read
    for source in sources if path.exists() else ():
        if os.path.exists(source) and os.path.samefile(path, source):
            raise FileError(f"{path}: the output is the input; give another name with -o")
    if path.is_dir():
        raise FileError(f"{path}: this is a folder, expected the name of a file to write")
    if path.exists() and not force:
        raise FileError(f"{path}: the file exists (use --force to replace it)")
    if not path.parent.is_dir():
        raise FileError(f"{path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise FileError(f"{path}: the folder {path.parent} cannot be written to")
    _remove_leftovers(path)


def check_output_folder(path: str | os.PathLike[str]) -> None:
    """Raise FileError now for a folder that could not be made or written to after a long run."""
    folder = Path(path).absolute()
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise FileError(f"{path}: {there} is no folder")
    if not os.access(there, os.W_OK):
        raise FileError(f"{path}: the folder {there} cannot be written to")


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files that dead processes left beside this one."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = leftover.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                leftover.unlink()


@contextlib.contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def default_output(source: str | os.PathLike[str], act: str, end: str = ".pb") -> Path:
    """Return `X.act.pb` beside the input: X is its name without an end such as `.pb` or `.h5`."""
    path = Path(os.path.abspath(source))
    if path.name in ("saved_model.pb", "saved_model.pbtxt", ".index", ".meta"):
        path = path.parent  # the name says nothing; the folder is the model
    stem = path.name if path.is_dir() or path.suffix not in _ENDS else path.stem
    beside = Path(source).parent if path.name == Path(source).name else path.parent
    return beside / f"{stem}.{act}{end}"


def load_data(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a `.npz` file: arrays by name. Pickled arrays are refused."""
    check_regular(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            if not hasattr(file, "files"):
                raise GraphError(f"{path}: this is a single array, expected a .npz file by name")
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile):
        raise GraphError(f"{path}: this is no .npz file of plain arrays") from None
