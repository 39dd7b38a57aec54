"""Opens a table for a model: its files and rows, and the column that each input takes."""

import hashlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.batch_inference.formats.part_table import FILE, ROW
from deploykit.batch_inference.infer_task import IN_NUMPY
from deploykit.batch_inference.tables.partition_columns import partition_types
from deploykit.data.data import Data, is_vector, names_inputs, vector_width
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import is_computed
from deploykit.data.word_pieces import read_vocabulary
from deploykit.records.examples import Feature
from deploykit.records.index import index_names, one_set
from deploykit.records.plain_records import records_to_read
from deploykit.storage import csv_files
from deploykit.storage.image_folders import list_images
from deploykit.storage.table_formats.arrow_types import ColumnKind, element_type, kind_of
from deploykit.storage.table_formats.row_groups import GroupFormat
from deploykit.storage.table_formats.table_files import (
    TableFile,
    arrow,
    folder_of,
    format_of,
    is_glob,
    is_remote,
    table_files,
    tables_among,
)
from deploykit.storage.table_formats.table_format import TableFiles, TableSchema
from deploykit.storage.tables import FORMATS, columns_in, has_text
from deploykit.transforms.common.errors import GraphError, naming, nearest, unknown_name
from deploykit.transforms.common.messages import shell_word
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.chosen_columns import INDEX, vector_of
from deploykit.verification.fitting import only_of_type, tell_only
from deploykit.verification.samples import NOT_INPUTS
from deploykit.verification.synthetic.sample_inputs import (
    names_of_inputs,
    takes_scalars,
    type_and_shape,
)

logger = logging.getLogger("deploykit")

KIND = "table"
MAX_TOKENS = 128
"""The maximum number of tokens of a text, if the model takes any number."""


@dataclass(frozen=True)
class TableData(Data):
    """A table on disk or in an object store. A feature has the name of its column."""

    format: str = ""
    """One of `storage.tables.FORMATS`."""
    facts: tuple[tuple[int, int], ...] = ()
    """The size and the modification time of each file."""
    types: Mapping[str, Any] = field(default_factory=dict)
    """The Arrow types of all columns. Those of CSV and JSON Lines are inferred from the start."""
    partitions: Mapping[str, Any] = field(default_factory=dict)
    """The Arrow types of the columns that the folders state; `types` has them too."""
    mixed: tuple[str, ...] = ()
    """The text columns of a CSV file, or of folders, of which some values are numbers."""
    keep: tuple[str, ...] = ()
    """The columns to copy to the results."""
    tokens: "Tokens | None" = None
    """How the features are made of the texts of one column; None: each is a column."""
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of each feature that is a vector of several."""

    @property
    def schema(self) -> TableSchema:
        """The columns of the files."""
        stated = self.partitions
        types = {name: type_ for name, type_ in self.types.items() if name not in stated}
        return TableSchema(types, self.counts, separator=self.separator)

    @property
    def read(self) -> list[str]:
        """The columns that are read."""
        features = [self.tokens.column] if self.tokens is not None else self.features
        columns = [name for item in features for name in self.joined.get(item, (item,))]
        return list(dict.fromkeys([*columns, *self.keep]))


@dataclass(frozen=True)
class Tokens:
    """A column of texts that become token ids and a mask."""

    column: str
    vocabulary: tuple[str, ...] = field(repr=False)
    parts: Mapping[str, str]
    """Each feature is one of ids, mask, types."""
    length: int
    """The maximum number of tokens."""
    is_fixed: bool
    """Whether the model takes this number only."""

    @property
    def sha256(self) -> str:
        """The digest of the vocabulary."""
        return hashlib.sha256("\n".join(self.vocabulary).encode()).hexdigest()


@dataclass(frozen=True)
class ColumnChoice:
    """The columns that the user selected."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each input, where it has another name, or several, separated by commas."""
    keep: tuple[str, ...] = ()
    vocabulary: str | os.PathLike[str] | None = None
    """The file with the pieces of texts, for a model that takes token ids."""
    has_folders: bool = True
    """Whether folders may state columns; those of a temporary file do not."""


