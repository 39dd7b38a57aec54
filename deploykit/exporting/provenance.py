"""The model that a version was exported from, as the version itself states it."""

from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.core.display.documents import converted
from deploykit.transforms.core.errors import Error
from deploykit.transforms.core.files.reading import read_json, sha256_of

PROVENANCE = "assets.extra/deploykit.json"


@dataclass(frozen=True)
class _File:
    """What is read of a file."""

    sha256: str = ""


@dataclass(frozen=True)
class _Provenance:
    """What is read of a version."""

    source: _File
    saved_model: _File


def exported_from(folder: Path) -> str:
    """Return the SHA-256 of the model that a version folder was exported from.

    An empty string: it is not known, or `saved_model.pb` was replaced since.
    """
    try:
        found = converted(read_json(folder / PROVENANCE, "description of a version"), _Provenance)
        written = sha256_of(folder / "saved_model.pb")
    except Error:
        return ""
    return found.source.sha256 if found.saved_model.sha256 == written else ""
