"""Detects the data at a path: TFRecord shards, CSV files, images or arrays, and their features."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from deploykit.records.examples import Feature
from deploykit.records.index import (
    END,
    index_names,
    index_of,
    load_index,
    one_set,
    shard_files,
)
from deploykit.records.plain_records import (
    UsualSize,
    is_records,
    plain_records,
    record_names,
    records_to_read,
)
from deploykit.records.verify_records import shard_counts
from deploykit.storage import csv_files
from deploykit.storage.arrays import load_data
from deploykit.storage.data_files import format_of, is_packed
from deploykit.storage.files import check_regular
from deploykit.storage.image_folders import LABELS, ImageFolder, list_images, listed_labels
from deploykit.storage.tables import (
    UnusableColumn,
    has_text,
    is_table,
    names_arrays,
    unusable_columns,
    with_vectors,
)
from deploykit.storage.visible_files import unread_files, warn_of_unread
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import GZIP_END
from deploykit.verification import samples
from deploykit.verification.chosen_columns import columns_value, refuse_if_some_fit, vector_in_file
from deploykit.verification.fitting import only_fitting
from deploykit.verification.synthetic.sample_inputs import names_of_inputs, type_and_shape

logger = logging.getLogger("deploykit")

Columns = Mapping[str, int | tuple[int, int]]
"""For each feature, a column number or a range of columns (start, end), without the end."""


@dataclass(frozen=True)
class Data:
    """A dataset on disk: its files, in order, and the features of each record."""

    path: str
    kind: str
    """One of `records`, `csv`, `images`, `arrays`."""
    files: tuple[str, ...]
    features: Mapping[str, Feature]
    counts: tuple[int, ...] = ()
    """The number of records in each file, if known without reading it."""
    compression: str = ""
    header: bool = False
    """Whether the first line of a CSV file, or of the file of labels, names its columns."""
    rule: csv_files.HeaderRule = "auto"
    """Whether the first row of a table in CSV is a header."""
    separator: str = ","
    """The separator of the cells in a CSV file."""
    columns: Columns = field(default_factory=dict)
    """The columns of a CSV file for each feature."""
    vectors: tuple[str, ...] = ()
    """The features of a table that are several columns of numbers, separated by commas."""
    labels: tuple[int, ...] = ()
    """The class of each image."""
    classes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Files relative to the folder: those of images that are not, and empty ones of CSV."""
    unclassed: str = ""
    """The first image next to class folders; such images have no labels."""
    name: str = ""
    """The name of TFRecords in their index."""
    usual: Mapping[str, UsualSize] | None = None
    """For TFRecords without an index, whose features may have other shapes: their usual sizes."""
    optional: frozenset[str] = frozenset()
    """The features of such TFRecords that some records lack."""
    unusable: Mapping[str, UnusableColumn] = field(default_factory=dict)
    """The columns of a table that cannot be arrays; reading one is an error that says why."""

    @property
    def records(self) -> int | None:
        """The number of records in an epoch; None if unknown without reading it."""
        return sum(self.counts) if self.counts else None

    def only_of_type(self, type_: str, shape: tuple[int, ...] | None = None) -> list[str]:
        """Return the only feature that is not a label, or else the only one of text or numbers."""
        names = self.unlabelled
        texts = {n: self.features[n].dtype == "string" for n in names if n not in self.unusable}
        unusable = {n: self.unusable[n] for n in names if n in self.unusable}
        return only_fitting(texts, unusable, type_, shape)

    @property
    def unlabelled(self) -> list[str]:
        """The features that are neither labels nor groups; those that no record lacks, if any."""
        names = [name for name in self.features if name not in samples.NOT_INPUTS]
        return [name for name in names if name not in self.optional] or names

    @property
    def labelled(self) -> bool:
        """Whether the images have classes."""
        return "label" in self.features

    @property
    def width(self) -> int:
        """The number of columns in a CSV line."""
        return max(_ends(column)[1] for column in self.columns.values())

    @cached_property
    def layout(self) -> csv_files.CsvLayout:
        """The layout of the CSV files."""
        return csv_files.CsvLayout((), self.width, self.separator)

    def load(self) -> dict[str, Array]:
        """Return the arrays of a file of arrays; it raises the errors of `load_data`."""
        return with_vectors(load_data(self.path, self.rule), self.vectors, self.path)

    def at(self, name: str) -> int | slice:
        """Return the index of a feature's columns in a CSV line."""
        columns = self.columns[name]
        return columns if isinstance(columns, int) else slice(*columns)

    @property
    def class_numbers(self) -> dict[str, int]:
        """The label of each class: the number that it is named, or else its index."""
        are_numbers = all(name.isdecimal() for name in self.classes)
        return {name: int(name) if are_numbers else n for n, name in enumerate(self.classes)}

    def without(self, files: Sequence[str]) -> "Data":
        """Return the same images without some of them."""
        gone = set(files)
        retained = [n for n, file in enumerate(self.files) if file not in gone]
        return replace(
            self,
            files=tuple(self.files[n] for n in retained),
            counts=tuple(self.counts[n] for n in retained),
            labels=tuple(self.labels[n] for n in retained),
        )


