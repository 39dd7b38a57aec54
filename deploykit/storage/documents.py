"""JSON documents that deploykit writes: each says its kind and its format."""

import json
import os
from pathlib import Path
from typing import Any

from deploykit.transforms.core.errors import FileError, GraphError

FORMAT = 1


def load_document(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a JSON document of deploykit of one kind, such as `benchmark` or `tuned`."""
    try:
        document: dict[str, Any] = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise GraphError(f"{path}: this is no JSON, expected a {kind} document") from None
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise GraphError(f"{path}: this is no {kind} document (its kind is {found!r})")
    if document.get("format") != FORMAT:
        raise GraphError(
            f"{path}: its format is {document.get('format')!r}, but this deploykit reads {FORMAT}"
        )
    return document
