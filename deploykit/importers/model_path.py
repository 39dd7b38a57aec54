"""The kind and the files of the model at a path."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Literal

from deploykit.importers.metadata_file import sidecar_path
from deploykit.storage.files import check_regular, read_bytes
from deploykit.storage.ship_report import ship_report
from deploykit.transforms.common.errors import Error, FileError, GraphError, naming
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.untrusted.checkpoint_index import check_index
from deploykit.transforms.untrusted.files import MAX_TEXT, opened
from deploykit.transforms.untrusted.wire import check_growth

_LONGEST_NAME = 255 - len(".data-00000-of-00000")  # in bytes; file systems allow 255
_END = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})")


@dataclass(frozen=True)
class Checkpoint:
    """The files `folder/base.index`, `folder/base.data-...` and `folder/base.meta`.

    The base name may be empty; a checkpoint of TensorFlow 0.x is the single file `folder/base`.
    """

    folder: Path
    base: str

    @property
    def prefix(self) -> str:
        """The checkpoint prefix, as TensorFlow expects it."""
        return os.path.join(self.folder, self.base)

    def file(self, end: str) -> Path:
        """Return the path of the file with a suffix such as `.meta`."""
        return self.folder / f"{self.base}{end}"

    @property
    def files(self) -> list[Path]:
        """The existing files."""
        paths = [
            path
            for path in sorted(self.folder.iterdir() if self.folder.is_dir() else ())
            if path.name.startswith(self.base) and _END.fullmatch(path.name[len(self.base) :])
        ]
        whole = self.file("")
        return [whole, *paths] if self.base and whole.is_file() else paths

    def check(self) -> None:
        """Raise FileError for a missing file, GraphError for an invalid index."""
        ends = [path.name[len(self.base) :] for path in self.files]
        if not ends:
            raise FileError("checkpoint-index-missing", prefix=self.prefix)
        for path in self.files:
            check_regular(path)
        shards = {int(n) for end in ends for n in re.findall(r"-of-(\d{5})$", end)}
        count = max(shards, default=0)
        expected = [f".data-{number:05}-of-{count:05}" for number in range(count)]
        if "" not in ends:
            expected = [".index", *(expected or [".data-00000-of-00001"])]
        for end in expected:
            if end not in ends:
                raise FileError("checkpoint-part-missing", prefix=self.prefix, end=end)
        if ".index" in ends:
            check_index(self.prefix)


def find_checkpoint(source: str | os.PathLike[str]) -> Checkpoint | None:
    """Return the checkpoint at a path, or None if there is none.

    A path is a prefix, one of the checkpoint's files, or a folder that contains one. Only the base
    name in a folder's `checkpoint` file is used, because the folder may have moved.
    """
    path = Path(source)
    if path.is_dir():
        if (path / "checkpoint").is_file():
            return _latest(path)
        return Checkpoint(path, "") if (path / ".index").is_file() else None
    if end := re.search(r"\.(index|meta)$", path.name):
        return Checkpoint(path.parent, path.name[: end.start()])
    checkpoint = Checkpoint(path.parent, path.name)
    ends = (".meta",) if path.exists() else (".index", ".meta")
    return checkpoint if any(checkpoint.file(end).exists() for end in ends) else None


def _latest(folder: Path) -> Checkpoint:
    content = read_bytes(folder / "checkpoint", MAX_TEXT, "list of checkpoints")
    match = re.search(rb'model_checkpoint_path: "([^"]*)"', content)
    if match is None:
        raise GraphError("checkpoint-state-empty", folder=folder)
    text = match.group(1).decode(errors="replace")
    written = PureWindowsPath(text.replace("\\\\", "\\")).name  # accepts both kinds of slashes
    if not written.isprintable() or len(written.encode()) > _LONGEST_NAME:
        raise GraphError("checkpoint-state-name", folder=folder, name=written[:60])
    latest = Checkpoint(folder, "" if text.endswith("/") else written)
    if not latest.files:
        there = sorted(p.name[: -len(".index")] for p in folder.iterdir() if p.suffix == ".index")
        shown = f"; there are: {', '.join(there)}" if there else ""
        raise FileError("checkpoint-state-missing", folder=folder, name=latest.base, shown=shown)
    return latest


def meta_bytes(path: Path) -> bytes:
    """Read a `.meta` file. FileError: it is missing. GraphError: it is damaged or too large."""
    if not path.exists():
        raise FileError("checkpoint-missing", source=path)
    content = read_bytes(path)
    with naming(path):
        try:
            check_growth(content, MetaGraphDef)
        except GraphError as error:
            raise GraphError("not-a", what="a MetaGraphDef", reason=error) from None
    return content


KERAS_ENDS = (".keras", ".h5", ".hdf5")
KERAS_FOLDER = ("config.json", "metadata.json")  # files of an unpacked .keras archive
_KERAS_MAGIC = (b"\x89HDF\r\n\x1a\n", b"PK\x03\x04")  # HDF5 and zip
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")


@dataclass(frozen=True)
class Location:
    """A model on disk; `path` is its file or its SavedModel folder."""

    kind: Literal["graph", "checkpoint", "saved_model", "keras"]
    path: Path
    checkpoint: Checkpoint | None = None
    """Checkpoint of the variables."""
    name: str = ""
    """Name of the model in a shipped folder; empty for other models."""

    @property
    def files(self) -> list[Path]:
        """All files of the model."""
        if self.kind == "saved_model":
            folders = [self.path, self.path / "variables", self.path / "assets"]
            results = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
            return sorted(file for file in results if file.is_file())
        if self.kind == "keras" and self.path.is_dir():
            return sorted(file for file in self.path.rglob("*") if file.is_file())
        return self.checkpoint.files if self.checkpoint else [self.path]

    @property
    def bytes(self) -> int:
        """Total size of its files in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def proto(self) -> Path:
        """File with the graph: a GraphDef, a MetaGraphDef or a SavedModel."""
        if self.kind == "saved_model":
            return next(p for name in _SAVED_MODEL if (p := self.path / name).exists())
        return self.checkpoint.file(".meta") if self.checkpoint else self.path