def open_table(
    path: str, graph: Graph, declared: Preprocessing, choice: ColumnChoice
) -> tuple[TableData, Preprocessing]:
    """Return a table whose columns fit the inputs of a graph, and which column each input takes.

    FileError: a file cannot be read. GraphError: it is damaged, a column does not exist, or has
    another type than the input.
    """
    files, skipped = _with_rows(path, table_files(path))
    format_ = format_of(files[0].path) or ""
    named = [name for names in names_of_inputs(graph).values() for name in names]
    declared = declared.among(graph)
    stated = [declared.of(names).feature for names in names_of_inputs(graph).values()]
    chosen = {*choice.keep, *choice.columns.values(), *stated}
    chosen |= {name for text in choice.columns.values() for name in text.split(",")}
    used = {*chosen, *named}
    paths = [file.path for file in files]
    stated_by, numeric = partition_types(path, paths if choice.has_folders else (), chosen)
    given = TableFiles(path, paths, used, used & stated_by.keys(), declared.rule)
    found = FORMATS[format_].schema(given)
    stated_by = {name: type_ for name, type_ in stated_by.items() if name not in found.types}
    data = TableData(
        folder_of(path), KIND, tuple(paths), {}, found.counts,
        format=format_, facts=tuple((file.size, file.changed) for file in files),
        skipped=skipped, header=found.header, separator=found.separator,
        types={**found.types, **stated_by}, partitions=stated_by, keep=choice.keep,
        mixed=(*found.mixed, *(name for name in numeric if name in stated_by)),
    )  # fmt: skip
    for name in choice.keep:
        _check_column(data, name)
    features: dict[str, Feature] = {}
    if tokens := _tokens(data, graph, choice):
        steps = {name: Steps(feature=name) for name in tokens.parts}
        features = {
            name: Feature(type_and_shape(graph, tensor)[0], (tokens.length,))
            for name, tensor in zip(tokens.parts, graph.inputs, strict=True)
        }
        data = _with_texts(replace(data, tokens=tokens), [tokens.column])
        return replace(data, features=features), replace(declared, inputs=steps)
    steps = dict(declared.inputs)
    for tensor, names in names_of_inputs(graph).items():
        column = _column_for(data, graph, tensor, declared.of(names).feature, choice)
        steps[names[0]] = replace(declared.of(names), feature=column)
        computed = is_computed(steps[names[0]], Feature("float32"))
        feature = _feature(data, column, graph, tensor, computed)
        if features.setdefault(column, feature) != feature:
            raise GraphError(
                "column-type", source=data.path, name=column, input=tensor,
                got=f"read as {features[column].dtype} for another input",
                expected=_said(*type_and_shape(graph, tensor)[:2]),
                columns=_advice(data, graph, tensor, [column]),
            )  # fmt: skip
    texts = [name for name, feature in features.items() if feature.dtype == "string"]
    read = {name: columns_in(name, data.types) for name in features}
    joined = {name: parts for name, parts in read.items() if len(parts) > 1}
    data = replace(_with_texts(data, texts), joined=joined)
    return replace(data, features=features), replace(declared, inputs=steps)


def _with_rows(
    path: str, files: Sequence[TableFile]
) -> tuple[Sequence[TableFile], tuple[str, ...]]:
    """Return files without empty binary ones, and which of several local files are empty.

    GraphError: all are empty binary files.
    """
    format_ = FORMATS[format_of(files[0].path) or ""]
    in_groups = isinstance(format_, GroupFormat)
    if is_remote(path):
        empty = [file for file in files if in_groups and not file.size]
        if empty:
            logger.warning("%s: empty files are skipped: %d", path, len(empty))
    else:
        empty = [file for file in files if not (file.size if in_groups else has_text(file.path))]
    full = [file for file in files if file not in empty] if in_groups else files
    if not full and isinstance(format_, GroupFormat):
        raise GraphError("parquet-empty", source=path, what=format_.title)
    names = () if is_remote(path) or len(files) == 1 else empty
    return full, tuple(os.path.relpath(file.path, folder_of(path)) for file in names)


