"""What a long job has found so far, kept in a file beside its output until the job is done."""

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
    """Findings by name, as plain data. They hold for one model, machine and question alone."""

    def __init__(
        self, path: str | os.PathLike[str] | None, kind: str, bound: Mapping[str, Any]
    ) -> None:
        """Read what an interrupted run has kept, unless `bound` says that it asked something else.

        Without a path, nothing is kept.
        """
        self.path = None if path is None else Path(path)
        self._kind = kind
        self._bound = json.loads(json.dumps(bound))
        self.found: dict[str, Any] = {} if self.path is None else self._read(self.path)

    def keep(self, name: str, value: Any) -> None:
        """Take a finding, and write the file. FileError: it cannot be written."""
        self.found[name] = value
        if self.path is not None:
            document = {"format": FORMAT, "kind": self._kind, "bound": self._bound}
            text = json.dumps(document | {"found": self.found}, indent=1)
            write(self.path, [text.encode()], force=True)

    def forget(self) -> None:
        """Remove the file: the job is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            document = load_document(path, self._kind)
            result, bound = dict(document["found"]), document["bound"]
        except FileError:
            return {}
        except (Error, KeyError, TypeError, ValueError) as error:
            logger.info("%s: this state cannot be read (%s), so the work begins anew", path, error)
            return {}
        if bound != self._bound:
            logger.info("%s: this state is of other inputs or options, another model, machine or "
                        "environment, so the work begins anew", path)  # fmt: skip
            return {}
        return result


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in parts."""
    result = hashlib.sha256()
    for part in parts:
        result.update(part)
    return result.hexdigest()


def pieces(data: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield names, types, shapes and values of arrays, for a digest."""
    for name, array in sorted(data.items()):
        yield repr((name, array.dtype.str, array.shape)).encode()
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