def locate(source: str | os.PathLike[str]) -> Location:
    """Locate the model at a path. FileError: the path does not exist or contains no model."""
    path = Path(source)
    folder = path.parent if path.name in _SAVED_MODEL else path
    if any((folder / name).exists() for name in _SAVED_MODEL):
        variables = Checkpoint(folder / "variables", "variables")
        return Location("saved_model", folder, variables if variables.folder.is_dir() else None)
    checkpoint = find_checkpoint(path)
    if checkpoint is not None:
        return Location("checkpoint", path, checkpoint)
    if all((path / name).is_file() for name in KERAS_FOLDER):
        return Location("keras", path)
    if path.is_dir():
        return _shipped_in(path)
    check_regular(path)
    return Location("keras" if _is_keras(path) else "graph", path)


def _shipped_in(folder: Path) -> Location:
    """Return the graph that `deploykit ship` wrote to a folder. FileError: it is missing."""
    try:
        report = ship_report(folder)
    except Error as error:
        raise FileError(
            "ship-report-damaged", source=folder, what=_no_model(folder), reason=error
        ) from None
    if report is None:
        raise _no_model(folder).within(folder)
    if not report.finished:
        raise FileError("shipment-unfinished", source=folder)
    for path, what in ((report.model, "graph"), (sidecar_path(report.model), "preprocessing")):
        if not path.is_file():
            raise FileError("shipped-graph-missing", file=path, report=report.path, what=what)
    return Location("graph", report.model, name=report.name)


def _is_keras(path: Path) -> bool:
    """Return whether a file is a Keras model, by its suffix or else by its first bytes."""
    if path.suffix in KERAS_ENDS:
        return True
    try:
        with opened(path) as file:
            return file.read(8).startswith(_KERAS_MAGIC)
    except OSError as error:
        raise FileError("file-error", source=path, reason=error.strerror or error) from None


def _no_model(folder: Path) -> FileError:
    versions = [p.name for p in folder.iterdir() if any((p / n).exists() for n in _SAVED_MODEL)]
    if versions:
        newest = max(versions, key=lambda name: (name.isdigit() and int(name), name))
        return FileError(
            "folder-of-saved-models", names=sorted(versions)[:5], example=folder / newest
        )
    return FileError("folder-without-model")