def _with_texts(data: TableData, names: Collection[str]) -> TableData:
    """Return data whose columns of folders that text inputs take are text, also if kept."""
    stated = {name: arrow("reading a table").string() for name in names if name in data.partitions}
    return replace(data, types={**data.types, **stated}, partitions={**data.partitions, **stated})


def takes_columns(path: str, graph: Graph, declared: Preprocessing, choice: ColumnChoice) -> bool:
    """Return whether a path is a table whose named columns are inputs.

    A CSV file of numbers without a header, or whose last column is a label, is read by `open_data`,
    unless the header contains names of inputs. So is one whose columns are the vector of the only
    input, also if there is one column more, which is then the label.
    """
    if choice.columns or choice.keep or is_remote(path) or is_glob(path):
        return True
    first = Path(path)
    if one_set(first) is not None:
        return False
    if first.is_dir():
        if index_names(first) or records_to_read(first):
            return False
        below = [str(file) for file in sorted(first.rglob("*")) if not _is_hidden(file, first)]
        files = tables_among(below)
        if not files or list_images(first).images:
            return False
        full = (file for file in files if format_of(file) != "csv" or has_text(file))
        first = Path(next(full, files[0]))
    format_ = format_of(first.name)
    if format_ != "csv":
        return format_ is not None
    if declared.columns is not None or not first.is_file():
        return False
    found = csv_files.preview(first, declared.rule)
    if found is None:
        return False
    if found.has_text or names_inputs(found, graph):  # no table of numbers has text
        return True
    last = found.layout.header[-1:]
    return not {"", *NOT_INPUTS}.issuperset(last) and not is_vector(
        found.layout, vector_width(graph)
    )


def _is_hidden(file: Path, folder: Path) -> bool:
    """Return whether `table_files` ignores a file below a folder."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def check_kept(data: TableData, format_: str, added: Collection[str]) -> None:
    """Raise GraphError for columns to keep that the results cannot contain.

    `added` are the columns that the results contain beside the outputs.
    """
    for name in data.keep:
        if name in (FILE, ROW, *added):
            raise GraphError("kept-column-name", source=data.path, name=name)
        kind = kind_of(data.types[name])
        if format_ in IN_NUMPY and (kind is None or kind.depth):
            raise GraphError(
                "kept-column-type", name=name, got=data.types[name], format=format_
            ).within(data.path)


def _check_column(data: TableData, name: str) -> None:
    """Raise GraphError for a column that does not exist."""
    if name not in data.types:
        hint = nearest(name, list(data.types))
        raise unknown_name("column", name, data.types, hint).within(data.path)


def _column_for(
    data: TableData, graph: Graph, tensor: str, stated: str, choice: ColumnChoice
) -> str:
    """Return the column of an input: the stated one, one of its name, or the only fitting one."""
    inputs = names_of_inputs(graph)
    known = {name for names in inputs.values() for name in names}
    for name in choice.columns:
        if name not in known:
            raise unknown_name("input", name, [names[0] for names in inputs.values()])
    names = inputs[tensor]
    chosen = next((choice.columns[name] for name in names if name in choice.columns), stated)
    if chosen:
        with naming(data.path):
            columns_in(chosen, data.types)
        return chosen
    for name in names:
        if name in data.types:
            return name
    if len(inputs) == 1:
        kinds = {
            name: kind.is_text
            for name, type_ in data.types.items()
            if name not in NOT_INPUTS
            and name not in (*data.keep, *data.partitions)
            and (kind := kind_of(type_))
        }
        if only := only_of_type(kinds, type_and_shape(graph, tensor)[0]):
            tell_only(names[0], only[0])
            return only[0]
        others = (*NOT_INPUTS, *data.keep, *data.partitions)
        if data.records == 0 and (unknown := [n for n in data.types if n not in others]):
            return unknown[0]  # without rows, columns have any type
    raise GraphError(
        "column-missing",
        source=data.path,
        input=names[0],
        expected=_said(*type_and_shape(graph, tensor)[:2]),
        known=[f"{name} ({type_})" for name, type_ in data.types.items()],
        columns=_advice(data, graph, tensor),
    )


def _advice(data: TableData, graph: Graph, tensor: str, without: Collection[str] = ()) -> str:
    """Return columns that fit an input, as a value of --columns; none is a label or an index."""
    type_, shape = _takes(graph, tensor)
    inputs = names_of_inputs(graph)
    others = {name for other, names in inputs.items() if other != tensor for name in names}
    others |= {"", *NOT_INPUTS, *data.keep, *data.partitions, *without}
    kinds = {
        column: _kind_for(data, column, type_)
        for column in sorted(data.types, key=lambda column: column in data.mixed)
        if column not in others and not INDEX.fullmatch(column)
    }
    fits = [column for column, kind in kinds.items() if kind and _fits(kind, type_, shape)]
    width = shape[1] if shape and len(shape) == 2 and type_ != "string" else 1
    numbers = [column for column, kind in kinds.items() if kind == ColumnKind(False, 0)]
    if not fits and (vector := vector_of(numbers, width)):
        fits = [",".join(sorted(vector, key=[*data.types].index))]
    return shell_word(f"{inputs[tensor][0]}={fits[0] if fits else 'COLUMN'}")


def _kind_for(data: TableData, column: str, type_: str) -> ColumnKind | None:
    """Return the kind of a column if its values fit a dtype as they are, mostly if it is mixed."""
    if column in data.mixed and type_ != "string":
        return ColumnKind(False, 0)
    found = str(element_type(data.types[column]))
    if (found == "bool" and type_ != "bool") or ("int" in type_ and "int" not in found):
        return None
    return kind_of(data.types[column])


def _takes(graph: Graph, tensor: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the dtype of an input, and its shape with the axis of the rows."""
    type_, shape = type_and_shape(graph, tensor)[:2]
    return type_, (-1,) if takes_scalars(graph) else shape


