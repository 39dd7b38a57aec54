"""The index file of a folder of records: features, counts, and the SHA-256 of each shard."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict, cast

from msgspec import Meta

from deploykit.records.examples import Feature
from deploykit.transforms.common.documents import IfSet, Written, converted, document, written
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.untrusted.files import read_bytes, read_json

FORMAT = 1
END = ".index.json"

_NUMBERED = r"(?P<name>.+)-(?P<number>\d{5,})-of-(?P<count>\d{5,})\."
_SHARD = r"\A[^/\n]+-\d{5,}-of-\d{5,}\.tfrecord\Z"
"""The pattern of shard names, which have no folder: shards are next to their index."""


@dataclass(frozen=True)
class Shard:
    """One file of records; `bytes` and `sha256` refer to the file on disk, before decompression."""

    file: Annotated[str, Meta(pattern=_SHARD)]
    records: Annotated[int, Meta(ge=0)]
    bytes: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


def by_name(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return features sorted by name."""
    return dict(sorted(features.items()))


class RecordsMetadata(TypedDict, total=False):
    """The fields of an index that `--json` prints."""

    name: str
    features: dict[str, Any]
    shards: list[dict[str, Any]]
    compression: str
    classes: list[str]
    records: int
    optional: list[str]  # without an index: features that some of the first records lack


@dataclass(frozen=True)
class Index:
    """The index of a folder of records."""

    HEAD: ClassVar = {"format": FORMAT}

    name: str
    features: Annotated[Mapping[str, Feature], Written(by=by_name)]
    shards: tuple[Shard, ...]
    compression: Annotated[str, Meta(pattern=r"\A(GZIP)?\Z")] = ""
    classes: IfSet[tuple[str, ...]] = ()

    @property
    @written()
    def records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    @written()
    def bytes(self) -> int:
        """The size of all shards in bytes."""
        return sum(shard.bytes for shard in self.shards)

    def files(self, folder: str | Path) -> list[str]:
        """Return the paths of the shards, in order."""
        return [str(Path(folder) / shard.file) for shard in self.shards]

    def facts(self) -> RecordsMetadata:
        """Return the fields of the document that describe the records."""
        shown = {k: v for k, v in document(self).items() if k not in ("format", "bytes")}
        return cast("RecordsMetadata", shown)

    def text(self) -> str:
        """Return the document as JSON text."""
        return json.dumps(document(self), indent=1) + "\n"


def shard_name(name: str, number: int, count: int, end: str = "tfrecord") -> str:
    """Return the file name of a shard: `train-00003-of-00010.tfrecord`."""
    return f"{name}-{number:05}-of-{count:05}.{end}"


def shard_files(folder: Path, name: str, ends: Sequence[str] = ("tfrecord",)) -> list[Path]:
    """Return the files in a folder that are named like shards of this name, with any count."""
    shard = re.compile(f"{_NUMBERED}({'|'.join(ends)})")
    matches = ((path, shard.fullmatch(path.name)) for path in sorted(folder.glob("*-of-*")))
    return [path for path, match in matches if match and match["name"] == name]


def index_path(folder: str | Path, name: str) -> Path:
    """Return the path of the index of records with a name."""
    return Path(folder) / f"{name}{END}"


def find_index(folder: str | Path, name: str | None = None) -> Path | None:
    """Return the path of a folder's index, or None if there is none.

    FileError: the folder does not exist. GraphError: it has several indexes, and no `name` is
    given.
    """
    folder = Path(folder)
    if not folder.is_dir():
        missing = "it is a file" if folder.exists() else "No such file or directory"
        raise FileError("records-folder-missing", source=folder, reason=missing)
    if name is not None:
        path = index_path(folder, name)
        return path if path.exists() else None
    names = index_names(folder)
    if len(names) > 1:
        raise GraphError(
            "same-names", source=folder, what="there are records", names=names, how=" with --name"
        )
    return index_path(folder, names[0]) if names else None


def index_names(folder: str | Path) -> list[str]:
    """Return the names of the records in a folder that have an index. FileError: one is unreadable.

    Other programs write indexes of the same names, such as `model.safetensors.index.json`.
    """
    paths = sorted(path for path in Path(folder).glob(f"*{END}") if not path.name.startswith("."))
    return [path.name.removesuffix(END) for path in paths if not _is_foreign(path)]


def _is_foreign(path: Path) -> bool:
    """Return whether an index is that of another program; a damaged one is not."""
    try:
        plain = read_json(path, "index of records")
    except GraphError:
        return False
    return isinstance(plain, dict) and "format" not in plain


def index_of(file: Path) -> tuple[str, Index, Shard] | None:
    """Return the index that describes one file of records, its name and entry; None: there is none.

    GraphError: the index that mentions the file is damaged.
    """
    for name in index_names(file.parent):
        try:
            index = load_index(file.parent, name)
        except GraphError:
            content = read_bytes(index_path(file.parent, name))
            # JSON stores non-ASCII characters either as they are or escaped.
            spellings = (json.dumps(file.name, ensure_ascii=e)[1:-1] for e in (False, True))
            if any(os.fsencode(text) in content for text in spellings):
                raise
            continue
        for shard in index.shards:
            if shard.file == file.name:
                return name, index, shard
    return None


def one_set(path: str | Path) -> tuple[Path, str] | None:
    """Return folder and name of a path `DIR/NAME` or `DIR/NAME.index.json` of records, or None."""
    place = Path(path)
    name = place.name.removesuffix(END)
    index = index_path(place.parent, name)
    if os.path.isdir(place) or not os.path.isfile(index):
        return None
    if os.path.isfile(place) and place != index and _is_foreign(index):
        return None
    return place.parent, name


def load_index(folder: str | Path, name: str | None = None) -> Index:
    """Read the index of a folder of records; `name` selects one of several.

    FileError: the index is missing. GraphError: it is damaged, or there are several.
    """
    path = find_index(folder, name)
    if path is None:
        expected = f"{name or 'NAME'}{END}"
        raise FileError("records-index-missing", source=folder, name=expected)
    try:
        return _parsed(read_json(path, "index of records"))
    except GraphError as error:
        raise error if str(path) in str(error) else error.within(path) from None


def _parsed(plain: Any) -> Index:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise GraphError("not-records-index", format=FORMAT)
    if plain.get("kind") == "infer" and "features" not in plain:
        raise GraphError("results-not-records")
    index = converted(plain, Index)
    for name, feature in index.features.items():
        feature.check(name)
    if (index.records, index.bytes) != (plain.get("records"), plain.get("bytes")):
        raise GraphError("index-invalid", field="the sum of records or bytes")
    return index
