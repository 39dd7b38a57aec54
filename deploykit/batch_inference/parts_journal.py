"""Which parts are finished, a line each, kept beside them until all are.

Unlike `storage.resume_file.State`, what is kept is appended, so that a million parts take a million
lines; a line that was cut short by a death is no line.
"""

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.batch_inference.infer_task import PartDone
from deploykit.storage.files import write
from deploykit.transforms.core.display.documents import FORMAT, converted, document, head
from deploykit.transforms.core.errors import GraphError, cannot_be
from deploykit.transforms.core.files.reading import lines

KIND = "infer parts"
_BAD_ROW = ("file", "row", "reason")


@dataclass(frozen=True)
class _MadeOf:
    """What is read of what decides the bytes of results."""

    model: dict[str, Any]
    data: dict[str, Any]
    options: dict[str, Any]
    parts: int


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
        first = next(whole, None)
        if not isinstance(first, dict) or first.get("kind") != KIND:
            raise GraphError("journal-invalid", source=self.path)
        if first.get("format") != FORMAT:
            raise GraphError(
                "format-not-resumable", source=self.path, got=first.get("format"), known=FORMAT
            )
        try:
            made_of = vars(converted(first.get("made_of"), _MadeOf))
        except GraphError:
            raise GraphError("journal-parts-missing", source=self.path) from None
        found = {}
        for line in whole:
            with contextlib.suppress(GraphError, KeyError, TypeError, ValueError):
                bad = [dict(zip(_BAD_ROW, each, strict=True)) for each in line["bad"]]
                done = converted({**line, "bad": bad}, PartDone)
                found[done.number] = done
        return made_of, found

    def begin(self, made_of: Mapping[str, Any], done: Iterable[PartDone] = ()) -> None:
        """Write the journal anew. FileError: it cannot be written."""
        first = {**head(KIND), "made_of": made_of}
        content = [_line(first), *map(_part_line, done)]
        self._size = write(self.path, content, force=True)

    def add(self, done: PartDone) -> None:
        """Take a part, from any thread; it is on the disk then. FileError: it cannot be written."""
        line = _part_line(done)
        with self._adding:
            try:
                with open(self.path, "r+b", buffering=0) as file:
                    file.seek(self._size)
                    _write_whole(file, line)
                    os.fsync(file.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self._size)
                raise cannot_be("written", self.path, error) from None
            self._size += len(line)

    def remove(self) -> None:
        """Remove it, as all is done."""
        self.path.unlink(missing_ok=True)


def _write_whole(file: Any, content: bytes) -> None:
    while content:
        content = content[file.write(content) :]


def _part_line(done: PartDone) -> bytes:
    return _line({**document(done), "bad": [[*vars(each).values()] for each in done.bad]})


def _line(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
