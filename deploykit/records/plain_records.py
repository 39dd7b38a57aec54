"""TFRecords that have no index of deploykit: their files, and the features of their Examples."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

from deploykit.records.examples import Feature
from deploykit.records.index import RecordsMetadata
from deploykit.storage.image_files import is_image_content
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.ir.tfrecord import (
    count_records,
    is_framed,
    is_gzip,
    read_all_records,
)

_NAME = re.compile(r"\.tfrec(ords?)?([.-]\d+(-of-\d+)?)?(\.gz)?$")
_SIMILAR = re.compile(r"tfrec|-\d{5,9}-of-\d{5,9}(\.gz)?$")
_CHECKPOINT = re.compile(r"\.data-\d+-of-\d+$")
_OTHER_END = re.compile(  # of files whose names may be similar
    r"\.(idx|index|crc|md5|sha1|sha256|txt|md|log|lock|jsonl?|ndjson|csv|tsv|parquet|pq|arrow|feather"
    r"|np[yz]|h5|hdf5|keras|pb|pbtxt|tflite|onnx|bin|pth?|safetensors|msgpack|gguf|pkl|ya?ml|toml|xml"
    r"|html|py|ipynb|sh|jpe?g|png|gif|bmp|webp|tiff?|zip|tar|tgz|xz|bz2|zst|bak|old|orig|tmp|part|swp)"
    r"(\.gz)?$|~$"
)
LOOKED_AT = 64
"""The number of records from which the features follow."""
_TEXT = re.compile(rb"[\t\n\r -~]*")
_List = tuple[str, Sequence[Any]]  # the dtype and the values of a feature in a record
_LISTS = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}


def is_records(path: str | Path) -> bool:
    """Return whether a file is named like TFRecords, such as `v1.0-train-00000-of-00002`."""
    name = Path(path).name.lower()
    return (
        _SIMILAR.search(name) is not None
        and _CHECKPOINT.search(name) is None
        and _OTHER_END.search(name) is None
    )


def record_names(folder: Path) -> list[Path]:
    """Return the visible files in a folder that are named like TFRecords, in order."""
    return sorted(
        path
        for path in folder.iterdir()
        if is_records(path) and not path.name.startswith(".") and path.is_file()
    )


def records_to_read(folder: Path) -> list[Path]:
    """Return the TFRecord files in a folder; without their end, names decide with the content."""
    return [
        path for path in record_names(folder) if _NAME.search(path.name.lower()) or is_framed(path)
    ]


@dataclass(frozen=True)
class PlainRecords:
    """The content of TFRecord files, as far as their first Examples state it."""

    files: tuple[Path, ...]
    features: Mapping[str, Feature]
    """The features that any of these Examples has. Records that lack one are invalid rows."""
    optional: frozenset[str]
    """The features that some of these Examples lack."""
    usual: Mapping[str, "UsualSize"]
    counts: tuple[int, ...]
    """The number of records in each file, with a truncated last one: reading it reports that."""
    compression: str

    def facts(self) -> RecordsMetadata:
        """Return the fields of a document that describe the records."""
        counted = zip(self.files, self.counts, strict=True)
        return {
            "shards": [
                {"file": file.name, "records": count, "bytes": file.stat().st_size}
                for file, count in counted
            ],
            "compression": self.compression,
            "records": sum(self.counts),
            "optional": sorted(self.optional),
        }


@dataclass(frozen=True)
class UsualSize:
    """The size of a feature in more than half of the records that were looked at, or None."""

    values: int | None = None
    """The number of values in its list."""
    bytes: int | None = None
    """The size of its only value, if that is bytes and no text: it may be a raw array."""


def plain_records(source: str, files: Sequence[Path], sought: Collection[str] = ()) -> PlainRecords:
    """Return the content of files.

    The features follow from 64 records, and from the first later one with a `sought` feature if
    these have none of them.

    FileError: a file cannot be read. VerificationError: a length is damaged; the message names the
    file and the byte. GraphError: the records are not Examples, or only some files are compressed.
    """
    packed = {is_gzip(file) for file in files}
    if len(packed) > 1:
        raise GraphError("records-partly-compressed", source=source)
    is_packed = packed == {True}
    counts = tuple(count_records(file, is_packed) for file in files)
    records = _in_order(files, is_packed, counts)
    lists, others = [], 0
    for record in islice(records, LOOKED_AT):
        found = lists_of(record)
        lists += [found] if found else []
        others += found is None
    if others and not lists:
        raise GraphError("not-an-example", source=next(compress(files, counts)))
    if sought and not any(name in each for each in lists for name in sought):
        later = (lists_of(record) or {} for record in records)
        lists += islice((each for each in later if not each.keys().isdisjoint(sought)), 1)
    values: dict[str, list[_List]] = {}
    for each in lists:
        for name, listed in each.items():
            values.setdefault(name, []).append(listed)
    return PlainRecords(
        tuple(files),
        {name: _feature(values[name]) for name in sorted(values)},
        frozenset(name for name, found in values.items() if len(found) < len(lists)),
        {name: _usual_size(values[name]) for name in values},
        counts,
        "GZIP" if is_packed else "",
    )


def fitted(
    feature: Feature, usual: UsualSize, type_: str, shape: tuple[int, ...] | None
) -> Feature:
    """Return a feature of plain records as an input takes it.

    A list of as many values as the input is an array of its shape, and so are bytes of its size,
    but not those of one value: a text of 4 digits has the size of a float32. What most records have
    decides, so that one other record is an invalid row and not a reason to refuse all. Lists of
    several lengths have the size that the input takes, and records of others are invalid rows.

    Args:
        feature: the feature as the records state it.
        usual: the size that it has in most records.
        type_: the dtype of the input; empty: unknown.
        shape: the shape of the input with the batch axis; None: unknown.
    """
    if shape is None or feature.content:
        return feature
    row = shape[1:]
    is_known = min(row, default=1) > 0
    if feature.dtype == "string" and type_ not in ("", "string"):
        is_array = is_known and math.prod(row) > 1
        wanted = math.prod(row) * numpy_type(type_).itemsize if is_array else None
        is_raw = wanted is not None and usual.bytes == wanted
        return Feature(type_, row, "raw") if is_raw else feature
    if is_known:
        is_taken = math.prod(row) == usual.values or None in feature.shape
        return replace(feature, shape=row) if is_taken else feature
    return replace(feature, shape=(None,)) if len(row) == 1 and row[0] < 0 else feature


def _in_order(files: Sequence[Path], is_packed: bool, counts: Sequence[int]) -> Iterator[bytes]:
    """Yield the records of files that can be read; the others are invalid rows."""
    for file, count in zip(files, counts, strict=True):
        for record in read_all_records(file, is_packed, count) if count else ():
            if isinstance(record, bytes):
                yield record


def lists_of(record: bytes) -> dict[str, _List] | None:
    """Return the dtype and the values of each feature of an Example; None: it is none."""
    from google.protobuf import message

    from deploykit.transforms.ir.protos import Example

    try:
        given = Example.FromString(record).features.feature
    except message.DecodeError:
        return None
    kinds = {name: item.WhichOneof("kind") for name, item in given.items()}
    return {
        name: (_LISTS[kind], getattr(given[name], kind).value)
        for name, kind in kinds.items()
        if kind
    }


def _feature(values: Sequence[_List]) -> Feature:
    """Return the type of some lists: the dtype of most that have values, and a shape that fits all.

    Without a value, a list that has one value elsewhere lacks it.
    """
    full = [dtype for dtype, listed in values if listed]
    dtype = Counter(full or (dtype for dtype, _ in values)).most_common(1)[0][0]
    lengths = {len(listed) for _, listed in values}
    lengths = {1} if lengths == {0, 1} else lengths
    shape: tuple[int | None, ...] = () if lengths == {1} else (*lengths,)
    if len(lengths) > 1:
        shape = (None,)
    if dtype == "string" and shape == () and _most(map(is_image_content, _only_bytes(values))):
        return Feature("string", (), "image")
    return Feature(dtype, shape)


def _usual_size(values: Sequence[_List]) -> UsualSize:
    """Return the size that most of some lists have."""
    contents = _only_bytes(values)
    is_text = not _most(not _TEXT.fullmatch(content) for content in contents)
    sizes = [] if is_text else [len(content) for content in contents]
    return UsualSize(_usual([len(listed) for _, listed in values]), _usual(sizes))


def _only_bytes(values: Sequence[_List]) -> list[bytes]:
    return [listed[0] for dtype, listed in values if dtype == "string" and len(listed) == 1]


def _usual(sizes: Sequence[int]) -> int | None:
    size, count = Counter(sizes).most_common(1)[0] if sizes else (0, 0)
    return size if 2 * count > len(sizes) else None


def _most(are: Iterable[bool]) -> bool:
    listed = list(are)
    return 2 * sum(listed) > len(listed)
