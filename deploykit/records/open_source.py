"""What kind of data the sources are, by their content, and the source that reads it."""

import os
from collections.abc import Sequence
from pathlib import Path

from deploykit.records.arrays import npz
from deploykit.records.cifar import PICKLES, cifar, is_binary
from deploykit.records.idx import TYPES, idx
from deploykit.records.image_files import ENDS
from deploykit.records.image_folder import Images
from deploykit.records.lines import first_lines
from deploykit.records.record_source import RecordSource, none_found
from deploykit.records.tables import Numbers, Texts
from deploykit.storage.files import check_regular
from deploykit.storage.tables import is_number
from deploykit.transforms.core.errors import FileError, GraphError
from deploykit.transforms.core.files.reading import opened

_FILES = {  # what a folder holds of each kind; the first that is there decides
    "csv": ("*.csv",),
    "npz": ("*.npz",),
    "idx": ("*-ubyte", "*-ubyte.gz", "*.idx", "*.idx.gz"),
    "cifar": ("data_batch_*", "test_batch*", "train", "test", "train.bin", "test.bin"),
    "text": ("*.tsv", "*.txt"),
}


def open_source(
    sources: Sequence[str | Path],
    *,
    kind: str | None = None,
    label: str | None = None,
    labels: str | Path | None = None,
    raw: bool = False,
) -> RecordSource:
    """Return what reads the data of files, or of a folder.

    Args:
        sources: the files in order, or one folder.
        kind: one of KINDS; default: what the content shows.
        label: name or number of the column that holds the label.
        labels: a CSV file with the label of each image.
        raw: keep the pixels of images, decoded.

    FileError: something cannot be read. GraphError: it is of no known kind, or is damaged.
    """
    paths = [Path(source) for source in sources]
    if any(map(os.path.isdir, paths)):
        if len(paths) > 1:
            raise GraphError("give-one", source=paths[0], options=["a folder", "files"])
        folder = paths[0]
        kind, paths = in_folder(folder, kind)
        if kind == "cifar":
            _check_one_set(folder, paths)
    else:
        for path in paths:
            check_regular(path)
        kind = kind or _kind_of(paths[0])
    if (labels is not None or raw) and kind != "images":
        raise GraphError(
            "only-for", source=sources[0], option="--labels and --raw", what=f"images, not {kind}"
        )
    if label is not None and kind not in ("csv", "npz", "text"):
        raise GraphError(
            "only-for",
            source=sources[0],
            option="--label-column",
            what=f"csv, npz and text, not {kind}",
        )
    if kind == "images":
        if len(paths) > 1 or not os.path.isdir(paths[0]):
            raise GraphError("images-folder-expected", source=paths[0])
        return Images(paths[0], None if labels is None else Path(labels), raw)
    if kind == "npz":
        if len(paths) > 1:
            raise GraphError("npz-one-file", source=paths[1])
        return npz(paths[0], label)
    if kind == "idx":
        return idx(paths)
    if kind == "cifar":
        return cifar(paths)
    files = list(map(str, paths))
    return Numbers(files, label) if kind == "csv" else Texts(files, label)


def in_folder(folder: Path, kind: str | None) -> tuple[str, list[Path]]:
    """Return the kind of what lies in a folder, and the files; images are listed elsewhere."""
    if kind == "images":
        return kind, [folder]
    try:
        visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise FileError("file-error", source=folder, reason=error.strerror or error) from None
    if kind is None and any(path.is_dir() or path.suffix.lower() in ENDS for path in visible):
        return "images", [folder]
    for each in [kind] if kind else _FILES:
        found = [path for path in visible if path.is_file() and any(map(path.match, _FILES[each]))]
        if found:
            return each, found
    raise none_found([folder], f"expected {kind or 'images, or files of ' + ', '.join(_FILES)}")


def _check_one_set(folder: Path, found: Sequence[Path]) -> None:
    tests = [path for path in found if path.name.startswith("test")]
    if 0 < len(tests) < len(found):
        raise GraphError("several-sets", source=folder)


def _kind_of(path: Path) -> str:
    """Return the kind of a file, by its first bytes and its size."""
    with opened(str(path)) as file:
        head = file.read(4)
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head.startswith(b"\x1f\x8b") or (head[:2] == b"\0\0" and head[2:3] and head[2] in TYPES):
        return "idx"
    if head[:2] in PICKLES or (path.suffix == ".bin" and is_binary(path.stat().st_size)):
        return "cifar"
    if path.suffix.lower() in ENDS:
        return "images"
    if path.suffix.lower() == ".csv":
        return "csv"
    lines = first_lines(str(path), 1)
    if not lines:
        raise none_found([path], "the file is empty")
    return "csv" if b"\t" not in lines[0] and b"," in lines[0] and _is_table(path) else "text"


def _is_table(path: Path) -> bool:
    """Say whether the second line, or the only one, holds numbers."""
    line = first_lines(str(path), 2)[-1]
    numbers = sum(is_number(cell) for cell in line.split(b","))
    return numbers >= max(1, line.count(b","))
