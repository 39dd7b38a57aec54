"""The index of results with the SHA-256 of each part, and the journal of finished parts."""

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.batch_inference.formats.binary_formats import record_features
from deploykit.batch_inference.formats.part_table import FILE, ROW
from deploykit.batch_inference.infer_task import PartDone
from deploykit.records.examples import Feature
from deploykit.records.index import END
from deploykit.storage.files import write
from deploykit.storage.resume_file import digest
from deploykit.transforms.common.documents import FORMAT, Hidden, converted, document, head
from deploykit.transforms.common.errors import FileError, GraphError, cannot_be
from deploykit.transforms.untrusted.files import MAX_BYTES, lines, read_json

JOURNAL_KIND = "infer parts"
_BAD_ROW = ("file", "row", "reason")


@dataclass(frozen=True)
class MadeOf:
    """The model, data and options that determine the bytes of the results."""

    model: Mapping[str, Any]
    """The `source` of the model as text, and its `sha256`."""
    data: Mapping[str, Any]
    """The `path`, the `kind` and a `fingerprint` of the data."""
    options: Mapping[str, Any]
    """The options by name, including the `format`."""
    parts: int
    files: Hidden[Sequence[str]] = ()
    """The files of the data, which results never replace."""


class PartsJournal:
    """A file with a header that describes the run, followed by a line for each finished part."""

    def __init__(self, path: Path) -> None:
        """Store the path of the journal."""
        self.path = path
        self._size = 0
        self._adding = threading.Lock()

    def read(self) -> tuple[dict[str, Any], dict[int, PartDone]]:
        """Return the header, and the finished parts by number.

        FileError: the journal cannot be read. GraphError: its header is invalid.
        """
        whole = (_parsed(line) for line in lines(self.path, "journal") if line.endswith(b"\n"))
        first = next(whole, None)
        if not isinstance(first, dict) or first.get("kind") != JOURNAL_KIND:
            raise GraphError("journal-invalid", source=self.path)
        if first.get("format") != FORMAT:
            raise GraphError(
                "format-not-resumable", source=self.path, got=first.get("format"), known=FORMAT
            )
        try:
            made_of = document(converted(first.get("made_of"), MadeOf))
        except GraphError:
            raise GraphError("journal-parts-missing", source=self.path) from None
        results = {}
        for line in whole:
            with contextlib.suppress(GraphError, KeyError, TypeError, ValueError):
                bad = [dict(zip(_BAD_ROW, item, strict=True)) for item in line["bad"]]
                done = converted({**line, "bad": bad}, PartDone)
                results[done.number] = done
        return made_of, results

    def begin(self, made_of: Mapping[str, Any], done: Iterable[PartDone] = ()) -> None:
        """Write a new journal. FileError: it cannot be written."""
        first = {**head(JOURNAL_KIND), "made_of": made_of}
        content = [_line(first), *map(_part_line, done)]
        self._size = write(self.path, content, force=True)

    def add(self, done: PartDone) -> None:
        """Append a part and sync it to the disk; thread-safe. FileError: it cannot be written."""
        line = _part_line(done)
        with self._adding:
            try:
                with open(self.path, "r+b") as file:
                    file.seek(self._size)
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self._size)
                raise cannot_be("written", self.path, error) from None
            self._size += len(line)

    def remove(self) -> None:
        """Remove the journal of a finished run."""
        self.path.unlink(missing_ok=True)


def _part_line(done: PartDone) -> bytes:
    return _line({**document(done), "bad": [[*vars(item).values()] for item in done.bad]})


def _line(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


KIND = "infer"


def index_document(
    name: str, made_of: Mapping[str, Any], parts: Sequence[PartDone]
) -> dict[str, Any]:
    """Return the index of all parts in order; it does not depend on workers or time.

    For TFRecords, it is also a valid index of `deploykit records`.
    """
    rows, columns = sum(part.rows for part in parts), document(merged(parts))
    skipped = [bad for part in parts for bad in part.bad]
    content = digest(part.data_sha256.encode() for part in parts)
    data = {**made_of["data"], "records": rows + len(skipped), "sha256": content}
    results = {
        **head(KIND),
        "name": name,
        "model": dict(made_of["model"]),
        "data": data,
        "options": dict(made_of["options"]),
        "columns": columns,
        "rows": rows,
        "bytes": sum(part.bytes for part in parts),
        "skipped": document(skipped),
    }
    if made_of["options"]["format"] == "tfrecord":
        full = [part.columns for part in parts if part.rows]
        common = {n: v for n, v in merged(parts).items() if all(n in known for known in full)}
        features = document(record_features(common))
        results |= {"records": rows, "compression": "", "features": features}
    shards = [
        {"file": part.file, "records": part.rows, "bytes": part.bytes, "sha256": part.sha256}
        for part in parts
    ]
    read = [
        {"data_sha256": part.data_sha256, "skipped": len(part.bad)}
        | ({} if document(part.columns) == columns else {"columns": document(part.columns)})
        for part in parts
    ]
    return {**results, "shards": shards, "parts": read}


def read_index(path: Path) -> tuple[dict[str, Any], dict[int, PartDone], dict[str, Any]]:
    """Return the description of a run, its parts by number, and the whole index.

    FileError: the index cannot be read, or is one of records, which results never replace.
    GraphError: it is damaged, or of another kind.
    """
    plain = read_json(path, "index of results", MAX_BYTES)
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        if isinstance(plain, dict) and "shards" in plain:
            raise FileError("records-not-results", source=path)
        raise GraphError("not-results-index", source=path)
    if plain.get("format") != FORMAT:
        raise GraphError("format-unsupported", source=path, got=plain.get("format"), known=FORMAT)
    try:
        parts = _parts_of(plain)
        made_of = {name: plain[name] for name in ("model", "data", "options")}
        made_of["parts"] = len(parts)
        name = path.name.removesuffix(END)
        if index_document(name, made_of, list(parts.values())) == plain:
            return made_of, parts, plain
    except (KeyError, TypeError, ValueError, AttributeError, GraphError):
        pass  # a value is missing or has a wrong type
    raise GraphError("index-damaged", source=path)


def merged(parts: Iterable[PartDone]) -> dict[str, Feature]:
    """Return the columns of all parts; a size that differs between parts is None.

    Parts without rows only count if all are.
    """
    features: dict[str, Feature] = {}
    parts = list(parts)
    full = [part for part in parts if part.rows] or parts
    for part in full:
        for name, item in part.columns.items():
            features[name] = _common(features.get(name, item), item)
    return features


def _common(first: Feature, second: Feature) -> Feature:
    if len(first.shape) != len(second.shape):
        return Feature(first.dtype, (None,))
    sizes = zip(first.shape, second.shape, strict=True)
    return Feature(first.dtype, tuple(a if a == b else None for a, b in sizes))


def _parts_of(plain: Mapping[str, Any]) -> dict[int, PartDone]:
    """Return the parts of an index. KeyError, TypeError, GraphError: it is damaged."""
    result, start = {}, 0
    if not {FILE, ROW} <= plain["columns"].keys():
        raise KeyError
    for number, (shard, read) in enumerate(zip(plain["shards"], plain["parts"], strict=True)):
        stop = start + read["skipped"]
        part = {
            "number": number,
            "file": shard["file"],
            "rows": shard["records"],
            "bytes": shard["bytes"],
            "sha256": shard["sha256"],
            "data_sha256": read["data_sha256"],
            "bad": plain["skipped"][start:stop],
            "columns": read.get("columns", plain["columns"]),
        }
        result[number], start = converted(part, PartDone), stop
    return result
