"""The part of a `deploykit ship` report that other commands read from its folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import read_json

REPORT, MODEL, TUNED = "report.json", "model.pb", "tuned.json"
"""Names of the report, the shipped graph, and the settings found by `tune`."""
KIND = "ship"


@dataclass(frozen=True)
class ShipReport:
    """A shipped folder and its report. The report stores no folder path, so the folder may move."""

    folder: Path
    name: str
    """The model's name."""
    finished: bool
    """Whether every stage has its result."""

    @property
    def path(self) -> Path:
        """Path of the report."""
        return self.folder / REPORT

    @property
    def model(self) -> Path:
        """Path of the shipped graph."""
        return self.folder / MODEL

    @property
    def tuned(self) -> Path | None:
        """Path of the settings found by `tune`, even if a broken link; None if it is missing."""
        path = self.folder / TUNED
        return path if os.path.lexists(path) else None


def ship_report(folder: str | os.PathLike[str]) -> ShipReport | None:
    """Return the report in a folder, or None if the folder has no report of `deploykit ship`.

    FileError, GraphError: the report cannot be read or is damaged.
    """
    path = Path(folder) / REPORT
    if not os.path.lexists(path):
        return None
    document = read_json(path, "report")
    if not isinstance(document, Mapping) or document.get("kind") != KIND:
        return None
    if document.get("format") != FORMAT:
        raise GraphError(
            "format-unsupported", source=path, got=document.get("format"), known=FORMAT
        )
    name = document.get("name")
    if not isinstance(name, str) or not name or name in (".", "..") or Path(name).name != name:
        raise GraphError("ship-report-without-model", source=path)
    return ShipReport(Path(folder), name, bool(document.get("stages")))
