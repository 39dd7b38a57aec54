"""Intermediate results of a long job, stored in a file next to its output until it finishes."""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploykit.storage.files import load_document, write
from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.ir.tensors import Array

logger = logging.getLogger("deploykit")


class State:
    """Results by name, as plain data, valid only for one model, machine and set of options."""

    def __init__(
        self, path: str | os.PathLike[str] | None, kind: str, bound: Mapping[str, Any]
    ) -> None:
        """Read the results of an interrupted run if it had the same `bound`.

        Without a path, nothing is stored.
        """
        self.path = None if path is None else Path(path)
        self._kind = kind
        self._bound = json.loads(json.dumps(bound))
        self.stored: dict[str, Any] = {} if self.path is None else self._read(self.path)

    def keep(self, name: str, value: Any) -> None:
        """Add a result and write the file. FileError: it cannot be written."""
        self.stored[name] = value
        if self.path is not None:
            document = {"format": FORMAT, "kind": self._kind, "bound": self._bound}
            text = json.dumps(document | {"found": self.stored}, indent=1)
            write(self.path, [text.encode()], force=True)

    def forget(self) -> None:
        """Remove the file when the job is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            document = load_document(path, self._kind)
            result, bound = dict(document["found"]), document["bound"]
        except FileError:
            return {}
        except (Error, KeyError, TypeError, ValueError) as error:
            logger.info("%s: cannot read this resume file (%s), so the work restarts", path, error)
            return {}
        if bound != self._bound:
            logger.info("%s: this resume file belongs to other inputs, options or another model, "
                        "machine or environment, so the work restarts", path)  # fmt: skip
            return {}
        return result


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of the concatenated parts, in hexadecimal."""
    result = hashlib.sha256()
    for part in parts:
        result.update(part)
    return result.hexdigest()


def pieces(data: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield the names, dtypes, shapes and values of arrays, for a digest."""
    for name, array in sorted(data.items()):
        yield repr((name, array.dtype.str, array.shape)).encode()
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
