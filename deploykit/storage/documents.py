"""JSON documents that deploykit writes: each says its kind and its format."""

import os
from typing import Any

from deploykit.transforms.core.display.documents import FORMAT
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import read_json


def load_document(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a JSON document of deploykit of one kind, such as `benchmark` or `tuned`."""
    document: dict[str, Any] = read_json(path, f"{kind} document")
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise GraphError("document-kind", source=path, kind=kind, got=found)
    if document.get("format") != FORMAT:
        raise GraphError(
            "format-unsupported", source=path, got=document.get("format"), known=FORMAT
        )
    return document
