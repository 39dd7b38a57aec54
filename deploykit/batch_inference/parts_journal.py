"""Which parts are finished, a line each, kept beside them until all are.

Unlike `storage.resume_file.State`, what is kept is appended, so that a million parts take a million
lines; a line that was cut short by a death is no line.
"""

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploykit.batch_inference.infer_task import PartDone
from deploykit.batch_inference.reading.data_part import BadRow
from deploykit.records.features import Feature
from deploykit.storage.documents import FORMAT
from deploykit.storage.files import write
from deploykit.transforms.core.errors import FileError, GraphError
from deploykit.transforms.core.files.reading import lines

KIND = "infer parts"


class PartsJournal:
    """A file that begins with what the parts are made of, and goes on with those that are there."""

    def __init__(self, path: Path) -> None:
        """Name a journal."""
        self.path = path
        self._size = 0
        self._adding = threading.Lock()

    def read(self) -> tuple[dict[str, Any], dict[int, PartDone]]:
        """Return what the parts are made of, and the finished ones by their numbers.

        FileError: it cannot be read. GraphError: it does not begin as a journal does.
        """
        whole = (_parsed(line) for line in lines(self.path, "journal") if line.endswith(b"\n"))
        head = next(whole, None)
        if not isinstance(head, dict) or head.get("kind") != KIND:
            raise GraphError("journal-invalid", source=self.path)
        if head.get("format") != FORMAT:
            raise GraphError(
                "format-not-resumable", source=self.path, got=head.get("format"), known=FORMAT
            )
        if not is_made_of(head.get("made_of")):
            raise GraphError("journal-parts-missing", source=self.path)
        found = {}
        for document in whole:
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                done = part_from(document)
                found[done.number] = done
        return head["made_of"], found

    def begin(self, made_of: Mapping[str, Any], done: Iterable[PartDone] = ()) -> None:
        """Write the journal anew. FileError: it cannot be written."""
        head = {"format": FORMAT, "kind": KIND, "made_of": made_of}
        content = [_line(head), *(_line(part_document(each)) for each in done)]
        self._size = write(self.path, content, force=True)

    def add(self, done: PartDone) -> None:
        """Take a part, from any thread; it is on the disk then. FileError: it cannot be written."""
        line = _line(part_document(done))
        with self._adding:
            try:
                with open(self.path, "r+b", buffering=0) as file:
                    file.seek(self._size)
                    _write_whole(file, line)
                    os.fsync(file.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self._size)
                raise FileError(
                    "file-action-failed",
                    source=self.path,
                    action="written",
                    reason=error.strerror or error,
                ) from None
            self._size += len(line)

    def remove(self) -> None:
        """Remove it, as all is done."""
        self.path.unlink(missing_ok=True)


def is_made_of(document: Any) -> bool:
    """Say whether plain data tell what results are made of."""
    kinds = {"model": dict, "data": dict, "options": dict, "parts": int}
    return isinstance(document, dict) and all(
        isinstance(document.get(name), kind) for name, kind in kinds.items()
    )


def part_document(done: PartDone) -> dict[str, Any]:
    """Return a part as plain data."""
    columns = {name: each.document() for name, each in done.columns.items()}
    bad = [[each.file, each.row, each.reason] for each in done.bad]
    return {**vars(done), "bad": bad, "columns": columns}


def part_from(document: Any) -> PartDone:
    """Return a part of its plain data. KeyError, TypeError, ValueError: it is none."""
    bad = tuple(BadRow(str(file), int(row), str(why)) for file, row, why in document["bad"])
    return PartDone(
        number=int(document["number"]),
        file=str(document["file"]),
        rows=int(document["rows"]),
        bytes=int(document["bytes"]),
        sha256=str(document["sha256"]),
        data_sha256=str(document["data_sha256"]),
        bad=bad,
        columns=columns_from(document["columns"]),
    )


def columns_from(document: Any) -> dict[str, Feature]:
    """Return columns of their plain data. KeyError, TypeError, AttributeError: they are none."""
    return {
        name: Feature(str(each["dtype"]), tuple(each["shape"])) for name, each in document.items()
    }


def _write_whole(file: Any, content: bytes) -> None:
    while content:
        content = content[file.write(content) :]


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
