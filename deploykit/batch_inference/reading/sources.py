"""Where rows come from, in words; which name data have; and what tells them from other data."""

import hashlib
import os
import re
from pathlib import PurePath

from deploykit.batch_inference.reading.data_part import DataPart
from deploykit.input.data import Data
from deploykit.records.index import index_path
from deploykit.records.record_source import facts_of
from deploykit.transforms.core.display.documents import document
from deploykit.transforms.core.errors import Error, FileError
from deploykit.transforms.core.files.reading import check_regular, read_bytes

CHANGED = "the data have changed since the run began; leave them as they are until it ends"

_ROWS = {"records": "record", "csv": "line", "arrays": "sample"}
_LONGEST = 120  # bytes of a name, which has numbers and an end in the names of files
_OTHER = re.compile(r"[^\w.-]+")


def key_of(data: Data, file: str) -> str:
    r"""Return the name of a file below the folder of the data, or its own where it is the data.

    Bytes that are no UTF-8 are written as `\xff`, so that every format can hold the name.
    """
    folder = str(PurePath(data.path))
    if file in (data.path, folder):
        name = os.path.basename(file)
    else:
        name = file.removeprefix(folder if folder.endswith(os.sep) else folder + os.sep)
    try:
        name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name


def place_of(data: Data, key: str, row: int) -> str:
    """Return in words where a row lies: `train-00000-of-00003.tfrecord: record 7`."""
    return place_in(data.kind, key, row)


def place_in(kind: str, key: str, row: int) -> str:
    """Return in words where a row of data of a kind lies."""
    word = _ROWS.get(kind)
    return key if word is None else f"{key}: {word} {row}"


def source_name(data: Data) -> str:
    """Return what the files of results are called unless someone says: as records, folder or file.

    It is made of letters, digits, `.`, `_` and `-`, and begins with a letter or a digit.
    """
    place = PurePath(os.path.abspath(data.path))
    whole = data.name or (place.stem if data.kind == "arrays" or _is_file(data) else place.name)
    name = _OTHER.sub("_", whole).lstrip("._-")
    while len(name.encode()) > _LONGEST:
        name = name[:-1]
    return name or "data"


def fingerprint(data: Data) -> str:
    """Return a digest that other data do not share: of names below the folder, sizes and times.

    Of the files, no more is read than the index of records. What decides the rows counts as well:
    which columns are which feature, and the classes of photos.
    """
    found = hashlib.sha256()
    for file, (size, changed) in facts_of(data.files).items():
        found.update(f"{key_of(data, file)}\0{size}\0{changed}\n".encode())
    columns = sorted(data.columns.items())
    features = sorted((name, document(each)) for name, each in data.features.items())
    said = (data.kind, data.counts, data.compression, data.header, columns, features)
    found.update(repr((*said, data.labels, data.classes)).encode())
    if data.name:
        found.update(read_bytes(index_path(data.path, data.name)))
    return found.hexdigest()


def _is_file(data: Data) -> bool:
    """Say whether data are one CSV file, and no folder with one."""
    return data.kind == "csv" and data.files == (str(PurePath(data.path)),)


def reason_of(error: Error, file: str) -> str:
    """Return what an error says of a file, without its name in front."""
    return str(error).removeprefix(f"{file:.300}: ")


def check_size(part: DataPart) -> None:
    """Raise FileError for a file that is not as large as when its parts were cut."""
    (file,) = part.files
    size = check_regular(file).st_size
    if size != part.file_bytes:
        raise FileError(
            "file-size-changed", file=file, size=size, bytes=part.file_bytes, changed=CHANGED
        )
