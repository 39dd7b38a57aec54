"""Cached results of stages, stored in the folder under a digest of all their dependencies."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from deploykit.data.data import is_arrays
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import path_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipped import FOLDER, Outcome, StageResult
from deploykit.storage.arrays import load_forms
from deploykit.storage.files import write
from deploykit.storage.resume_file import digest, pieces
from deploykit.storage.visible_files import visible_files
from deploykit.transforms.common.documents import Written, converted, document, head
from deploykit.transforms.common.errors import Error
from deploykit.transforms.untrusted.files import read_json
from deploykit.verification.samples import Dataset

KIND = "stage"
READ_WHOLE = 1 << 30
"""Data up to this size is identified by content, larger data by names, sizes and mtimes."""
_LONGEST = 1e9  # seconds
_PIECE = 1 << 20


@dataclass(frozen=True)
class _Stored:
    """The result of a stage in its file."""

    HEAD: ClassVar = head(KIND)

    stage: str
    key: str
    full_key: str
    """As `full_key` returns it."""
    seconds: Annotated[float, Meta(ge=0.0, le=_LONGEST), Written(digits=2)]
    outcome: Outcome
    files: dict[str, str]
    """SHA-256 by path."""


@dataclass
class StageCache:
    """The cached stage results of a folder."""

    folder: Path

    @property
    def place(self) -> Path:
        """Folder of the result files."""
        return self.folder / FOLDER

    def lookup(
        self, stage: str, key: str, inputs: Mapping[str, Any] | None = None
    ) -> StageResult | None:
        """Return the result for the same inputs, or None if it is missing or its files changed.

        `inputs` are digests of the current inputs by option; only those that the stage used count.
        """
        stored = self._stored(stage)
        if stored is None or stored.key != key:
            return None
        if stored.full_key != full_key(key, stored.outcome.used, inputs or {}):
            return None
        paths = {self.folder / name: sha256 for name, sha256 in stored.files.items()}
        if any(not p.exists() or digest_of_path(p) != sha256 for p, sha256 in paths.items()):
            return None
        return StageResult(stage, stored.outcome, stored.seconds, kept=True, files=stored.files,
                           key=stored.full_key)  # fmt: skip

    def seconds(self, stage: str) -> float | None:
        """Return the duration of the stage's last run here in seconds; None if unknown."""
        stored = self._stored(stage)
        return None if stored is None else stored.seconds

    def keep(
        self, key: str, result: StageResult, inputs: Mapping[str, Any] | None = None
    ) -> StageResult:
        """Write the result of a stage, and return it as `lookup` will, but for `kept`."""
        files = {name: digest_of_path(self.folder / name) for name in result.outcome.files}
        full = full_key(key, result.outcome.used, inputs or {})
        stored = _Stored(
            stage=result.stage, key=key, full_key=full, seconds=result.seconds,
            outcome=result.outcome, files=files,
        )  # fmt: skip
        plain = document(stored)
        text = json.dumps(plain, indent=1, allow_nan=False)
        write(self._path(result.stage), [f"{text}\n".encode()], force=True)
        outcome = converted(plain["outcome"], Outcome)  # an infinite end of an interval is null
        return replace(result, outcome=outcome, files=files, key=full)

    def forget(self, stages: Iterable[str]) -> None:
        """Delete the results of stages, so that they run again."""
        for stage in stages:
            self._path(stage).unlink(missing_ok=True)

    def _path(self, stage: str) -> Path:
        return self.place / f"{stage}.json"

    def _stored(self, stage: str) -> _Stored | None:
        try:
            plain = read_json(self._path(stage), "result of a stage")
            stored = converted(plain, _Stored)
        except Error:
            return None
        return stored if plain.items() >= _Stored.HEAD.items() else None


def full_key(key: str, used: Iterable[str], inputs: Mapping[str, Any]) -> str:
    """Return the key of a stage extended by the inputs that its run turned out to use."""
    facts = {name: inputs.get(name) for name in used}
    if not facts:
        return key
    return digest([key.encode(), json.dumps(facts, sort_keys=True, default=str).encode()])


def inputs_of(source: ModelSource, how: ShipOptions) -> dict[str, Any]:
    """Return digests of the model and of each option.

    `evaluation_form` contains names, dtypes and shapes of the evaluation data: a model's speed
    depends on nothing else of it.
    """
    results = {field_.name: digest_of(getattr(how, field_.name)) for field_ in fields(how)}
    stated = asdict(replace(source, model=None))
    del stated["model"]
    paths = path_of(source)
    results["model"] = digest_of(paths[0]) if paths else source.model.sha256
    results["evaluation_form"] = _form(how.evaluation)
    return results | {"source": {**stated, "graph": digest_of(stated["graph"])}}


def _form(data: Any) -> Any:
    """Return names, dtypes and shapes of samples in arrays; {} for other files."""
    if data is None:
        return None
    forms: Mapping[str, tuple[Any, tuple[int, ...]]] = {}
    if isinstance(data, Dataset):
        arrays = {name: np.asarray(item) for name, item in data.arrays.items()}
        forms = {name: (item.dtype, item.shape) for name, item in arrays.items()}
    elif is_arrays(data):
        try:
            forms = load_forms(data)
        except Error:
            return "unreadable"
    return {name: [str(dtype), *shape[1:]] for name, (dtype, shape) in forms.items()}


def digest_of(given: Any) -> Any:
    """Return the value of an option for a key; paths and datasets are replaced by digests."""
    if isinstance(given, os.PathLike) or (isinstance(given, str) and _is_path(given)):
        return digest_of_path(Path(given))
    if isinstance(given, Dataset):
        beside = {"labels ": given.labels, "groups ": given.groups}
        known = {name: array for name, array in beside.items() if array is not None}
        return digest(pieces({**given.arrays, **known}))
    if isinstance(given, list | tuple):
        return [digest_of(item) for item in given]
    return given


def digest_of_path(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder and their names.

    Of what is not a regular file, such as a pipe or a broken link, only the name counts.
    """
    sizes = sizes_of(path)
    whole = sum(sizes.values()) <= READ_WHOLE

    def parts() -> Iterator[bytes]:
        for file, size in sizes.items():
            yield repr(
                (str(file.relative_to(path)) if path.is_dir() else file.suffix, size)
            ).encode()
            if os.path.isfile(file) and not whole:
                yield str(file.stat().st_mtime_ns).encode()
            elif os.path.isfile(file):
                with file.open("rb") as content:
                    yield from iter(lambda: content.read(_PIECE), b"")

    return digest(parts())


def sizes_of(path: Path) -> dict[Path, int]:
    """Return the files of a path and their sizes in bytes; 0 for what is not a regular file."""
    return {f: f.stat().st_size if os.path.isfile(f) else 0 for f in files_of(path)}


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files of a path; `DIR/NAME` stands for the TFRecords of one name in a folder."""
    if path.is_dir():
        for _, _, files in visible_files(str(path)):
            yield from (Path(entry.path) for entry in files if not os.path.isdir(entry))
    elif path.exists():
        yield path
    else:
        yield from sorted(item for item in path.parent.glob(f"{path.name}*") if item.is_file())


def _is_path(text: str) -> bool:
    try:
        return bool(text) and (os.path.exists(text) or any(files_of(Path(text))))
    except (OSError, ValueError):
        return False
