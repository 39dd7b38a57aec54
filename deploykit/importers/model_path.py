"""The kind and the files of the model at a path."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploykit.importers.checkpoints import Checkpoint, find_checkpoint
from deploykit.importers.metadata_file import sidecar_path
from deploykit.storage.files import check_regular
from deploykit.storage.ship_report import ship_report
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.untrusted.files import opened

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