def one_image(path: str, feature: str = "image") -> Data:
    """Return a dataset of a single image file."""
    features = {feature: Feature("string", (), "image")}
    return Data(path, "images", (path,), features, counts=(1,), labels=(0,))


def open_data(
    path: str,
    columns: Columns | None = None,
    graph: Graph | None = None,
    *,
    may_be_empty: bool = False,
    rule: csv_files.HeaderRule = "auto",
    width: int | None = None,
    chosen: Mapping[str, str] | None = None,
    input_name: str = "",
) -> Data:
    """Return the data at a path, reading only as much as needed to detect its kind.

    A folder with an index of `deploykit records` contains TFRecords; `DIR/NAME` selects one of
    several sets. The features of TFRecords without an index follow from the first records and, by
    `fitting`, from a graph. Other folders contain CSV files or images. Image labels are the folder
    names, or the lines `FILE,LABEL` of a `labels.csv`. `columns` maps features to columns of CSV
    files. By default, the last column is `label` and the others are `x`; all are `x` if they are as
    many as `width`, by default that of the only input of `graph`. The named columns of a table
    (`storage.tables`) are arrays. If an input of `graph` takes rows of one value, each value
    of its column becomes such a row. With `may_be_empty`, arrays and TFRecords may have no
    samples. `rule` is that for the header of CSV files. `chosen` are the columns of inputs of
    `graph`; the data is then a table, and several columns become a vector. `input_name` is the
    input of a vector of `width` columns for which errors may advise to choose some.

    FileError: the path has no data, or a file is truncated. GraphError: the kind of the data is
    unknown or the data is invalid.
    """
    place = Path(path)
    width = width or vector_width(graph)
    if chosen:
        if format_of(place) is None or not place.is_file():
            what = "tables: a CSV, JSON Lines or Parquet file"
            raise GraphError("only-for", source=path, option="--columns", what=what)
        return _with_rows(
            _arrays(path, may_be_empty, rule, vectors=tuple(chosen.values()), has_graph=True),
            graph,
            chosen,
        )
    if (records := one_set(place)) is not None:
        result = _records(*records, place.name.endswith(END), may_be_empty)
    elif os.path.isdir(place):
        result = _folder(place, columns, may_be_empty, rule, width)
    elif columns is None and is_table_for(path, graph, rule):
        result = _with_rows(_arrays(path, may_be_empty, rule, has_graph=graph is not None), graph)
    elif format_of(place) == "csv":
        check_regular(place)
        if graph is not None:
            input_name = names_of_inputs(graph)[graph.inputs[0]][0]
        result = _csv(path, [place], columns, rule, width, input_name)
    elif is_records(place):
        check_regular(place)
        result = _shard(place, may_be_empty)
    else:
        result = _arrays(path, may_be_empty, rule)
    if columns is not None and result.kind != "csv":
        raise GraphError("columns-not-csv", source=path)
    return result


