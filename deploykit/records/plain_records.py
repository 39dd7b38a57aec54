"""TFRecords that have no index of deploykit: their files, and the features of their Examples."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from deploykit.records.examples import Feature
from deploykit.storage.image_folders import is_image_content
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.ir.tfrecord import count_records, is_gzip, read_all_records

_NAME = re.compile(r"\.tfrec(ords?)?([.-]\d+(-of-\d+)?)?(\.gz)?$", re.IGNORECASE)
_LOOKED_AT = 64  # records of which the features follow
_TEXT = re.compile(rb"[\t\n\r -~]*")
_LISTS = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}


def is_records(path: str | Path) -> bool:
    """Return whether a file has the name of TFRecords, such as `a.tfrecord-00000-of-00002`."""
    return _NAME.search(Path(path).name) is not None


def record_names(folder: Path) -> list[Path]:
    """Return the visible TFRecord files in a folder, in order."""
    return sorted(
        path
        for path in folder.iterdir()
        if is_records(path) and not path.name.startswith(".") and path.is_file()
    )


@dataclass(frozen=True)
class PlainRecords:
    """The content of TFRecord files, as far as their first Examples state it."""

    features: Mapping[str, Feature]
    sizes: Mapping[str, int]
    """The size of a feature of bytes that are no text, if all looked at have one size.

    Such bytes may be an array.
    """
    counts: tuple[int, ...]
    """The number of records in each file, with a truncated last one: reading it reports that."""
    compression: str


def plain_records(source: str, files: Sequence[Path]) -> PlainRecords:
    """Return the content of files.

    FileError: a file cannot be read. VerificationError: a length is damaged; the message names the
    file and the byte. GraphError: the records are not Examples, or only some files are compressed.
    """
    packed = {is_gzip(file) for file in files}
    if len(packed) > 1:
        raise GraphError("records-partly-compressed", source=source)
    is_packed = packed == {True}
    counts = tuple(count_records(file, is_packed) for file in files)
    file, count = next(((f, n) for f, n in zip(files, counts, strict=True) if n), (None, 0))
    if file is None:
        return PlainRecords({}, {}, counts, "GZIP" if is_packed else "")
    records = islice(read_all_records(file, is_packed, count), _LOOKED_AT)
    lists = _lists(file, (item for item in records if isinstance(item, bytes)))
    names = [name for name in lists[0] if all(name in each for each in lists)] if lists else []
    features: dict[str, Feature] = {}
    sizes: dict[str, int] = {}
    for name in sorted(names):
        features[name] = _feature([each[name] for each in lists])
        if features[name] == Feature("string"):
            contents = [bytes(each[name][1][0]) for each in lists]
            is_text = all(_TEXT.fullmatch(content) for content in contents)
            if not is_text and len({len(content) for content in contents}) == 1:
                sizes[name] = len(contents[0])
    return PlainRecords(features, sizes, counts, "GZIP" if is_packed else "")


def fitted(
    feature: Feature, size: int | None, type_: str, shape: tuple[int, ...] | None
) -> Feature:
    """Return a feature of plain records as an input takes it.

    A list of as many values as the input is an array of its shape, and so are bytes of its size,
    but not those of one value: a text of 4 digits has the size of a float32.

    Args:
        feature: the feature as the records state it.
        size: the size of its bytes, if all have one.
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
        return Feature(type_, row, "raw") if size is not None and size == wanted else feature
    if is_known and None not in feature.shape:
        fits = math.prod(row) == math.prod(size or 0 for size in feature.shape)
        return replace(feature, shape=row) if fits else feature
    return replace(feature, shape=(None,)) if len(row) == 1 and row[0] < 0 else feature


def _lists(file: Path, records: Iterable[bytes]) -> list[dict[str, tuple[str, Any]]]:
    """Return the dtype and the values of each feature, of the records that are Examples with some.

    The others are invalid rows. GraphError: there are only others.
    """
    from google.protobuf import message

    from deploykit.transforms.ir.protos import Example

    results, others = [], 0
    for record in records:
        try:
            given = Example.FromString(record).features.feature
        except message.DecodeError:
            others += 1
            continue
        kinds = {name: item.WhichOneof("kind") for name, item in given.items()}
        found = {
            name: (_LISTS[kind], getattr(given[name], kind).value)
            for name, kind in kinds.items()
            if kind
        }
        results += [found] if found else []
    if others and not results:
        raise GraphError("not-an-example", source=file)
    return results


def _feature(values: Sequence[tuple[str, Any]]) -> Feature:
    """Return the type of some lists."""
    dtype, lengths = values[0][0], {len(listed) for _, listed in values}
    shape: tuple[int | None, ...] = () if lengths == {1} else (*lengths,)
    if len(lengths) > 1:
        shape = (None,)
    is_bytes = dtype == "string" and shape == ()
    if is_bytes and all(is_image_content(listed[0]) for _, listed in values):
        return Feature("string", (), "image")
    return Feature(dtype, shape)
