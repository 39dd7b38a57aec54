"""What anybody who is given a folder of `deploykit ship` reads of its report: whose it is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import read_json

REPORT, MODEL, TUNED = "report.json", "model.pb", "tuned.json"
"""The report, the graph that is shipped, and what `tune` found for it."""
KIND = "ship"


@dataclass(frozen=True)
class ShipReport:
    """What the report of a shipment says. It never says where the folder lies, which may move."""

    folder: Path
    name: str
    """Of the model."""
    finished: bool
    """Whether every stage has its result."""

    @property
    def path(self) -> Path:
        """The report's file."""
        return self.folder / REPORT

    @property
    def model(self) -> Path:
        """The file with the graph."""
        return self.folder / MODEL

    @property
    def tuned(self) -> Path | None:
        """The file with what `tune` found, or what is there instead of it; None: nothing is."""
        path = self.folder / TUNED
        return path if os.path.lexists(path) else None


def ship_report(folder: str | os.PathLike[str]) -> ShipReport | None:
    """Return what the report in a folder says, or None where `deploykit ship` wrote none there.

    FileError, GraphError: there is a file of that name, but it is damaged.
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