def vector_width(graph: Graph | None) -> int | None:
    """Return the size of the vector that the only input of a graph takes; None: it takes none."""
    if graph is None or len(graph.inputs) != 1:
        return None
    type_, shape, _ = type_and_shape(graph, graph.inputs[0])
    is_vector = type_ != "string" and shape is not None and len(shape) == 2 and shape[1] > 1
    return shape[1] if shape is not None and is_vector else None


def is_table_for(path: str, graph: Graph | None, rule: csv_files.HeaderRule = "auto") -> bool:
    """Return whether a file is a table whose named columns are arrays for the graph."""
    return is_table(path, rule=rule) if graph is None else is_table(path, *_taken(graph), rule)


def names_inputs(found: csv_files.Preview, graph: Graph) -> bool:
    """Return whether the named columns of a CSV file are arrays for the graph."""
    return names_arrays(found, *_taken(graph))


def _taken(graph: Graph) -> tuple[set[str], bool, Collection[str] | None]:
    """Return what a graph takes of a table: names, whether texts, and what it does not feed."""
    names = {name for names in names_of_inputs(graph).values() for name in names}
    takes_text = any(type_and_shape(graph, t)[0] == "string" for t in graph.inputs)
    labels = samples.NOT_INPUTS if len(graph.inputs) == 1 else None
    return names, takes_text, labels


def _with_rows(data: Data, graph: Graph | None, chosen: Mapping[str, str] | None = None) -> Data:
    """Return columns as rows of one value, if that is the input's shape."""
    chosen = chosen or {}
    features = dict(data.features)
    inputs = {} if graph is None else names_of_inputs(graph)
    for tensor, names in inputs.items():
        type_, shape, _ = ("", None, "") if graph is None else type_and_shape(graph, tensor)
        known = [chosen[name] for name in names if name in chosen]
        known = known or [name for name in names if name in features]
        if not known and len(inputs) == 1:
            known = data.only_of_type(type_, shape)
        if not known:
            continue
        feature = features[known[0]]
        if type_ == "string" and format_of(data.path) == "csv":  # keep the text of the cells
            feature = replace(feature, dtype="string")
        if shape is not None and len(shape) == 2 and shape[1] in (-1, 1):
            feature = replace(feature, shape=feature.shape or (1,))
        features[known[0]] = feature
    return replace(data, features=features)


def is_arrays(path: str, graph: Graph | None = None, rule: csv_files.HeaderRule = "auto") -> bool:
    """Return whether a path is a file of arrays, and not records, images or numeric CSV files."""
    if one_set(path) is not None:
        return False
    is_other = Path(path).is_dir() or format_of(path) == "csv" or is_records(path)
    return is_table_for(path, graph, rule) or not is_other


def _folder(
    folder: Path,
    columns: Columns | None,
    may_be_empty: bool,
    rule: csv_files.HeaderRule,
    width: int | None,
) -> Data:
    names = index_names(folder)
    if len(names) > 1:
        raise GraphError(
            "record-names-several", folder=folder, names=names, example=folder / names[0]
        )
    if names:
        extra = {*record_names(folder)} - {*shard_files(folder, names[0])}
        warn_of_unread(folder, sorted(file.name for file in extra), "TFRecords")
        return _records(folder, names[0], may_be_empty=may_be_empty)
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    if (found := list_images(folder)).images:
        found.warn_of_skipped()
        return _images(folder, found)
    tables = [file for file in files if format_of(file) == "csv"]
    if shards := records_to_read(folder):
        known = {file.name for file in shards}
        others = unread_files(folder, shards)  # without those of a shard, such as SHARD.idx
        others = [name for name in others if Path(name).stem not in known]
        warn_of_unread(folder, others, "TFRecords")
        return _plain(str(folder), shards, may_be_empty)
    if tables:
        warn_of_unread(folder, unread_files(folder, tables), "CSV files")
        return _csv(str(folder), tables, columns, rule, width)
    state = "contains no such files" if files else "is empty"
    raise FileError("data-folder-kind", source=folder, got=state)


