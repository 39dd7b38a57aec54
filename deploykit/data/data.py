"""What a data path means: TFRecord shards, CSV files, images or arrays, and what a record holds."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploykit.records.examples import Feature
from deploykit.records.index import END, index_names, load_index, one_set
from deploykit.records.verify_records import shard_counts
from deploykit.storage.arrays import load_data
from deploykit.storage.files import check_regular
from deploykit.storage.tables import is_number, is_table
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.untrusted.files import text_lines
from deploykit.verification import samples
from deploykit.verification.fitting import only_of_type
from deploykit.verification.samples import names_of_inputs
from deploykit.verification.synthetic.sample_inputs import type_and_shape

IMAGE_ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
LABELS = "labels.csv"

Columns = Mapping[str, int | tuple[int, int]]
"""A column by number, or the columns from the first number up to the second."""


@dataclass(frozen=True)
class Data:
    """Records on disk: the files that hold them, in order, and the features of each record."""

    path: str
    kind: str
    """records, csv, images or arrays."""
    files: tuple[str, ...]
    features: Mapping[str, Feature]
    counts: tuple[int, ...] = ()
    """Records of each file, where they are known without reading it."""
    compression: str = ""
    header: bool = False
    """Whether the first line of a CSV file names its columns."""
    columns: Columns = field(default_factory=dict)
    """Which columns of a CSV file make which feature."""
    labels: tuple[int, ...] = ()
    """The class of each image."""
    classes: tuple[str, ...] = ()
    name: str = ""
    """Of records, as their index says."""

    @property
    def records(self) -> int | None:
        """How many records an epoch has, if that is known without reading it."""
        return sum(self.counts) if self.counts else None

    def only_of_type(self, type_: str) -> list[str]:
        """Return the only feature that is no label, or else the only text or number among them."""
        return only_of_type({n: self.features[n].dtype == "string" for n in self.unlabelled}, type_)

    @property
    def unlabelled(self) -> list[str]:
        """The features that are neither labels nor groups."""
        return [name for name in self.features if name not in samples.NOT_INPUTS]

    @property
    def labelled(self) -> bool:
        """Whether the images have classes."""
        return "label" in self.features

    @property
    def width(self) -> int:
        """How many numbers a line of a CSV file holds."""
        return max(_ends(column)[1] for column in self.columns.values())

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


def open_data(path: str, columns: Columns | None = None, graph: Graph | None = None) -> Data:
    """Return what lies at a path; of the contents, no more is read than tells what they are.

    A folder with an index of `deploykit records` is TFRecords, of which `DIR/NAME` is one set where
    it holds several; else CSV files; else images, whose
    labels are their folders or the lines `FILE,LABEL` of a `labels.csv`. `columns` says which
    columns of a CSV file make which feature; default: the last is `label`, the others are `x`.
    The columns of a table by name (`storage.tables`) are arrays; of those that an input of `graph`
    takes as rows of one value, each value is such a row.

    FileError: there is nothing, or a file is cut short. GraphError: it is no such data.
    """
    place = Path(path)
    if (records := one_set(place)) is not None:
        result = _records(*records, is_named=place.name.endswith(END))
    elif os.path.isdir(place):
        result = _folder(place, columns)
    elif columns is None and _is_table(path, graph):
        result = _with_rows(_arrays(path), graph)
    elif place.suffix == ".csv":
        check_regular(place)
        result = _csv(path, [place], columns)
    elif place.suffix == ".tfrecord":
        raise GraphError("records-folder-expected", source=path)
    else:
        result = _arrays(path)
    if columns is not None and result.kind != "csv":
        raise GraphError("columns-not-csv", source=path)
    return result


def _is_table(path: str, graph: Graph | None) -> bool:
    """Say whether the columns of a file are arrays by name, as a graph takes them."""
    if graph is None:
        return is_table(path)
    names = {name for names in names_of_inputs(graph).values() for name in names}
    takes_text = any(type_and_shape(graph, t)[0] == "string" for t in graph.inputs)
    return is_table(path, names, takes_text, samples.NOT_INPUTS if len(graph.inputs) == 1 else None)


def _with_rows(data: Data, graph: Graph | None) -> Data:
    """Return columns as rows of one value where an input takes these."""
    features = dict(data.features)
    inputs = {} if graph is None else names_of_inputs(graph)
    for tensor, names in inputs.items():
        type_, shape, _ = ("", None, "") if graph is None else type_and_shape(graph, tensor)
        known = [name for name in names if name in features]
        if not known and len(inputs) == 1:
            known = data.only_of_type(type_)
        if not known:
            continue
        feature = features[known[0]]
        if type_ == "string" and data.path.endswith(".csv"):  # cells as they are written
            feature = replace(feature, dtype="string")
        if shape is not None and len(shape) == 2 and shape[1] in (-1, 1):
            feature = replace(feature, shape=feature.shape or (1,))
        features[known[0]] = feature
    return replace(data, features=features)


def is_arrays(path: str, graph: Graph | None = None) -> bool:
    """Say whether a path is a file of arrays, and not of records, images or lines of numbers."""
    if _is_table(path, graph):
        return True
    return not (Path(path).is_dir() or path.endswith(".csv") or one_set(path) is not None)


def _folder(folder: Path, columns: Columns | None) -> Data:
    names = index_names(folder)
    if len(names) > 1:
        raise GraphError(
            "record-names-several", folder=folder, names=names, example=folder / names[0]
        )
    if names:
        return _records(folder, names[0])
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    images = [
        file
        for item in files
        for file in (sorted(item.iterdir()) if item.is_dir() else [item])
        if file.suffix.lower() in IMAGE_ENDS
    ]
    if images:
        return _images(folder, images)
    tables = [file for file in files if file.suffix == ".csv"]
    if tables:
        return _csv(str(folder), tables, columns)
    if any(file.suffix == ".tfrecord" for file in files):
        raise FileError("records-without-index", source=folder)
    state = "holds nothing of the kind" if files else "is empty"
    raise FileError("data-folder-kind", source=folder, got=state)


def _records(folder: Path, name: str, is_named: bool = False) -> Data:
    index = load_index(folder, name)
    counts = shard_counts(folder, index, is_named)
    if not any(counts):
        raise FileError("index-without-records", source=folder)
    return Data(
        str(folder), "records", tuple(index.files(folder)), dict(index.features),
        counts=counts,
        compression=index.compression, classes=index.classes, name=index.name,
    )  # fmt: skip


def _csv(path: str, files: Sequence[Path], columns: Columns | None) -> Data:
    first = _first_line(files[0])
    header = not all(is_number(field) for field in first.split(","))
    width = first.count(",") + 1
    if columns is None:
        columns = {"x": (0, width - 1), "label": width - 1} if width > 1 else {"x": 0}
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
        # A name that nobody reads stands for the rest, so that the length of each line is known.
        columns = {**columns, "": width - 1}
    return Data(path, "csv", tuple(map(str, files)), features, header=header, columns=columns)


def _images(folder: Path, images: Sequence[Path]) -> Data:
    listed = folder / LABELS
    if listed.exists():
        names = _listed_labels(listed)
        for file in images:
            if str(file.relative_to(folder)) not in names:
                raise GraphError(
                    "image-label-missing", source=listed, file=file.relative_to(folder)
                )
        labels = [names[str(file.relative_to(folder))] for file in images]
    else:
        labels = [file.parent.name if file.parent != folder else "" for file in images]
    numbers = all(label.isdecimal() for label in labels)
    classes = sorted(set(labels), key=int if numbers else None)
    place = {name: int(name) if numbers else n for n, name in enumerate(classes)}
    features = {"image": Feature("string", (), "image")}
    known = classes != [""]
    if known:
        features["label"] = Feature("int64")
    return Data(
        str(folder), "images", tuple(map(str, images)), features, counts=(1,) * len(images),
        labels=tuple(place[label] for label in labels) if known else (0,) * len(images),
        classes=tuple(classes) if known else (),
    )  # fmt: skip


def _listed_labels(listed: Path) -> dict[str, str]:
    """Return the label of each file by its path in the folder."""
    results = {}
    for number, line in enumerate(text_lines(listed, "CSV file"), 1):
        name, comma, label = line.strip().rpartition(",")
        if not (comma and name and label.strip()):
            raise GraphError("csv-label-missing", source=listed, number=number)
        results[name] = label.strip()
    return results


def _arrays(path: str) -> Data:
    arrays = {name: item for name, item in load_data(path).items() if item.ndim}
    counts = {name: len(item) for name, item in arrays.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise GraphError("sample-counts-differ", source=path, counts=said)
    if not any(counts.values()):
        raise GraphError("no-samples", source=path, purpose="run")
    features = {
        name: Feature("string" if item.dtype.kind in "OSU" else item.dtype.name, item.shape[1:])
        for name, item in arrays.items()
    }
    return Data(path, "arrays", (path,), features, counts=tuple(set(counts.values())))


def _first_line(file: Path) -> str:
    line = next(text_lines(file, "CSV file"), "").strip()
    if not line:
        raise GraphError("csv-line-empty", source=file)
    return line


def _ends(columns: int | tuple[int, int]) -> tuple[int, int]:
    return (columns, columns + 1) if isinstance(columns, int) else columns
