"""Sources -> records: all under one name, or the folder of CIFAR as train, validation and test."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.records.conversion import Advance, Conversion, Options, check_apart, convert
from deploykit.records.index import Index
from deploykit.records.open_source import in_folder, open_source
from deploykit.records.resuming import check_free, forget
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, written
from deploykit.transforms.core.errors import GraphError

NAME = "data"
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_SETS: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {"train": _BATCHES[:4], "validation": _BATCHES[4:], "test": ("test_batch",)},  # CIFAR-10
    {"train": ("train",), "test": ("test",)},  # CIFAR-100
)


@dataclass(frozen=True)
class ConvertedSets(AsHtml):
    """What was written: one set of records, or those of CIFAR's folder."""

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
        """How many items were left out."""
        return sum(each.skipped for each in self.sets)

    @property
    def bytes(self) -> int:
        """The size of all shards."""
        return sum(each.index.bytes for each in self.sets)


def record_sets(
    sources: Sequence[str | Path], name: str | None = None, kind: str | None = None
) -> dict[str, list[Path]]:
    """Return the sources of each set by the name of its records.

    A folder as CIFAR's archives hold it is several sets: train, validation (the last of the five
    batches of CIFAR-10) and test, or with a name NAME-train, NAME-validation and NAME-test. All
    else is one set of the name, or `data`.

    GraphError: a file of such a folder is missing.
    """
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and paths[0].is_dir() and in_folder(paths[0], kind)[0] == "cifar":
        for sets, end in itertools.product(_SETS, ("", ".bin")):
            if found := _files(paths[0], sets, end):
                start = "" if name is None else f"{name}-"
                return {f"{start}{each}": files for each, files in found.items()}
    return {name or NAME: paths}


def _files(
    folder: Path, sets: Mapping[str, Sequence[str]], end: str
) -> dict[str, list[Path]] | None:
    """Return the files of each set, or None where a folder has none to test, or to train on."""
    found = {name: [folder / f"{file}{end}" for file in files] for name, files in sets.items()}
    if not any(file.is_file() for file in found["train"]):
        return None
    if not all(file.is_file() for file in found["test"]):
        return None
    missing = [file.name for files in found.values() for file in files if not file.is_file()]
    if missing:
        raise GraphError("cifar-incomplete", source=folder, missing=missing)
    return found


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
        folder: where the shards and indexes go.
        options: how they are written; the name among them does not count.
        name: of the records; default: `data`, or train, validation and test.
        kind: of the sources, as in `open_source`.
        force: replace records of these names.
        advance: told of progress.
        how: other arguments of `open_source`.

    An interrupted run is taken up where it ended. FileError, GraphError: as in `convert`.
    """
    check_apart(sources, folder)
    found = record_sets(sources, name, kind)
    for each in found:
        check_free(folder, each, force)
    several = len(found) > 1
    outcomes = []
    for each, files in found.items():
        source = open_source(files, kind=kind, **how)

        def tell(text: str, count: int, name: str = each) -> None:
            advance(f"{name}: {text}" if several else text, 0 if several else count)

        named = replace(options, name=each)
        outcomes.append(
            convert(source, folder, named, force=force, advance=tell, keep_state=several)
        )
    forget(folder, found)
    return ConvertedSets(tuple(outcomes))