def _vector(
    data: TableData, columns: Sequence[str], graph: Graph, tensor: str, is_scaled: bool
) -> Feature:
    """Return the feature of several columns of numbers. GraphError: it does not fit the input."""
    type_, shape = type_and_shape(graph, tensor)[:2]
    for column in columns:
        kind = kind_of(data.types[column])
        is_empty = str(data.types[column]) == "null" and data.format == "csv"
        if not is_empty and column not in data.mixed and kind != ColumnKind(False, 0):
            raise GraphError(
                "column-type", source=data.path, name=column, got=data.types[column], input=tensor,
                expected=_said(type_, shape), columns=_advice(data, graph, tensor, [column]),
            )  # fmt: skip
    is_vector = shape is None or (len(shape) == 2 and shape[1] in (-1, len(columns)))
    if type_ == "string" or not is_vector:
        raise GraphError(
            "column-type", source=data.path, name=",".join(columns), got=f"{len(columns)} columns",
            input=tensor, expected=_said(type_, shape),
            columns=_advice(data, graph, tensor),
        )  # fmt: skip
    return Feature("float64" if is_scaled else type_ or "float32", (len(columns),))


def _tokens(data: TableData, graph: Graph, choice: ColumnChoice) -> Tokens | None:
    """Return how the inputs are made of texts; None: they are columns, or take something else."""
    inputs = names_of_inputs(graph)
    known = [name for names in inputs.values() for name in names]
    kinds = {names[0]: _token_kind(names) for names in inputs.values()}
    shapes = [type_and_shape(graph, tensor)[:2] for tensor in inputs]
    sizes = [shape[1] for type_, shape in shapes if "int" in type_ and shape and len(shape) == 2]
    is_column = any(name in data.types for name in known)
    if choice.vocabulary is None or is_column or len(sizes) < len(inputs):
        return None
    if not all(kinds.values()) or "ids" not in kinds.values():
        return None
    columns = sorted({choice.columns[name] for name in known if name in choice.columns})
    columns = columns or only_of_type(_texts(data), "string")
    if len(columns) != 1:
        texts = [name for name in _texts(data) if not INDEX.fullmatch(name)]
        raise GraphError(
            "column-missing", source=data.path, input=next(iter(kinds)), expected="a text",
            known=[f"{name} ({type_})" for name, type_ in data.types.items()],
            columns=shell_word(f"{next(iter(kinds))}={(*texts, 'COLUMN')[0]}"),
        )  # fmt: skip
    _check_column(data, columns[0])
    length = max(sizes)
    return Tokens(
        columns[0],
        read_vocabulary(choice.vocabulary),
        kinds,
        length if length > 0 else MAX_TOKENS,
        length > 0,
    )