def _records(folder: Path, name: str, is_named: bool = False, may_be_empty: bool = False) -> Data:
    index = load_index(folder, name)
    counts = shard_counts(folder, index, is_named)
    if not (any(counts) or may_be_empty):
        raise FileError("index-without-records", source=folder)
    return Data(
        str(folder), "records", tuple(index.files(folder)), dict(index.features),
        counts=counts,
        compression=index.compression, classes=index.classes, name=index.name,
    )  # fmt: skip


def _shard(file: Path, may_be_empty: bool) -> Data:
    """Return one file of TFRecords, with the features of its index if it has one."""
    if (described := index_of(file)) is None:
        return _plain(str(file), [file], may_be_empty)
    name, index, shard = described
    whole = _records(file.parent, name, may_be_empty=may_be_empty)
    place = index.shards.index(shard)
    return replace(
        whole, path=str(file), files=(str(file),), counts=(whole.counts[place],), name=""
    )


def _plain(path: str, files: Sequence[Path], may_be_empty: bool) -> Data:
    """Return TFRecords without an index."""
    found = plain_records(path, files)
    if not (any(found.counts) or may_be_empty):
        raise GraphError("no-samples", source=path, purpose="run")
    return Data(
        path, "records", tuple(map(str, files)), found.features, counts=found.counts,
        compression=found.compression, usual=found.usual, optional=found.optional,
    )  # fmt: skip


def _csv(
    path: str,
    files: Sequence[Path],
    columns: Columns | None,
    rule: csv_files.HeaderRule,
    expected: int | None,
    name: str = "",
) -> Data:
    packed = {is_packed(file) for file in files}
    if len(packed) > 1:
        raise GraphError("table-formats-several", source=path, known=["csv", f"csv{GZIP_END}"])
    empty = {file for file in files if not has_text(file)} if len(files) > 1 else set()
    files = [file for file in files if file not in empty]
    if not files:
        raise GraphError("csv-empty", source=path)
    layout, _ = csv_files.shared_layout(files, rule)
    layout.tell(path)
    width = layout.count
    if columns is None:
        columns = _usual_columns(path, layout, expected, name)
        start, end = _ends(columns["x"])
        if name and expected and end - start != expected:
            refuse_if_some_fit(path, layout, end - start, expected, name)
    features = {}
    for name, item in columns.items():
        start, end = _ends(item)
        if not 0 <= start < end <= width:
            raise GraphError(
                "csv-columns-range",
                source=files[0],
                name=name,
                start=start,
                last=end - 1,
                width=width,
            )
        features[name] = Feature("float32", () if isinstance(item, int) else (end - start,))
    if max(_ends(column)[1] for column in columns.values()) < width:
        # An unused name stands for the other columns, so that the number of columns is known.
        columns = {**columns, "": width - 1}
    return Data(
        path, "csv", tuple(map(str, files)), features, header=bool(layout.header),
        separator=layout.separator, columns=columns, compression="GZIP" if packed == {True} else "",
        skipped=tuple(sorted(file.name for file in empty)),
    )  # fmt: skip


def is_vector(layout: csv_files.CsvLayout, width: int | None) -> bool:
    """Return whether the columns of a CSV file without its label are a vector of this size."""
    try:
        start, end = _ends(_usual_columns("", layout, width)["x"])
    except GraphError:  # the label is between them
        return False
    return end - start == width


