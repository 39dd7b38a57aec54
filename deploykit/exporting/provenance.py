"""The provenance file of a version: the model that it was exported from."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from deploykit import __version__
from deploykit.transforms.common.documents import converted, document, head
from deploykit.transforms.common.errors import Error
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
from deploykit.transforms.untrusted.files import read_json, sha256_of

PROVENANCE = "assets.extra/deploykit.json"


@dataclass(frozen=True)
class FileDigest:
    """The SHA-256 and size of contents in bytes."""

    sha256: str = ""
    bytes: int | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of a version, as stored in the version itself."""

    HEAD: ClassVar = head("export")

    source: FileDigest
    versions: Mapping[str, str | None] = field(
        default_factory=lambda: {"deploykit": __version__, "tensorflow": version_of(TENSORFLOW)}
    )
    signatures: Mapping[str, Any] = field(default_factory=dict)
    """Signatures by name, as returned by `described`."""
    warm_up_requests: int = 0
    saved_model: FileDigest = FileDigest()

    def written(self) -> list[bytes]:
        """Return the contents of the file."""
        return [f"{json.dumps(document(self), indent=2)}\n".encode()]


def file_digest(pieces: Iterable[bytes]) -> FileDigest:
    """Return the digest of the concatenated pieces."""
    result, size = hashlib.sha256(), 0
    for piece in pieces:
        result.update(piece)
        size += len(piece)
    return FileDigest(result.hexdigest(), size)


def exported_from(folder: Path) -> str:
    """Return the SHA-256 of the model that a version folder was exported from.

    It is an empty string if it is unknown or if `saved_model.pb` was replaced since.
    """
    try:
        result = converted(read_json(folder / PROVENANCE, "description of a version"), Provenance)
        written = sha256_of(folder / "saved_model.pb")
    except Error:
        return ""
    return result.source.sha256 if result.saved_model.sha256 == written else ""
