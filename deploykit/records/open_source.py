"""Detects the kind of sources, opens them, and splits CIFAR into sets such as train and test."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.records.arrays import TYPES, idx, npz
from deploykit.records.cifar import PICKLES, cifar, is_binary
from deploykit.records.conversion import (
    Advance,
    Conversion,
    Options,
    check_apart,
    check_free,
    convert,
    forget,
)
from deploykit.records.images import Images
from deploykit.records.index import Index
from deploykit.records.lines import first_lines
from deploykit.records.record_source import RecordSource, no_records_error
from deploykit.records.table_source import TableColumns
from deploykit.records.tables import Numbers, Texts
from deploykit.storage.arrays import MAGIC
from deploykit.storage.csv_files import HeaderRule, is_number
from deploykit.storage.data_files import format_of, is_packed
from deploykit.storage.files import check_regular
from deploykit.storage.image_folders import LABELS, is_image
from deploykit.storage.tables import FORMATS
from deploykit.storage.visible_files import warn_of_unread
from deploykit.transforms.common.documents import AsHtml, Hidden, written
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.untrusted.files import opened

_FILES = {  # the file patterns of each kind; the first kind with a match is used
    "csv": ("*.csv",),
    "parquet": ("*.parquet", "*.pq"),
    "npz": ("*.npz",),
    "idx": ("*-ubyte", "*-ubyte.gz", "*.idx", "*.idx.gz"),
    "cifar": ("data_batch_*", "test_batch*", "train", "test", "train.bin", "test.bin"),
    "jsonl": ("*.jsonl", "*.ndjson", "*.jsonl.gz", "*.ndjson.gz"),
    "text": ("*.tsv", "*.txt"),
}

_NAMES = ("batches.meta", "batches.meta.txt", "meta", "fine_label_names.txt")  # of CIFAR's classes


def open_source(
    sources: Sequence[str | Path],
    *,
    kind: str | None = None,
    label: str | None = None,
    header: HeaderRule = "auto",
    labels: str | Path | None = None,
    raw: bool = False,
) -> RecordSource:
    """Return a reader for the data in files or in a folder.

    Args:
        sources: the files in order, or one folder.
        kind: one of KINDS; default: detected from the content.
        label: the name or number of the label column.
        header: the rule for the header of a CSV file.
        labels: a CSV file with the label of each image; default: `labels.csv` in the folder.
        raw: store the decoded pixels of images.

    FileError: a file cannot be read. GraphError: the kind is unknown, or the data is damaged.
    """
    paths = [Path(source) for source in sources]
    if any(map(os.path.isdir, paths)):
        if len(paths) > 1:
            raise GraphError("give-one", source=paths[0], options=["a folder", "files"])
        folder = paths[0]
        kind, paths = in_folder(folder, kind)
        if kind == "cifar":
            tests = sum(path.name.startswith("test") for path in paths)
            if 0 < tests < len(paths):
                raise GraphError("several-sets", source=folder)
    else:
        for path in paths:
            check_regular(path)
        formats = {*map(format_of, paths)}
        if kind is None and len(formats) > 1 and formats - {None, "csv"}:
            known = sorted({format_of(path) or path.name for path in paths})
            raise GraphError("records-not-from", source=paths[0], known=known)
        kind = kind or _kind_of(paths[0])
    _check_options(sources[0], kind, label, header, labels is not None or raw)
    if kind == "images":
        if len(paths) > 1 or not os.path.isdir(paths[0]):
            raise GraphError("images-folder-expected", source=paths[0])
        listed = paths[0] / LABELS
        given = listed if labels is None and listed.is_file() else labels
        return Images(paths[0], None if given is None else Path(given), raw)
    if kind == "npz":
        if len(paths) > 1:
            raise GraphError("npz-one-file", source=paths[1])
        return npz(paths[0], label)
    if kind == "idx":
        return idx(paths)
    if kind == "cifar":
        return cifar(paths)
    files = list(map(str, paths))
    if kind == "csv":
        return Numbers(files, label, header)
    return TableColumns(files, kind, label) if kind in FORMATS else Texts(files, label)


def _check_options(
    source: str | Path, kind: str, label: str | None, header: HeaderRule, for_images: bool
) -> None:
    """Raise GraphError for an option that has no effect on data of a kind."""
    if for_images and kind != "images":
        raise GraphError(
            "only-for", source=source, option="--labels and --raw", what=f"images, not {kind}"
        )
    if label is not None and kind not in ("npz", "text", *FORMATS):
        raise GraphError(
            "only-for",
            source=source,
            option="--label-column",
            what=f"{', '.join(FORMATS)}, npz and text, not {kind}",
        )
    if header != "auto" and kind != "csv":
        raise GraphError("only-for", source=source, option="--header", what=f"csv, not {kind}")


def in_folder(folder: Path, kind: str | None) -> tuple[str, list[Path]]:
    """Return the kind of data in a folder, and its files; images are listed later."""
    if kind == "images":
        return kind, [folder]
    try:
        visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise FileError("file-error", source=folder, reason=error.strerror or error) from None
    if kind is None and any(path.is_dir() or is_image(str(path)) for path in visible):
        return "images", [folder]
    for file in [kind] if kind else _FILES:
        paths = [path for path in visible if path.is_file() and _is_named(path, _FILES[file])]
        if paths:
            others = {path.name for path in visible} - {path.name for path in paths} - {*_NAMES}
            warn_of_unread(folder, sorted(others), f"{file} files")
            return file, paths
    raise no_records_error(
        [folder], f"expected {kind or 'images, or files of ' + ', '.join(_FILES)}"
    )


def _is_named(path: Path, patterns: Sequence[str]) -> bool:
    """Return whether the name of a file matches a pattern, in upper or lower case."""
    return any(map(Path(path.name.lower()).match, patterns))


def _kind_of(path: Path) -> str:
    """Return the kind of a file, from its name, its first bytes and its size."""
    if (format_ := format_of(path)) is not None and format_ != "csv":
        return format_
    with opened(str(path)) as file:
        head = file.read(4)
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head == MAGIC[:4]:
        raise GraphError("single-array-given", source=path)
    if is_packed(path) and format_of(path):
        raise GraphError("records-packed-table", source=path)
    if head.startswith(b"\x1f\x8b") or (head[:2] == b"\0\0" and head[2:3] and head[2] in TYPES):
        return "idx"
    if head[:2] in PICKLES or (path.suffix == ".bin" and is_binary(path.stat().st_size)):
        return "cifar"
    if is_image(str(path)):
        return "images"
    if path.suffix.lower() == ".csv":
        return "csv"
    lines = first_lines(str(path), 1)
    if not lines:
        raise no_records_error([path], "the file is empty")
    cells = first_lines(str(path), 2)[-1].split(b",")  # of the second line, or the only one
    is_table = b"\t" not in lines[0] and b"," in lines[0]
    return "csv" if is_table and sum(map(is_number, cells)) >= max(1, len(cells) - 1) else "text"


NAME = "data"
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_SETS: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {"train": _BATCHES[:4], "validation": _BATCHES[4:], "test": ("test_batch",)},  # CIFAR-10
    {"train": ("train",), "test": ("test",)},  # CIFAR-100
)


@dataclass(frozen=True)
class ConvertedSets(AsHtml):
    """The written records: one set, or the sets of a CIFAR folder."""

    sets: Hidden[tuple[Conversion, ...]]

    @property
    @written(flat=True)
    def _only(self) -> Conversion | None:
        return self.sets[0] if len(self.sets) == 1 else None

    @property
    @written("sets", if_set=True)
    def _several(self) -> tuple[Conversion, ...]:
        return self.sets if len(self.sets) > 1 else ()

    @property
    def index(self) -> Index:
        """The index of the set, or of the first one."""
        return self.sets[0].index

    @property
    def skipped(self) -> int:
        """The number of skipped items."""
        return sum(set_.skipped for set_ in self.sets)

    @property
    def bytes(self) -> int:
        """The size of all shards in bytes."""
        return sum(set_.index.bytes for set_ in self.sets)


def record_sets(
    sources: Sequence[str | Path], name: str | None = None, kind: str | None = None
) -> dict[str, list[Path]]:
    """Return the sources of each set, by the name of its records.

    An unpacked CIFAR folder contains several sets: train, validation (the last of the five batches
    of CIFAR-10) and test; with a name, NAME-train, NAME-validation and NAME-test. Any other source
    is one set with the given name, or `data`.

    GraphError: a file of such a folder is missing.
    """
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and paths[0].is_dir() and in_folder(paths[0], kind)[0] == "cifar":
        for sets, end in itertools.product(_SETS, ("", ".bin")):
            if result := _files(paths[0], sets, end):
                start = "" if name is None else f"{name}-"
                return {f"{start}{item}": files for item, files in result.items()}
    return {name or NAME: paths}


def _files(
    folder: Path, sets: Mapping[str, Sequence[str]], end: str
) -> dict[str, list[Path]] | None:
    """Return the files of each set, or None if a folder has no test or no training files."""
    results = {name: [folder / f"{file}{end}" for file in files] for name, files in sets.items()}
    if not any(file.is_file() for file in results["train"]):
        return None
    if not all(file.is_file() for file in results["test"]):
        return None
    missing = [file.name for files in results.values() for file in files if not file.is_file()]
    if missing:
        raise GraphError("cifar-incomplete", source=folder, missing=missing)
    return results


def convert_sets(
    sources: Sequence[str | Path],
    folder: Path,
    options: Options,
    *,
    name: str | None = None,
    kind: str | None = None,
    force: bool = False,
    advance: Advance = lambda text, count: None,
    **how: Any,
) -> "ConvertedSets":
    """Write sources as records, each set of `record_sets` under its own name.

    Args:
        sources: files, or one folder.
        folder: the folder for the shards and indexes.
        options: the options for writing; their `name` is ignored.
        name: the name of the records; default: `data`, or train, validation and test.
        kind: the kind of the sources, as in `open_source`.
        force: whether to replace records of these names.
        advance: called with the progress.
        how: other arguments of `open_source`.

    Resumes an interrupted run. Raises the errors of `convert`.
    """
    check_apart(sources, folder)
    result = record_sets(sources, name, kind)
    for item in result:
        check_free(folder, item, force)
    several = len(result) > 1
    outcomes = []
    for item, files in result.items():
        source = open_source(files, kind=kind, **how)

        def tell(text: str, count: int, name: str = item) -> None:
            advance(f"{name}: {text}" if several else text, 0 if several else count)

        named = replace(options, name=item)
        outcomes.append(
            convert(source, folder, named, force=force, advance=tell, keep_state=several)
        )
    forget(folder, result)
    return ConvertedSets(tuple(outcomes))