def _usual_columns(
    path: str, layout: csv_files.CsvLayout, expected: int | None, input_: str = ""
) -> Columns:
    """Return the vector `x` and the label: a first column that is named as one, or else the last.

    All columns are `x` if they are as many as `expected`, and none has the name of a label. A first
    column without a name is ignored: pandas writes the index of the rows so.
    GraphError: the label is between other columns, by its name; `input_` is the name of the input.
    """
    first, last = int(layout.names[0] == "" and layout.count > 1), layout.count - 1
    labels = [place for place, name in enumerate(layout.header) if name in samples.NOT_INPUTS]
    if first == last:
        return {"x": last}
    if layout.count - first == expected and not labels:
        return {"x": (first, layout.count)}
    if labels == [first]:
        return {"label": first, "x": (first + 1, layout.count)}
    if labels and labels != [last]:
        advice = 'and the label by their numbers with "columns" in --preprocess'
        if input_ and expected and (vector := vector_in_file(path, layout, expected)):
            advice = f"with --columns {columns_value(input_, vector)}"
        label = layout.header[labels[0]]
        raise GraphError("csv-label-between", source=path, name=label, advice=advice)
    return {"x": (first, last), "label": last}


def _images(folder: Path, found: ImageFolder) -> Data:
    labels, classes = [found.top_of(image) for image in found.images], list(found.classes)
    listed, unclassed = folder / LABELS, found.unclassed
    header: tuple[str, ...] = ()
    if listed.exists():
        (given, header), unclassed = listed_labels(found, listed), ""
        paths = list(map(os.path.normpath, found.images))
        for image, path in zip(found.images, paths, strict=True):
            if path not in given:
                raise GraphError("image-label-missing", source=listed, file=found.relative(image))
        found.warn_of_missing(listed, list(given))
        labels = [given[path] for path in paths]
        classes = sorted(set(labels))
    if unclassed:
        classes = []
    are_numbers = all(name.isdecimal() for name in classes)
    if are_numbers:
        classes.sort(key=int)
    numbers = {name: int(name) if are_numbers else n for n, name in enumerate(classes)}
    features = {"image": Feature("string", (), "image")}
    if classes:
        features["label"] = Feature("int64")
    return Data(
        str(folder), "images", found.images, features, counts=(1,) * len(found.images),
        header=bool(header),
        labels=tuple(numbers.get(label, 0) for label in labels),
        classes=tuple(classes), skipped=found.skipped, unclassed=unclassed,
    )  # fmt: skip


def _arrays(
    path: str,
    may_be_empty: bool,
    rule: csv_files.HeaderRule,
    *,
    vectors: tuple[str, ...] = (),
    has_graph: bool = False,
) -> Data:
    """Return a file of arrays. For a graph, columns that cannot be arrays are features too.

    Reading one of these is an error that says why; without them, another column might be fed.
    """
    table = with_vectors(load_data(path, rule), vectors, path)
    arrays = {name: item for name, item in table.items() if item.ndim}
    counts = {name: len(item) for name, item in arrays.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise GraphError("sample-counts-differ", source=path, counts=text)
    unusable = unusable_columns(table) if has_graph else {}
    if not (any(counts.values()) or unusable or (may_be_empty and counts)):
        raise GraphError("no-samples", source=path, purpose="run")
    features = {
        name: Feature("string" if item.dtype.kind in "OSU" else item.dtype.name, item.shape[1:])
        for name, item in arrays.items()
    }
    for name, column in unusable.items():
        if column.is_text is not None:
            features[name] = Feature("string" if column.is_text else "float32")
    return Data(
        path, "arrays", (path,), features, counts=tuple(set(counts.values())), rule=rule,
        vectors=vectors, unusable=unusable,
    )  # fmt: skip


def _ends(columns: int | tuple[int, int]) -> tuple[int, int]:
    return (columns, columns + 1) if isinstance(columns, int) else columns
