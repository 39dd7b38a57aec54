"""The model that a version was exported from, as the version itself states it."""

from collections.abc import Mapping
from pathlib import Path

from deploykit.transforms.core.errors import Error
from deploykit.transforms.core.files.reading import read_json, sha256_of

PROVENANCE = "assets.extra/deploykit.json"


def exported_from(folder: Path) -> str:
    """Return the SHA-256 of the model that a version folder was exported from.

    An empty string: it is not known, or `saved_model.pb` was replaced since.
    """
    try:
        document = read_json(folder / PROVENANCE, "description of a version")
        written = sha256_of(folder / "saved_model.pb")
    except Error:
        return ""
    if not isinstance(document, Mapping):
        return ""
    source, own = document.get("source"), document.get("saved_model")
    if not isinstance(source, Mapping) or not isinstance(own, Mapping):
        return ""
    return str(source.get("sha256", "")) if own.get("sha256") == written else ""