def _texts(data: TableData) -> dict[str, bool]:
    """Return the columns that may be the only text."""
    others = {*data.keep, *data.partitions}
    kinds = {name: kind_of(type_) for name, type_ in data.types.items() if name not in others}
    return {name: True for name, kind in kinds.items() if kind == ColumnKind(True, 0)}


def _token_kind(names: Sequence[str]) -> str:
    """Return what an input of a text model takes, by its names; empty: unknown."""
    for kind, words in (("mask", ("mask",)), ("types", ("type", "segment")), ("ids", ("ids",))):
        if any(word in name.lower() for name in names for word in words):
            return kind
    return ""


def _feature(data: TableData, column: str, graph: Graph, tensor: str, is_scaled: bool) -> Feature:
    """Return the feature that a reader makes of a column. GraphError: it does not fit the input."""
    type_, shape = _takes(graph, tensor)
    if column not in data.types:
        return _vector(data, columns_in(column, data.types), graph, tensor, is_scaled)
    found = data.types[column]
    if str(found) == "null" and data.records == 0:
        return Feature(type_ or "float32", tuple(None if n < 0 else n for n in (shape or ())[1:]))
    kind = kind_of(found)
    is_text = data.format == "csv" or column in data.partitions
    if is_text and (type_ == "string" or str(found) == "null"):
        kind = ColumnKind(type_ == "string", 0)  # the text of the cells or folders
    elif kind is not None and type_ and column in data.mixed:
        kind = ColumnKind(False, 0)  # the other cells are invalid rows
    if kind is None or not _fits(kind, type_, shape):
        raise GraphError(
            "column-type", source=data.path, name=column, got=found, input=tensor,
            expected=_said(type_, shape), columns=_advice(data, graph, tensor, [column]),
        )  # fmt: skip
    dtype = "string" if kind.is_text else "float64" if is_scaled else type_
    return Feature("string" if type_ == "string" else dtype, _shape(kind, shape))


def _fits(kind: ColumnKind, type_: str, shape: tuple[int, ...] | None) -> bool:
    """Return whether values of a kind fit an input of a dtype and a shape with the batch axis."""
    if type_ and kind.is_text != (type_ == "string"):
        return False
    if shape is None:
        return True
    row = shape[1:]
    if kind.depth == 0:
        return row in ((), (1,), (-1,))
    return len(row) == kind.depth or (kind.depth == 1 and bool(row) and min(row) >= 0)


def _shape(kind: ColumnKind, shape: tuple[int, ...] | None) -> tuple[int | None, ...]:
    """Return the shape of a row."""
    row = shape[1:] if shape is not None else None
    if kind.depth == 0:
        return () if not row else (1,)
    sizes = kind.sizes or (-1,) * kind.depth
    if row is None:
        row = sizes
    if len(row) == kind.depth:
        row = tuple(known if known >= 0 else own for known, own in zip(row, sizes, strict=True))
    return tuple(None if size < 0 else size for size in row)


def _said(type_: str, shape: tuple[int, ...] | None) -> str:
    """Return the expected values as text, such as `float32 [?, 4]`."""
    if shape is None:
        return type_ or "any values"
    return f"{type_} [{', '.join('?' if size < 0 else str(size) for size in shape)}]"
